"""Time the learner: updates a second, against the arithmetic that an update needs.

    python scripts/bench_learner.py                    # the default networks on CartPole's sizes
    python scripts/bench_learner.py policy.batch_size=512 policy.model.latent_state_dim=128
    python scripts/bench_learner.py --lightzero        # latent 128, 601 atoms, projection 1024

One thread. The arithmetic is counted by torch (multiplications and additions of all matmuls,
forward and backward); the machine's rate is that of a 512 x 512 matmul in the same process. The
median of --repeats blocks of five updates is quoted, with sampling and without.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from lightzero_lite.building import network_shape, replay_buffer
from lightzero_lite.config import Config, load_config
from lightzero_lite.envs.factory import EnvShape
from lightzero_lite.learner import Learner
from lightzero_lite.replay import ReplayBuffer
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.user_errors import quiet_broken_pipe
from lightzero_lite.types import Episode

CARTPOLE = EnvShape(observation_dim=4, action_num=2, max_episode_steps=500)
LIGHTZERO = [
    "policy.model.latent_state_dim=128",
    "policy.model.value_support_scale=300",
    "policy.model.reward_support_scale=300",
    "policy.model.projection_dim=1024",
    "policy.model.prediction_hidden_dim=512",
    "policy.model.norm_type=BN",
    "policy.batch_size=256",
    "policy.num_unroll_steps=5",
    "policy.ssl_loss_weight=2",
]
BLOCK = 5  # updates timed together


def filled_buffer(config: Config, rng: np.random.Generator) -> ReplayBuffer:
    """Return a buffer of 50 episodes of 200 random steps."""
    policy = replace(config.policy, replay_buffer_size=10_000)
    buffer = replay_buffer(policy, network_shape(policy, CARTPOLE), Ranks())
    for _ in range(50):
        ones = np.ones(200, np.float32)
        buffer.push(
            Episode(
                observations=rng.normal(size=(201, CARTPOLE.observation_dim)).astype(np.float32),
                legal_actions=np.ones((201, CARTPOLE.action_num), np.bool_),
                actions=rng.integers(CARTPOLE.action_num, size=200).astype(np.int32),
                rewards=ones,
                root_values=ones,
                raw_values=ones,
                policies=np.full((200, CARTPOLE.action_num), 0.5, np.float32),
                is_terminated=True,
            )
        )
    return buffer


def median_seconds(act: Callable[[], object], repeats: int) -> float:
    """Return the median time of one call, over blocks of BLOCK calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(BLOCK):
            act()
        times.append((time.perf_counter() - start) / BLOCK)
    return float(np.median(times))


@quiet_broken_pipe()
def main() -> None:
    """Print one line a figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20, help="blocks a median is over")
    parser.add_argument("--lightzero", action="store_true", help="LightZero's sizes for CartPole")
    parser.add_argument("overrides", nargs="*", help="options, as train.py takes them")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    config = load_config([*(LIGHTZERO if arguments.lightzero else []), *arguments.overrides])
    policy = config.policy
    shape = network_shape(policy, CARTPOLE)
    learner = Learner(policy, shape, ranks=Ranks(), device=torch.device("cpu"))
    buffer = filled_buffer(config, rng)
    batch = buffer.sample(policy.batch_size, rng)
    learner.update(batch)
    with FlopCounterMode(display=False) as counter:
        learner.update(batch)
    flops = counter.get_total_flops()
    square = torch.randn(512, 512)
    rate = 2 * 512**3 / median_seconds(lambda: square @ square, arguments.repeats)
    alone = median_seconds(lambda: learner.update(batch), arguments.repeats)
    whole = median_seconds(
        lambda: learner.update(buffer.sample(policy.batch_size, rng)), arguments.repeats
    )
    print(f"update: {1e3 * alone:.1f} ms, {1 / alone:.1f} updates a second")
    print(f"sample and update: {1e3 * whole:.1f} ms, {1 / whole:.1f} updates a second")
    print(f"arithmetic: {flops / 1e9:.2f} GFLOP an update; matmul rate {rate / 1e9:.0f} GFLOP/s")
    print(
        f"arithmetic alone would take {1e3 * flops / rate:.1f} ms: {flops / rate / alone:.0%} of it"
    )


if __name__ == "__main__":
    main()
