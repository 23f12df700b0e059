"""A trace of a few cycles by torch.profiler, and a table of what cost most in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from lightzero_lite.runtime.clock import Clock, Part

WARM_UP_CYCLES = 1  # without a record: kernels are compiled, buffers allocated
TRACED_CYCLES = 2
TABLE_ROWS = 10


class Cost(NamedTuple):
    """What one kind of operation cost, without the operations inside it."""

    name: str
    calls: int
    cpu_ms: float
    device_ms: float


class NullProfiler:
    """The profiler of a run that is not profiled."""

    def start(self, say: Callable[[str], None]) -> None:
        """Begin before the first cycle; `say` prints the table."""

    def step(self) -> None:
        """End a cycle."""

    def stop(self) -> None:
        """End the run."""


class Profiler(NullProfiler):
    """Traces this rank; the parts that its clock counts are labels in the trace."""

    def __init__(self, folder: Path, *, rank: int, clock: Clock, device: torch.device) -> None:
        """Write nothing yet.

        Args:
            folder: Where the trace goes; made when it is written.
            rank: Names the trace.
            clock: Tells what the process is busy with.
            device: Whose kernels are traced too where it is a GPU.
        """
        self.path, self.clock = folder / f"rank{rank}.pt.trace.json.gz", clock
        activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self.profile = profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=WARM_UP_CYCLES, active=TRACED_CYCLES, repeat=1),
            on_trace_ready=self._finish,
            acc_events=True,
        )
        self.label: record_function | None = None
        self.is_done = False

    def start(self, say: Callable[[str], None]) -> None:
        """Begin before the first cycle; `say` prints the table."""
        self.say = say
        self.profile.start()
        self.clock.marker = self._mark
        self._mark(Part.OTHER)

    def step(self) -> None:
        """End a cycle."""
        if self.is_done:
            return
        self._unmark()
        self.profile.step()
        if not self.is_done:
            self._mark(Part.OTHER)

    def stop(self) -> None:
        """End the run, and the trace if it has not ended before."""
        if self.is_done:
            return
        self._unmark()
        self.clock.marker = None
        self.profile.stop()
        if not self.is_done:
            self.say(
                f"profile: the run ended in its first {WARM_UP_CYCLES} cycles, without a trace"
            )

    def _mark(self, part: Part) -> None:
        """Label what follows in the trace."""
        self._unmark()
        self.label = record_function(part.name.lower())
        self.label.__enter__()  # type: ignore[no-untyped-call]

    def _unmark(self) -> None:
        if self.label is not None:
            self.label.__exit__(None, None, None)
            self.label = None

    def _finish(self, finished: Any) -> None:
        """Write the trace and print the table."""
        self.is_done = True
        self.clock.marker = None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        finished.export_chrome_trace(str(self.path))
        self.say(f"profile: {self.path}\n{cost_table(costs(finished.key_averages()))}")


def costs(averages: Iterable[Any]) -> list[Cost]:
    """Return the costs of a profile, the largest first.

    Args:
        averages: What `key_averages` of a profile answers, times in microseconds.
    """
    found = [
        Cost(
            name=average.key,
            calls=average.count,
            cpu_ms=average.self_cpu_time_total / 1000,
            # A label's span on the GPU holds kernels that are counted by themselves.
            device_ms=0.0 if average.is_user_annotation else average.self_device_time_total / 1000,
        )
        for average in averages
    ]
    return sorted(found, key=lambda cost: max(cost.cpu_ms, cost.device_ms), reverse=True)


def cost_table(found: list[Cost]) -> str:
    """Return the largest costs as lines of text; shares are of the time of all CPU operations."""
    total = max(sum(cost.cpu_ms for cost in found), 1e-9)
    lines = [f"{'self CPU ms':>12} {'share':>6} {'self GPU ms':>12} {'calls':>8}  name"]
    lines += [
        f"{cost.cpu_ms:12.1f} {cost.cpu_ms / total:6.1%} {cost.device_ms:12.1f} "
        f"{cost.calls:8d}  {cost.name}"
        for cost in found[:TABLE_ROWS]
    ]
    return "\n".join(lines)
