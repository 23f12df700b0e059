"""Small configurable environments, so that a test knows what every step must have been.

Registered ids work in another process too: `env.env_id=tests.fake_envs:Counter-v0`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
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
        seconds: float = 0.0,
        kill_step: int | None = None,
        fail_reset: int | None = None,
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
            seconds: Time that a step takes.
            kill_step: Kill the process at this step, on fail_rank, the first time torchrun starts.
            fail_reset: Raise RuntimeError at this reset, on fail_rank.
        """
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.min_length, self.max_length = min_length, max_length
        self.reward, self.end = reward, end
        is_failing = fail_rank is None or os.environ.get("RANK") == fail_rank
        self.fail_step = fail_step if is_failing else None
        self.fail_reset = fail_reset if is_failing else None
        is_first_start = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"
        self.kill_step = kill_step if is_failing and is_first_start else None
        self.seconds = seconds
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
        if len(self.seeds) == self.fail_reset:
            raise RuntimeError("the counter was told to fail to reset")
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
        if self.num_steps == self.kill_step:
            os.kill(os.getpid(), signal.SIGKILL)
        assert self.count < self.length, "stepped after the end"
        before = self._observation()
        time.sleep(self.seconds)
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


class Odd(gymnasium.Env[Any, int]):
    """One step; actions are -1, 0, 1, and the space of the observations is as configured."""

    def __init__(self, *, space: str = "dict", reward: float = 0.0) -> None:
        """Configure the space ("dict", "image" or "sequence") and the reward."""
        vectors = {"vector": spaces.Box(-9, 9, (2,)), "choice": spaces.Discrete(3)}
        self.observation_space = {
            "dict": spaces.Dict(vectors),
            "image": spaces.Box(0, 255, (8, 8), np.uint8),
            "sequence": spaces.Sequence(spaces.Discrete(3)),
        }[space]
        self.action_space = spaces.Discrete(3, start=-1)
        self.reward = reward

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start; the vector is zero."""
        return {"vector": np.zeros(2, np.float32), "choice": 1}, {}

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """End; the vector shows the action, and the reward is an array of one number."""
        observation = {"vector": np.full(2, action, np.float32), "choice": 2}
        return observation, np.array([self.reward]), True, False, {}


class Reusing(gymnasium.Env[np.ndarray, int]):
    """Three steps, every observation written into one array."""

    def __init__(self) -> None:
        """Make the array."""
        self.observation_space = spaces.Box(-9, 9, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.array = np.zeros(1, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start at 0."""
        self.array[0] = 0
        return self.array, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Count one further."""
        self.array[0] += 1
        return self.array, 0.0, bool(self.array[0] == 3), False, {}


def mask_of(observation: np.ndarray) -> np.ndarray:
    """Return the mask of a `Masked` counter's observation: it changes at every step."""
    seed, count = round(float(observation[0]) * 1000), round(float(observation[1]) * 10)
    bits = 1 + (5 * seed + 3 * count) % 7
    return np.array([bits & 1, bits >> 1 & 1, bits >> 2 & 1], np.int8)


class Masked(gymnasium.Wrapper[Any, int, np.ndarray, int]):
    """A counter that allows some actions, tells which, and fails where another one is played."""

    def __init__(self, *, place: str = "info", flaw: str | None = None, **options: Any) -> None:
        """Configure the counter.

        Args:
            place: Where the mask stands: "info", or in the "observation", a dictionary.
            flaw: None; "shape": masks of four actions; "nothing": none is allowed from step 2 on.
            options: Those of `Counter`.
        """
        super().__init__(Counter(**options))
        self.place, self.flaw = place, flaw
        if place == "observation":
            mask = spaces.MultiBinary(3)
            counter = self.env.observation_space
            self.observation_space = spaces.Dict({"action_mask": mask, "observation": counter})
        self.masks: list[list[np.ndarray]] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode of the counter."""
        observation, _ = self.env.reset(seed=seed)
        self.masks.append([])
        return self._with_mask(observation)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the counter; at its end nothing is allowed."""
        assert self.masks[-1][-1][action], "an illegal action"
        observation, reward, terminated, truncated, _ = self.env.step(action)
        shown, info = self._with_mask(observation, is_over=terminated)
        return shown, float(reward), terminated, truncated, info

    def _with_mask(
        self, observation: np.ndarray, *, is_over: bool = False
    ) -> tuple[Any, dict[str, Any]]:
        mask = mask_of(observation) * (not is_over)
        self.masks[-1].append(mask)
        if self.flaw == "shape":
            mask = np.ones(4, np.int8)
        if self.flaw == "nothing" and len(self.masks[-1]) > 2:
            mask = np.zeros(3, np.int8)
        if self.place == "info":
            return observation, {"action_mask": mask}
        return {"action_mask": mask, "observation": observation}, {}


class Showing(gymnasium.Env[Any, int]):
    """Returns what it was told to, in spaces that it was given, and never ends by itself."""

    def __init__(
        self,
        observation: Any = None,
        observation_space: spaces.Space[Any] | None = None,
        action_space: spaces.Space[Any] | None = None,
        reward: Any = 0.0,
    ) -> None:
        """Take the spaces, and what to return at every reset and step."""
        self.observation_space = observation_space or spaces.Box(-9, 9, (1,), np.float32)
        self.action_space = action_space or spaces.Discrete(2)
        self.observation = np.zeros(1, np.float32) if observation is None else observation
        self.reward = reward
        self.actions: list[int] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Return the observation."""
        return self.observation, {}

    def step(self, action: int) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an element of the action space, and note it."""
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.actions.append(int(action))
        return self.observation, self.reward, False, False, {}


def made_by_a_function(*, length: int) -> gymnasium.Env[Any, Any]:
    """Return a counter of a fixed length behind a time limit of its own."""
    return gymnasium.wrappers.TimeLimit(Counter(min_length=length, max_length=length), 50)


def register(
    name: str, entry_point: Callable[..., gymnasium.Env[Any, Any]], **options: object
) -> None:
    """Register a configured environment under `name`."""
    gymnasium.register(name, entry_point=entry_point, kwargs=options)


register("Counter-v0", Counter)
register("UnevenCounter-v0", Counter, min_length=2, max_length=40)
register("ActionCounter-v0", Counter, reward="action_one")
register("FixedCounter-v0", Counter, min_length=7, max_length=7, reward="count")
register("TruncatedCounter-v0", Counter, end="truncated")
register("BothEndsCounter-v0", Counter, end="both", reward="action")
register("SlowCounter-v0", Counter, min_length=20_000, max_length=20_000, seconds=0.005)
register("StuckCounter-v0", Counter, seconds=300.0)
register("KilledCounter-v0", Counter, fail_rank="1", kill_step=60)
register("FailingCounter-v0", Counter, fail_step=60, fail_rank="1")
register("FailingEvaluation-v0", Counter, fail_step=5, fail_rank="1")
register("FailingReset-v0", Counter, fail_reset=2, fail_rank="1")
register("Dict-v0", Odd)
register("Image-v0", Odd, space="image")
register("Sequence-v0", Odd, space="sequence")
register("NanReward-v0", Odd, reward=float("nan"))
register("InfiniteReward-v0", Odd, reward=float("inf"))
register("Reusing-v0", Reusing)
register("Masked-v0", Masked, end="both")
register("MaskedObservation-v0", Masked, end="both", place="observation")
register("MaskOfFour-v0", Masked, flaw="shape")
register("MaskOfNothing-v0", Masked, flaw="nothing")
