"""Small parts that several tests build on: learners, batches, ranks in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch

from lightzero_lite.building import network_shape
from lightzero_lite.config import ModelConfig, PolicyConfig
from lightzero_lite.envs.factory import EnvShape
from lightzero_lite.learner import Learner
from lightzero_lite.replay import ReplayBuffer
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.types import ReplayBatch

T = TypeVar("T")
OBSERVATION_DIM, ACTION_NUM = 3, 2


def small_buffer() -> ReplayBuffer:
    """Return an empty buffer for observations of two numbers and three actions."""
    return ReplayBuffer(
        size=1000,
        observation_shape=(2,),
        num_actions=3,
        td_steps=2,
        num_unroll_steps=3,
        discount=0.9,
    )


def tiny_policy(*, norm_type: str = "LN", **changes: Any) -> PolicyConfig:
    """Return a policy of networks 16 wide, with supports -4..4 and -6..6, and K = 3."""
    model = ModelConfig(
        latent_state_dim=16,
        head_hidden_dim=16,
        projection_dim=16,
        prediction_hidden_dim=8,
        reward_support_scale=4,
        value_support_scale=6,
        norm_type=norm_type,  # type: ignore[arg-type]
    )
    settings = {"batch_size": 8, "num_unroll_steps": 3, "model": model}
    return PolicyConfig(**(settings | changes))


def make_learner(policy: PolicyConfig, *, seed: int = 0, ranks: Ranks | None = None) -> Learner:
    """Build a learner whose initial weights the seed fixes."""
    torch.manual_seed(seed)
    shape = network_shape(policy, EnvShape(OBSERVATION_DIM, ACTION_NUM, None))
    return Learner(policy, shape, ranks=ranks or Ranks(), device=torch.device("cpu"))


def random_batch(seed: int, size: int = 8, num_unroll_steps: int = 3) -> ReplayBatch:
    """Draw a batch whose every field matters; all masks are 1."""
    rng = np.random.default_rng(seed)
    steps = num_unroll_steps + 1

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=(size, *shape)).astype(np.float32)

    policies = rng.random((size, steps, ACTION_NUM)).astype(np.float32)
    ones = np.ones((size, steps), np.float32)
    return ReplayBatch(
        observations=normal(steps, OBSERVATION_DIM),
        legal_actions=np.ones((size, steps, ACTION_NUM), np.bool_),
        actions=rng.integers(ACTION_NUM, size=(size, num_unroll_steps)).astype(np.int32),
        rewards=normal(num_unroll_steps),
        value_prefix=3 * normal(steps),
        bootstrap_discount=rng.random((size, steps)).astype(np.float32),
        bootstrap_observations=normal(steps, OBSERVATION_DIM),
        bootstrap_legal_actions=np.ones((size, steps, ACTION_NUM), np.bool_),
        bootstrap_values=3 * normal(steps),
        policies=policies / policies.sum(-1, keepdims=True),
        policy_mask=ones,
        value_mask=ones,
        reward_mask=ones[:, 1:],
        consistency_mask=ones[:, 1:],
        is_reanalyzed=np.zeros(size, np.float32),
        importance_weights=rng.random(size).astype(np.float32) + 0.5,
        episode_ids=np.arange(size),
        positions=np.arange(size),
    )


def part_of(batch: ReplayBatch, rows: slice) -> ReplayBatch:
    """Return some samples of a batch."""
    return ReplayBatch(*(array[rows] for array in batch))


@dataclass
class _Board:
    """Where ranks in threads lay out what they gather."""

    barrier: threading.Barrier
    values: list[Any]


@dataclass(frozen=True)
class ThreadRanks(Ranks):
    """Ranks that are threads of this process: real exchange, no process group."""

    board: _Board = field(default_factory=lambda: _Board(threading.Barrier(1), [None]))

    def gather(self, value: T) -> list[T]:
        """Return every rank's value, in rank order, on all ranks."""
        self.board.values[self.rank] = value
        self.board.barrier.wait()
        values = list(self.board.values)
        self.board.barrier.wait()
        return values

    def gather_late(self, value: T, *, is_leaving: Callable[[], bool]) -> list[T]:
        """Gather; the barrier waits long enough for any rank."""
        return self.gather(value)


def on_ranks(num_ranks: int, act: Callable[[Ranks], T]) -> list[T]:
    """Run `act` on ranks 0 .. num_ranks - 1, each a thread, and return their answers in order."""
    board = _Board(threading.Barrier(num_ranks, timeout=30), [None] * num_ranks)
    first = ThreadRanks(num_ranks=num_ranks, num_local_ranks=num_ranks, board=board)
    answers: list[Any] = [None] * num_ranks

    def run(rank: int) -> None:
        try:
            answers[rank] = act(replace(first, rank=rank, local_rank=rank))
        except BaseException:
            board.barrier.abort()
            raise

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not board.barrier.broken, "a rank raised"
    return answers
