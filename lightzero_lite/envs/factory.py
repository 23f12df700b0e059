"""Construction of Gymnasium environments, with the checks that a run needs before it starts."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import error, spaces

from lightzero_lite.config import EnvConfig
from lightzero_lite.envs.action_masks import find_mask, has_mask, legal_actions, network_space
from lightzero_lite.types import BoolArray, Float32Array, UserError

Env = gymnasium.Env[Any, Any]


class EnvShape(NamedTuple):
    """What the networks must know of an environment."""

    observation_dim: int  # numbers in one flattened observation
    action_num: int  # actions are 0 .. action_num - 1
    max_episode_steps: int | None  # time limit in env steps, None: none registered


class ResetResult(NamedTuple):
    """Where an episode starts."""

    observation: Float32Array  # [O]
    legal_actions: BoolArray  # [A], True: legal now


class StepResult(NamedTuple):
    """What one env step returned."""

    observation: Float32Array  # [O]
    legal_actions: BoolArray  # [A], True: legal now; all True where the environment terminated
    reward: float
    is_terminated: bool  # the environment ended: nothing comes after
    is_truncated: bool  # a time limit cut the episode: the value goes on


def make_env(config: EnvConfig) -> Env:
    """Construct one environment.

    Raises:
        UserError: The id is unknown, a package is missing, or a space is not supported.
    """
    limit = config.max_episode_steps
    keywords: dict[str, Any] = {} if limit is None else {"max_episode_steps": limit}
    try:
        env: Env = gymnasium.make(config.env_id, disable_env_checker=True, **keywords)
    except error.DependencyNotInstalled as failure:
        raise UserError(f"env.env_id={config.env_id}: {_one_line(failure)}") from None
    except (error.Error, ModuleNotFoundError) as failure:
        raise UserError(f"env.env_id={config.env_id}: {_one_line(failure)}") from None
    _check_spaces(env, config.env_id)
    return env


def env_shape(env: Env) -> EnvShape:
    """Return the sizes of an environment made by `make_env`."""
    assert isinstance(env.action_space, spaces.Discrete)
    limit = None if env.spec is None else env.spec.max_episode_steps
    observation_space = network_space(env.observation_space)
    return EnvShape(spaces.flatdim(observation_space), int(env.action_space.n), limit)


class VectorEnv:
    """Environments that are reset and stepped one by one, each only when it is told to.

    Nothing is reset by itself, so there is no transition that the environment did not make.
    """

    def __init__(self, config: EnvConfig, num_envs: int) -> None:
        """Construct num_envs environments."""
        self.config = config
        self.envs = [make_env(config) for _ in range(num_envs)]
        if self.envs:
            self.has_mask = has_mask(self.envs[0].observation_space)
            self.space = network_space(self.envs[0].observation_space)
            self.is_flat = isinstance(self.space, spaces.Box) and len(self.space.shape) == 1

    def __len__(self) -> int:
        """Return the number of environments."""
        return len(self.envs)

    def reset(self, index: int, seed: int) -> ResetResult:
        """Start an episode of one environment from a seed.

        Raises:
            UserError: The action mask has a wrong shape or allows nothing.
        """
        observation, info = self.envs[index].reset(seed=seed)
        legal = self._legal_actions(index, observation, info, must_act=True)
        return ResetResult(self._flatten(observation), legal)

    def step(self, index: int, action: int) -> StepResult:
        """Step one environment; action is in [0, action_num).

        Raises:
            FloatingPointError: The observation or the reward is not finite.
            UserError: The action mask has a wrong shape or allows nothing.
        """
        env = self.envs[index]
        assert isinstance(env.action_space, spaces.Discrete)
        observation, reward, terminated, truncated, info = env.step(action + env.action_space.start)
        number = float(np.asarray(reward).item())
        flat = self._flatten(observation)
        if not (np.isfinite(number) and np.isfinite(flat).all()):
            raise FloatingPointError(f"env {index} returned {observation}, reward {reward}")
        legal = self._legal_actions(index, observation, info, must_act=not terminated)
        return StepResult(flat, legal, number, bool(terminated), bool(truncated))

    def close(self) -> None:
        """Close all environments."""
        for env in self.envs:
            env.close()

    def _legal_actions(
        self, index: int, observation: Any, info: dict[str, Any], *, must_act: bool
    ) -> BoolArray:
        mask = find_mask(observation, info, is_in_observation=self.has_mask)
        space = self.envs[index].action_space
        assert isinstance(space, spaces.Discrete)
        return legal_actions(mask, int(space.n), must_act=must_act, env_id=self.config.env_id)

    def _flatten(self, observation: Any) -> Float32Array:
        if self.has_mask:
            observation = observation["observation"]
        if not self.is_flat:
            observation = spaces.flatten(self.space, observation)
        # A copy: the environment may hand out the same array at every step.
        return np.array(observation, dtype=np.float32)


def _check_spaces(env: Env, env_id: str) -> None:
    """Raise UserError where the networks cannot take the environment's spaces."""
    action_space, observation_space = env.action_space, network_space(env.observation_space)
    if not isinstance(action_space, spaces.Discrete):
        raise UserError(
            f"env.env_id={env_id}: the action space is {action_space}, but must be Discrete"
        )
    if isinstance(observation_space, spaces.Box) and len(observation_space.shape) > 1:
        raise UserError(
            f"env.env_id={env_id}: observations of shape {observation_space.shape} are images, "
            "but must be vectors"
        )
    if not observation_space.is_np_flattenable:
        raise UserError(
            f"env.env_id={env_id}: observations in {observation_space} cannot be made a vector"
        )


def _one_line(failure: Exception) -> str:
    return " ".join(str(failure).split())
