"""The profile of a run: a trace a rank, and what cost most."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from lightzero_lite.runtime.profiling import Cost, costs
from tests.launch import train_well

FIXED = "env.env_id=tests.fake_envs:FixedCounter-v0"  # 7 steps an episode


@pytest.mark.distributed
def test_each_rank_leaves_a_trace_and_the_table_is_printed_once(tmp_path: Path) -> None:
    sizes = ("policy.num_simulations=1", "policy.update_per_collect=1", "max_env_step=200")
    outcome = train_well(tmp_path, FIXED, "profile=true", *sizes, num_ranks=2)
    (folder,) = tmp_path.glob("*/log/profile")
    traces = {path.name: path for path in folder.iterdir()}
    assert set(traces) == {f"rank{rank}.pt.trace.json.gz" for rank in (0, 1)}
    for path in traces.values():
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        names = [event.get("name") for event in events]
        assert {"collect_network", "learn", "DistributedDataParallel.forward"} <= set(names)
    assert outcome.output.count("self CPU ms") == 1


def span(
    category: str, name: str, start: float, duration: float, thread: int = 1
) -> dict[str, Any]:
    return {"cat": category, "name": name, "tid": thread, "ts": start, "dur": duration}


def test_costs_leave_out_what_lies_inside_by_hand() -> None:
    events = [
        {"ph": "M", "name": "process_name"},
        span("user_annotation", "learn", 0.0, 10_000.0),
        span("cpu_op", "linear", 1_000.0, 4_000.0),
        span("cpu_op", "mm", 1_000.0, 3_000.0),  # starts with what it lies in
        span("cuda_runtime", "launch", 2_000.0, 500.0),
        span("cpu_op", "mm", 6_000.0, 1_000.0),
        span("cpu_op", "mm", 500.0, 7_000.0, thread=2),  # of another thread: inside nothing
        span("user_annotation", "sample", 10_000.0, 2_000.0),
        span("kernel", "gemm", 3_000.0, 9_000.0, thread=7),
        span("kernel", "gemm", 13_000.0, 1_000.0, thread=7),
        span("gpu_user_annotation", "learn", 3_000.0, 11_000.0, thread=7),
    ]
    assert costs(events) == [
        Cost("mm", calls=3, cpu_ms=2.5 + 1 + 7, device_ms=0),
        Cost("gemm", calls=2, cpu_ms=0, device_ms=10),
        Cost("learn", calls=1, cpu_ms=10 - 4 - 1, device_ms=0),
        Cost("sample", calls=1, cpu_ms=2, device_ms=0),
        Cost("linear", calls=1, cpu_ms=4 - 3, device_ms=0),
        Cost("launch", calls=1, cpu_ms=0.5, device_ms=0),
    ]
