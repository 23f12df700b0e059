"""SIGTERM, SIGINT and SIGUSR1 as a request to save and end, which all ranks learn of.

So is the end of torchrun, where it is killed and cannot end its ranks.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Protocol

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
_NOTE = "stop"
_SECONDS_A_LOOK = 1.0  # a look at the other ranks' notes takes a tenth of a millisecond


class Notes(Protocol):
    """What ranks tell one another without waiting (`runtime.distributed.Ranks`)."""

    def post(self, note: str) -> None:
        """Leave a note for all ranks."""

    def is_posted(self, note: str) -> bool:
        """Return whether some rank left the note."""

    def pulse(self) -> None:
        """Give a sign of life."""


class StopRequestedError(Exception):
    """The episodes in play are given up: the run was asked to end."""


class StopRequest:
    """Whether the run was asked to end, by a signal to this rank or to another one.

    The handler only takes a note: the loop ends at a point that all ranks agree on. Used as a
    context, it handles the signals; else there is never a request.
    """

    def __init__(self, notes: Notes | None = None) -> None:
        """Share requests through `notes`; None: a rank alone."""
        self.notes = notes
        self.signal_name: str | None = None  # the first signal that this rank got, or its like
        # A rank whose torchrun is killed would go on alone, where nobody can end it.
        self._parent = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None
        self._is_known = False
        self._next_look = 0.0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        """Handle the signals; Python allows that in its main thread only."""
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop handling them; a rank that ends on request must not die of a repeated one.

        A scheduler signals every process, and torchrun passes on what itself got.
        """
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_IGN if self.signal_name else handler)

    def look(self) -> bool:
        """Return whether this rank knows of a request; ask the others once a second."""
        now = time.monotonic()
        if not self._is_known and (self.signal_name or now >= self._next_look):
            self._next_look = now + _SECONDS_A_LOOK
            self._is_known = self._exchange()
        return self._is_known

    def check(self) -> None:
        """Raise where this rank knows of a request.

        Raises:
            StopRequestedError: It does.
        """
        if self.look():
            raise StopRequestedError

    def _exchange(self) -> bool:
        """Tell the other ranks of this rank's signal, or hear of theirs."""
        if self._parent not in (None, os.getppid()):
            self.signal_name = self.signal_name or "the end of torchrun"
        if self.notes is None:
            return self.signal_name is not None
        if self.signal_name:
            self.notes.post(_NOTE)
            return True
        self.notes.pulse()
        return self.notes.is_posted(_NOTE)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.signal_name = self.signal_name or signal.Signals(number).name
        if number == signal.SIGINT:
            # A second Ctrl-C ends the process at once. Under torchrun it arrives as a SIGTERM.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
