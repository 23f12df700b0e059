"""Speed of collecting and learning on 1..N ranks of this host.

    python scripts/bench_scaling.py [--ranks N] [--seconds S] [--repeats R] [key=value ...]

Twice for each number of ranks: once each rank keeps its share (8 environments, batch 256), once the
global sizes stay (8 environments, batch 256 over all ranks). One thread a rank. All is measured R
times in turn, since other load on the machine comes and goes: medians are shown, ratios are to one
rank of the same turn. The second table says where the time goes: waiting is for the slowest rank,
at the end of a collect phase and before each update; the exchange of gradients counts as learning.

The environment is MountainCar-v0: all episodes of an untrained agent last 200 steps, so that the
ranks have the same to do, as they have in a solved CartPole. With env.env_id=CartPole-v1, whose
first episodes last 8 to 20 steps, a phase waits for the longest of all.
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
from pathlib import Path
from statistics import median
from typing import NamedTuple

from lightzero_lite.runtime.clock import Part
from lightzero_lite.runtime.distributed import Ranks, joined_ranks
from lightzero_lite.train import build_trainer
from lightzero_lite.trainer import UPDATES_A_LOOK, Trainer

NUM_ENVS, BATCH_SIZE = 8, 256  # of one rank
PATIENCE = 600  # seconds for one measurement, start included
OPTIONS = ("env=cartpole", "env.env_id=MountainCar-v0", "device=cpu")


class Speed(NamedTuple):
    """What was measured of collecting or of learning."""

    rate: float  # global units a second
    shares: list[float]  # of the time, by Part, mean over ranks


class Found(NamedTuple):
    """What was measured of one way to share."""

    collecting: Speed  # in env steps
    learning: Speed  # in samples


def measure(ranks: Ranks, seconds: float, act: Callable[[], int]) -> Speed:
    """Repeat `act` for some seconds, which returns the units that it did."""
    ranks.barrier()
    ranks.clock.take()
    units, start, is_over = 0, time.perf_counter(), False
    while not is_over:
        units += act()
        is_over = ranks.any(time.perf_counter() - start > seconds)
    elapsed = time.perf_counter() - start
    total = ranks.sum(ranks.clock.take())
    return Speed(units / elapsed, [part / sum(total) for part in total])


def collect(trainer: Trainer) -> int:
    """Play a collect phase and return its env steps."""
    before = trainer.counters.envstep
    trainer._collect()
    return trainer.counters.envstep - before


def learn(trainer: Trainer) -> int:
    """Take as many updates as a run does between two looks at signals; return their samples."""
    for _ in range(UPDATES_A_LOOK):
        with trainer.clock.counting(Part.WAIT):
            trainer.ranks.barrier()
        trainer._update()
    return UPDATES_A_LOOK * trainer.config.policy.batch_size


def worker(seconds: float, path: Path, scales: Sequence[int], overrides: Sequence[str]) -> None:
    """Measure on this rank, for each scale of the sizes of one rank; rank 0 writes a Found each."""
    with joined_ranks() as ranks:
        found = []
        for scale in scales:
            envs = f"env.collector_env_num={NUM_ENVS * scale}"
            sizes = [
                f"policy.n_episode={NUM_ENVS * scale}",
                f"policy.batch_size={BATCH_SIZE * scale}",
            ]
            trainer = build_trainer([*OPTIONS, envs, *sizes, *overrides], ranks)
            trainer.learner.distribute()
            for _ in range(2):  # kernels are compiled, buffers allocated
                collect(trainer)
                learn(trainer)
            collecting = measure(ranks, seconds, lambda one=trainer: collect(one))
            found.append(Found(collecting, measure(ranks, seconds, lambda one=trainer: learn(one))))
        if ranks.is_main:
            path.write_text(json.dumps(found))


def launch(
    num_ranks: int, scales: Sequence[int], seconds: float, more: Sequence[str]
) -> list[Found]:
    """Measure on some ranks, in a process group of their own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc_per_node={num_ranks}", __file__, "--worker", str(path)]
        command += ["--scales", *map(str, scales), "--seconds", str(seconds), *more]
        variables = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run(
            command,
            check=True,
            timeout=PATIENCE,
            cwd=folder,
            stderr=subprocess.DEVNULL,
            env=variables,
        )
        return [Found(Speed(*one), Speed(*other)) for one, other in json.loads(path.read_text())]


def ways(most_ranks: int) -> dict[int, list[int]]:
    """Return, for each number of ranks, the scales of its sizes: each rank's share, the total."""
    return {n: [n, 1] if n > 1 else [1] for n in range(1, most_ranks + 1)}


def table(turns: Sequence[dict[tuple[int, int], Found]]) -> list[str]:
    """Return the lines of speeds, and of where the time goes."""
    lines = ["ranks  kept    env steps/s  ratio  waiting   samples/s  ratio  waiting"]
    names = ("environments", "network", "tree", "sampling", "updates", "waiting", "other")
    parts = [Part.COLLECT_ENV, Part.COLLECT_NETWORK, Part.COLLECT_TREE, Part.SAMPLE, Part.LEARN]
    rest = [f"\nranks  kept   of         {''.join(f'{name:>14}' for name in names)}"]
    for num_ranks, scale in turns[0]:
        title, line = f"{num_ranks:5}  {'share' if scale == num_ranks else 'total':5}", ""
        for index, act in enumerate(Found._fields):
            speeds = [turn[num_ranks, scale][index] for turn in turns]
            ratio = median(
                turn[num_ranks, scale][index].rate / turn[1, 1][index].rate for turn in turns
            )
            shares = [
                median(column) for column in zip(*(one.shares for one in speeds), strict=True)
            ]
            rate = median(one.rate for one in speeds)
            line += f"{rate:{14 - 2 * index}.0f} {ratio:6.2f} {shares[Part.WAIT]:8.1%}"
            cells = [shares[part] for part in (*parts, Part.WAIT, Part.OTHER)]
            rest.append(f"{title}  {act:10} {''.join(f'{cell:14.1%}' for cell in cells)}")
        lines.append(title + line)
    return lines + rest


def main() -> None:
    """Measure in turns and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--scales", type=int, nargs="+", help=argparse.SUPPRESS)
    options, overrides = parser.parse_known_args()
    if options.worker is not None:
        worker(options.seconds, options.worker, options.scales, overrides)
        return
    turns = []
    for _ in range(options.repeats):
        turn = {}
        for num_ranks, scales in ways(options.ranks).items():
            found = launch(num_ranks, scales, options.seconds, overrides)
            turn |= {(num_ranks, scale): one for scale, one in zip(scales, found, strict=True)}
        turns.append(turn)
    print("\n".join(table(turns)))


if __name__ == "__main__":
    main()
