"""A trace of a few cycles by torch.profiler, and a table of what cost most in them."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from lightzero_lite.runtime.clock import Clock, Part

WARM_UP_CYCLES = 1  # without a record: kernels are compiled, buffers allocated
TRACED_CYCLES = 2
TABLE_ROWS = 10
COMPRESSION = 3  # of 9: a third larger than the smallest file, for a ninth of the time
DEVICE_KINDS = {"kernel", "gpu_memcpy", "gpu_memset"}  # categories of a trace
HOST_KINDS = {"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"}


class Cost(NamedTuple):
    """What one kind of operation cost, without the operations inside it."""

    name: str
    calls: int
    cpu_ms: float
    device_ms: float


class Span(NamedTuple):
    """A stretch of a thread's time, sorted by its start, the longer of two first."""

    start: float  # in microseconds
    minus_duration: float
    name: str


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
        self.path, self.clock, self.rank = folder / f"rank{rank}.pt.trace.json.gz", clock, rank
        activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self.profile = profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=WARM_UP_CYCLES, active=TRACED_CYCLES, repeat=1),
            on_trace_ready=self._finish,
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
        """Write the trace and, on rank 0, print the table."""
        self.is_done = True
        self.clock.marker = None
        self.say(f"profile: writing the trace of {TRACED_CYCLES} cycles")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        plain = self.path.with_suffix("")
        finished.export_chrome_trace(str(plain))
        trace = plain.read_bytes()
        plain.unlink()
        self.path.write_bytes(gzip.compress(trace, COMPRESSION))
        if self.rank == 0:
            # Read back, since torch takes ten times as long to sum up its own events.
            table = cost_table(costs(json.loads(trace)["traceEvents"]))
            self.say(f"profile: {self.path}\n{table}")


def costs(events: Iterable[dict[str, Any]]) -> list[Cost]:
    """Return the costs of a trace, the largest first.

    Args:
        events: Those of a Chrome trace: category `cat`, thread `tid`, start `ts` and duration
            `dur` in microseconds.
    """
    calls = defaultdict[str, int](int)
    cpu, device = defaultdict[str, float](float), defaultdict[str, float](float)
    threads = defaultdict[Any, list[Span]](list)
    for event in events:
        kind, name = event.get("cat"), event.get("name", "")
        if kind in DEVICE_KINDS:
            calls[name] += 1
            device[name] += event["dur"] / 1000
        elif kind in HOST_KINDS:
            threads[event["tid"]].append(Span(event["ts"], -event["dur"], name))
    for spans in threads.values():
        for name, own in own_times(spans):
            calls[name] += 1
            cpu[name] += own / 1000
    found = [Cost(name, calls[name], cpu[name], device[name]) for name in calls]
    return sorted(found, key=lambda cost: max(cost.cpu_ms, cost.device_ms), reverse=True)


def own_times(spans: Iterable[Span]) -> Iterator[tuple[str, float]]:
    """Yield the name of each span of a thread and its duration without the spans inside it."""
    open_spans: list[list[Any]] = []  # the innermost last: name, end, own time
    for start, minus_duration, name in sorted(spans):
        while open_spans and open_spans[-1][1] <= start:
            yield open_spans[-1][0], open_spans.pop()[2]
        end = start - minus_duration
        if open_spans:
            open_spans[-1][2] -= min(end, open_spans[-1][1]) - start
        open_spans.append([name, end, end - start])
    yield from ((name, own) for name, _, own in open_spans)


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
