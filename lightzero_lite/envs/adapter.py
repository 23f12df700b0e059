"""One Gymnasium environment in the program's terms: vectors, legal actions, plain numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from lightzero_lite.config import EnvConfig
from lightzero_lite.envs.action_masks import find_mask, has_mask, legal_actions, network_space
from lightzero_lite.envs.factory import EnvShape, env_shape, make_env
from lightzero_lite.envs.opponents import find_opponent
from lightzero_lite.envs.versus import Versus
from lightzero_lite.types import BoolArray, Float32Array, ResetOptions, ResetResult, StepResult


class EnvAdapter:
    """An environment that is reset and stepped only when it is told to.

    Nothing is reset by itself, so there is no transition that the environment did not make.
    """

    def __init__(self, config: EnvConfig, index: int) -> None:
        """Construct the environment.

        Args:
            config: Which one; with opponents, the game is seen as one player sees it.
            index: Its number among those of this rank, for messages.

        Raises:
            UserError: It cannot be made or does not fit.
        """
        self.env, self.index, self.option = make_env(config), index, config.option
        if config.opponents:
            game = self.env.unwrapped
            opponents = [find_opponent(name, game) for name in config.opponents]
            self.env = Versus(self.env, opponents)
        self.shape: EnvShape = env_shape(self.env)
        space = self.env.action_space
        assert isinstance(space, spaces.Discrete)
        self.first_action = int(space.start)
        self.all_actions = np.ones(self.shape.action_num, np.bool_)
        self.has_mask = has_mask(self.env.observation_space)
        self.space = network_space(self.env.observation_space)
        self.is_flat = isinstance(self.space, spaces.Box) and len(self.space.shape) == 1

    def reset(self, seed: int, options: ResetOptions = None) -> ResetResult:
        """Start an episode from a seed, with the options of Gymnasium's reset.

        Raises:
            UserError: The action mask has a wrong shape or allows nothing.
            ValueError: The observation is not in its space.
        """
        observation, info = self.env.reset(seed=seed, options=options)
        legal = self._legal_actions(observation, info, must_act=True)
        return ResetResult(self._flatten(observation), legal)

    def step(self, action: int) -> StepResult:
        """Step the environment; action is in [0, action_num).

        Raises:
            FloatingPointError: The observation or the reward is not finite.
            UserError: The action mask has a wrong shape or allows nothing.
            ValueError: The observation is not in its space, or the reward is not one number.
        """
        observation, reward, terminated, truncated, info = self.env.step(action + self.first_action)
        number, flat = self._number(reward), self._flatten(observation)
        if not (math.isfinite(number) and _is_finite(flat)):
            raise FloatingPointError(f"env {self.index} returned {observation}, reward {reward}")
        legal = self._legal_actions(observation, info, must_act=not terminated)
        return StepResult(flat, legal, number, bool(terminated), bool(truncated))

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _legal_actions(
        self, observation: Any, info: dict[str, Any], *, must_act: bool
    ) -> BoolArray:
        mask = find_mask(observation, info, is_in_observation=self.has_mask)
        if mask is None:
            return self.all_actions
        return legal_actions(mask, self.shape.action_num, must_act=must_act, option=self.option)

    def _flatten(self, observation: Any) -> Float32Array:
        if self.has_mask:
            observation = observation["observation"]
        if not self.is_flat:
            observation = spaces.flatten(self.space, observation)
        # A copy: the environment may hand out the same array at every step.
        flat = np.array(observation, dtype=np.float32)
        if flat.shape != (self.shape.observation_dim,):
            seen = f"an observation {flat.shape}, but it is {self.space}"
            raise ValueError(f"env {self.index} returned {seen}")
        return flat

    def _number(self, reward: Any) -> float:
        """Return a reward of any numeric type, or in an array of one element, as a float."""
        try:
            return float(reward.item() if isinstance(reward, np.ndarray) else reward)
        except (TypeError, ValueError):
            seen = f"the reward {reward}: not one number"
            raise ValueError(f"env {self.index} returned {seen}") from None


def _is_finite(vector: Float32Array) -> bool:
    """Return whether all numbers are finite; the dot product says so in a third of the time."""
    return math.isfinite(np.dot(vector, vector)) or bool(np.isfinite(vector).all())
