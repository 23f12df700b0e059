"""Where the time goes: every moment counts once, and all of them count."""

from __future__ import annotations

import time

import pytest

from lightzero_lite.runtime.clock import Clock, Part


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time that the clock reads, which the test moves."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_a_part_within_a_part_stops_the_outer_one(now: list[float]) -> None:
    clock = Clock()
    now[0] += 1
    with clock.counting(Part.EVALUATE):
        now[0] += 2
        with clock.counting(Part.WAIT):
            now[0] += 4
        now[0] += 8
    now[0] += 16
    seconds = clock.take()
    assert [seconds[part] for part in (Part.OTHER, Part.EVALUATE, Part.WAIT)] == [17, 10, 4]
    assert sum(seconds) == 31
    now[0] += 32
    assert clock.take() == [32, *[0.0] * (len(Part) - 1)]


def test_a_timed_function_counts_for_its_part_and_answers(now: list[float]) -> None:
    clock = Clock()

    def work(factor: int) -> int:
        now[0] += 3
        return 2 * factor

    timed, seen = clock.timed(Part.COLLECT_NETWORK, work), list[Part]()
    assert timed(21) == 42
    seconds = clock.take()
    assert (seconds[Part.COLLECT_NETWORK], seconds[Part.OTHER]) == (3, 0)
    clock.marker = seen.append
    assert timed(21) == 42
    assert seen == [Part.COLLECT_NETWORK, Part.OTHER]
    seconds = clock.take()
    assert (seconds[Part.COLLECT_NETWORK], seconds[Part.OTHER]) == (3, 0)


def test_a_part_ends_where_its_block_raises(now: list[float]) -> None:
    clock = Clock()

    def work() -> None:
        with clock.counting(Part.SAVE):
            now[0] += 5
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        work()
    now[0] += 7
    seconds = clock.take()
    assert seconds[Part.SAVE] == 5
    assert seconds[Part.OTHER] == 7


def test_the_marker_is_told_of_every_change(now: list[float]) -> None:
    clock, seen = Clock(), list[Part]()
    clock.marker = seen.append
    with clock.counting(Part.LEARN), clock.counting(Part.WAIT):
        pass
    assert seen == [Part.LEARN, Part.WAIT, Part.LEARN, Part.OTHER]
