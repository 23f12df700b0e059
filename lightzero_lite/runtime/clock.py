"""Where a process spends its time: every moment counts once, for what it was busy with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, TypeVar

T = TypeVar("T")


class Part(IntEnum):
    """What a process of a run can be busy with."""

    OTHER = 0  # storing episodes, copying weights to the predictor, writing logs
    COLLECT_ENV = 1
    COLLECT_NETWORK = 2
    COLLECT_TREE = 3
    SAMPLE = 4
    REANALYZE = 5
    LEARN = 6  # the exchange of gradients included
    EVALUATE = 7
    SAVE = 8
    WAIT = 9  # for other ranks, in all other exchanges


class Clock:
    """Counts seconds for one part at a time; a part within a part stops the outer one."""

    def __init__(self) -> None:
        """Start counting for Part.OTHER."""
        self.marker: Callable[[Part], object] | None = None  # told of every change: the profiler
        self._current = Part.OTHER
        self._seconds = [0.0] * len(Part)
        self._since = time.perf_counter()

    def switch(self, part: Part) -> Part:
        """Count for another part from now on; return the one before."""
        now, before = time.perf_counter(), self._current
        self._seconds[before] += now - self._since
        self._current, self._since = part, now
        if self.marker is not None:
            self.marker(part)
        return before

    @contextmanager
    def counting(self, part: Part) -> Iterator[None]:
        """Count for a part inside a `with` block."""
        before = self.switch(part)
        try:
            yield
        finally:
            self.switch(before)

    def timed(self, part: Part, function: Callable[..., T]) -> Callable[..., T]:
        """Return a function whose calls count for a part, with no other part inside them."""
        # A search calls its network every few dozen microseconds: as little as can be is done here.
        now, seconds, index = time.perf_counter, self._seconds, int(part)

        def call(*arguments: Any) -> T:
            if self.marker is not None:
                with self.counting(part):
                    return function(*arguments)
            start = now()
            result = function(*arguments)
            spent = now() - start
            seconds[index] += spent
            seconds[self._current] -= spent
            return result

        return call

    def take(self) -> list[float]:
        """Return the seconds of each part, in the order of Part, since the last call."""
        self.switch(self._current)
        seconds = self._seconds.copy()
        self._seconds[:] = [0.0] * len(Part)
        return seconds
