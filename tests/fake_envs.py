"""One small configurable environment, so that a test knows what every step must have been.

Registered ids work in another process too: `env.env_id=tests.fake_envs:Counter-v0`.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces


class Step(NamedTuple):
    """What one step of the environment was given and gave back."""

    observation: list[float]  # before the action
    action: int
    reward: float
    next_observation: list[float]
    terminated: bool
    truncated: bool


class Counter(gymnasium.Env[np.ndarray, int]):
    """Counts to a length that the reset seed fixes.

    Observation: [seed in 0..1, step / 10]. Actions: 0, 1, 2. The environment writes its own record
    of each episode, which tests compare with what the program stored.
    """

    def __init__(
        self,
        *,
        min_length: int = 10,
        max_length: int = 20,
        reward: str = "one",
        end: str = "terminated",
        fail_step: int | None = None,
        fail_rank: str | None = None,
    ) -> None:
        """Configure the episodes.

        Args:
            min_length: Fewest steps of an episode.
            max_length: Most steps of an episode; equal to min_length: always this many.
            reward: "one" a step, the "action", the "count" of the step, or "action_one": 1 where
                the action is 1.
            end: "terminated", "truncated", or "both" in turn by the seed.
            fail_step: Raise RuntimeError at this step of the environment's life.
            fail_rank: Only on this rank of torchrun; None: on all.
        """
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.min_length, self.max_length = min_length, max_length
        self.reward, self.end = reward, end
        is_failing = fail_rank is None or os.environ.get("RANK") == fail_rank
        self.fail_step = fail_step if is_failing else None
        self.num_steps = 0
        self.seeds: list[int] = []
        self.record: list[list[Step]] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode whose length is drawn from the seed."""
        super().reset(seed=seed)
        assert seed is not None, "the program seeds every episode"
        self.seeds.append(seed)
        self.length = int(self.np_random.integers(self.min_length, self.max_length + 1))
        self.key = seed % 1000 / 1000
        self.is_terminating = self.end == "terminated" or (self.end == "both" and seed % 2 == 0)
        self.count = 0
        self.record.append([])
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Count one further."""
        self.num_steps += 1
        if self.num_steps == self.fail_step:
            raise RuntimeError("the counter was told to fail")
        assert self.count < self.length, "stepped after the end"
        before = self._observation()
        self.count += 1
        rewards = {"one": 1, "action": action, "count": self.count, "action_one": action == 1}
        reward = float(rewards[self.reward])
        is_over = self.count == self.length
        terminated = is_over and self.is_terminating
        truncated = is_over and not self.is_terminating
        after = self._observation()
        self.record[-1].append(
            Step(before.tolist(), int(action), reward, after.tolist(), terminated, truncated)
        )
        return after, reward, terminated, truncated, {}

    def _observation(self) -> np.ndarray:
        return np.array([self.key, self.count / 10], dtype=np.float32)


def register(name: str, **options: object) -> None:
    """Register a configured counter under `name`."""
    gymnasium.register(name, entry_point=Counter, kwargs=options)


register("Counter-v0")
register("ActionCounter-v0", reward="action_one")
register("FixedCounter-v0", min_length=7, max_length=7, reward="count")
register("TruncatedCounter-v0", end="truncated")
register("BothEndsCounter-v0", end="both", reward="action")
register("FailingCounter-v0", fail_step=60, fail_rank="1")
