"""Speed of collecting and learning on 1..N ranks of this host.

    python scripts/bench_scaling.py [--ranks N] [--seconds S] [key=value ...]

Twice for each number of ranks: once each rank keeps its share (8 environments, batch 256), once the
global sizes stay (8 environments, batch 256 over all ranks). Columns: global env steps a second in
collecting, global samples a second in learning, their ratio to one rank, and the share of time that
the ranks spend waiting for the slowest one (before the gather of a collect phase; before each
update, where the exchange of gradients itself counts as work).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TypeVar

from lightzero_lite.runtime.distributed import Ranks, joined_ranks
from lightzero_lite.runtime.user_errors import quiet_broken_pipe
from lightzero_lite.train import build_trainer
from lightzero_lite.trainer import Trainer

T = TypeVar("T")
NUM_ENVS, BATCH_SIZE = 8, 256  # of one rank
PATIENCE = 600  # seconds for one measurement, start included


@dataclass(frozen=True)
class TimedRanks(Ranks):
    """Ranks that note how long they wait for the slowest one."""

    waits: list[float] = field(default_factory=list)

    def gather_late(self, value: T, *, is_leaving: Callable[[], bool]) -> list[T]:
        """Gather at the end of a collect phase."""
        start = time.perf_counter()
        answer = super().gather_late(value, is_leaving=is_leaving)
        self.waits.append(time.perf_counter() - start)
        return answer

    def barrier(self) -> None:
        """Wait before an update."""
        start = time.perf_counter()
        super().barrier()
        self.waits.append(time.perf_counter() - start)


def measure(ranks: TimedRanks, seconds: float, act: Callable[[], int]) -> tuple[float, float]:
    """Repeat `act` for some seconds; return its units a second and the share spent waiting."""
    ranks.waits.clear()
    units, start, is_over = 0, time.perf_counter(), False
    while not is_over:
        units += act()
        is_over = ranks.any(time.perf_counter() - start > seconds)
    elapsed = time.perf_counter() - start
    (waited,) = ranks.sum([sum(ranks.waits)])
    return units / elapsed, waited / ranks.num_ranks / elapsed


def collect(trainer: Trainer) -> int:
    """Play a collect phase and return its env steps."""
    before = trainer.counters.envstep
    trainer._collect()
    return trainer.counters.envstep - before


def learn(trainer: Trainer) -> int:
    """Take an update and return its samples."""
    trainer.ranks.barrier()
    trainer._update()
    return trainer.config.policy.batch_size


def worker(seconds: float, path: Path, overrides: list[str]) -> None:
    """Measure on this rank; rank 0 writes [env steps/s, wait, samples/s, wait]."""
    with joined_ranks() as joined:
        ranks = TimedRanks(*(getattr(joined, one.name) for one in fields(joined)))
        trainer = build_trainer(overrides, ranks)
        trainer.learner.distribute()
        for _ in range(2):  # kernels are compiled, buffers allocated
            collect(trainer)
            learn(trainer)
        found = [*measure(ranks, seconds, lambda: collect(trainer))]
        found += measure(ranks, seconds, lambda: learn(trainer))
        if ranks.is_main:
            path.write_text(json.dumps(found))


def launch(num_ranks: int, scale: int, seconds: float, overrides: Sequence[str]) -> list[float]:
    """Measure `num_ranks` ranks that share `scale` times the sizes of one."""
    sizes = [
        f"env.collector_env_num={NUM_ENVS * scale}",
        f"policy.n_episode={NUM_ENVS * scale}",
        f"policy.batch_size={BATCH_SIZE * scale}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc_per_node={num_ranks}", __file__, "--worker", str(path)]
        command += ["--seconds", str(seconds), "env=cartpole", "device=cpu", *sizes, *overrides]
        subprocess.run(command, check=True, timeout=PATIENCE, cwd=folder, stderr=subprocess.DEVNULL)
        answer: list[float] = json.loads(path.read_text())
        return answer


@quiet_broken_pipe()
def main() -> None:
    """Print a line for each number of ranks and each way to share."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options, overrides = parser.parse_known_args()
    if options.worker is not None:
        worker(options.seconds, options.worker, overrides)
        return
    print("ranks  kept    env steps/s  ratio  waiting   samples/s  ratio  waiting")
    base = launch(1, 1, options.seconds, overrides)
    for num_ranks in range(1, options.ranks + 1):
        for kept, scale in (("share", num_ranks), ("total", 1)):
            if num_ranks == 1 and kept == "total":
                continue
            found = base if num_ranks == 1 else launch(num_ranks, scale, options.seconds, overrides)
            steps, step_wait, samples, sample_wait = found
            print(
                f"{num_ranks:5}  {kept:5}  {steps:12.0f} {steps / base[0]:6.2f} {step_wait:8.1%}"
                f"{samples:12.0f} {samples / base[2]:6.2f} {sample_wait:8.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
