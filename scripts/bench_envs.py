"""Time the environments alone, stepped one after the other and each in a process of its own.

    python scripts/bench_envs.py env=cartpole
    python scripts/bench_envs.py env.entry_point=my_env:MyEnv env.collector_env_num=8

Plays random legal actions in env.collector_env_num environments for a few seconds each.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Literal

import numpy as np

from lightzero_lite.config import Config, load_config
from lightzero_lite.envs.vector import VectorEnv
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.user_errors import one_line_errors
from lightzero_lite.types import BoolArray

SECONDS = 3.0  # of measuring, for each way


def measure(config: Config, vectorization: Literal["sync", "async"]) -> None:
    """Print a row: seconds until the environments stand, and env steps a second."""
    start = time.perf_counter()
    env, num_envs = config.env, config.env.collector_env_num
    envs = VectorEnv(replace(env, vectorization=vectorization), num_envs)
    ready = time.perf_counter() - start
    rng = np.random.default_rng(config.seed)
    legal = [result.legal_actions for result in envs.reset_all(range(num_envs), range(num_envs))]
    num_rounds, start = 0, time.perf_counter()
    while (seconds := time.perf_counter() - start) < SECONDS:
        results = envs.step_all(range(num_envs), random_actions(legal, rng))
        num_rounds += 1
        over = [i for i, one in enumerate(results) if one.is_terminated or one.is_truncated]
        legal = [result.legal_actions for result in results]
        seeds = [num_rounds * num_envs + i for i in over]
        for i, result in zip(over, envs.reset_all(over, seeds), strict=True):
            legal[i] = result.legal_actions
    envs.close()
    print(f"{vectorization:<6}{num_envs:>5}{ready:>10.2f}{num_rounds * num_envs / seconds:>12.0f}")


def random_actions(legal: list[BoolArray], rng: np.random.Generator) -> np.ndarray:
    """Draw a legal action for each environment."""
    return np.array([rng.choice(np.flatnonzero(one)) for one in legal], np.int32)


def main() -> None:
    """Measure both ways."""
    with one_line_errors(Ranks()):
        config = load_config(sys.argv[1:])
        print(f"{'':<6}{'envs':>5}{'start, s':>10}{'env steps/s':>12}")
        measure(config, "sync")
        measure(config, "async")


if __name__ == "__main__":
    main()
