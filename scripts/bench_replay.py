"""Time a full replay buffer: batches with targets, priority updates, pushes, and memory.

    python scripts/bench_replay.py --size 1000000 --td-steps 10 --unroll 5 --priority both

Every figure is the median of --repeats calls. For one core set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from lightzero_lite.replay import ReplayBuffer
from lightzero_lite.runtime.user_errors import quiet_broken_pipe
from lightzero_lite.types import Episode

MAX_EPISODE_STEPS = 500


def parse_arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1_000_000, help="transitions stored")
    parser.add_argument("--td-steps", type=int, default=10, help="n of the n-step target")
    parser.add_argument("--unroll", type=int, default=5, help="K, model steps of a sample")
    parser.add_argument("--batch-size", type=int, default=256, help="samples of a batch")
    parser.add_argument("--priority", choices=["off", "on", "both"], default="both")
    parser.add_argument("--observation", type=int, default=4, help="numbers of an observation")
    parser.add_argument("--actions", type=int, default=2, help="number of actions")
    parser.add_argument("--repeats", type=int, default=1000, help="calls a median is over")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def random_episode(args: argparse.Namespace, rng: np.random.Generator) -> Episode:
    """Return an episode of 10 to 500 random steps, half of them cut by a time limit."""
    length = int(rng.integers(10, MAX_EPISODE_STEPS + 1))
    return Episode(
        observations=rng.random((length + 1, args.observation), np.float32),
        legal_actions=np.ones((length + 1, args.actions), np.bool_),
        actions=rng.integers(args.actions, size=length, dtype=np.int32),
        rewards=rng.random(length, np.float32),
        root_values=rng.random(length, np.float32),
        raw_values=rng.random(length, np.float32),
        policies=np.full((length, args.actions), 1 / args.actions, np.float32),
        is_terminated=bool(rng.integers(2)),
    )


def median_ms(call: Callable[[], object], repeats: int) -> float:
    """Return the median time of a call in milliseconds, the first call left out."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1e3


def benchmark(args: argparse.Namespace, use_priority: bool) -> None:
    """Fill a buffer until it has evicted episodes, and print its figures."""
    rng = np.random.default_rng(args.seed)
    buffer = ReplayBuffer(
        size=args.size,
        observation_shape=(args.observation,),
        num_actions=args.actions,
        td_steps=args.td_steps,
        num_unroll_steps=args.unroll,
        discount=0.997,
        use_priority=use_priority,
    )
    while buffer.num_evicted_episodes == 0:
        buffer.push(random_episode(args, rng))
    sample_ms = median_ms(lambda: buffer.sample(args.batch_size, rng), args.repeats)
    print(f"priority {'on' if use_priority else 'off'}, {buffer.num_transitions} transitions")
    print(f"  batch of {args.batch_size:<15} {sample_ms:10.3f} ms")
    print(f"  samples a second         {args.batch_size / sample_ms * 1e3:10.0f}")
    if use_priority:
        batch = buffer.sample(args.batch_size, rng)
        priorities = rng.random(args.batch_size)
        update_ms = median_ms(
            lambda: buffer.update_priorities(batch.episode_ids, batch.positions, priorities),
            args.repeats,
        )
        print(f"  update of its priorities {update_ms:10.3f} ms")
    episode = random_episode(args, rng)
    push_ms = median_ms(lambda: buffer.push(episode), args.repeats // 10 + 1)
    print(f"  push of {len(episode.actions):<3} steps        {push_ms:10.3f} ms")
    print(f"  memory                   {buffer.memory_bytes / 1e6:10.1f} MB")


@quiet_broken_pipe()
def main() -> None:
    """Run the benchmark without priorities, with them, or both."""
    args = parse_arguments()
    for name, use_priority in (("off", False), ("on", True)):
        if args.priority in (name, "both"):
            benchmark(args, use_priority)


if __name__ == "__main__":
    main()
