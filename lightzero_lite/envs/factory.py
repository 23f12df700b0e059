"""Construction of Gymnasium environments, with the checks that a run needs before it starts."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from lightzero_lite.config import EnvConfig
from lightzero_lite.envs.action_masks import network_space
from lightzero_lite.envs.action_repeat import ActionRepeat
from lightzero_lite.envs.entry_point import find_in_current_folder, load, one_line
from lightzero_lite.types import UserError

Env = gymnasium.Env[Any, Any]
LONGEST_EPISODE = 10_000  # steps, where the environment has no time limit of its own

_VECTOR_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class EnvShape(NamedTuple):
    """What the networks must know of an environment."""

    observation_dim: int  # numbers in one flattened observation
    action_num: int  # actions are 0 .. action_num - 1
    max_episode_steps: int | None  # time limit in the environment's own steps, None: not known
    num_players: int = 1  # who take turns


def make_env(config: EnvConfig) -> Env:
    """Construct one environment; its episodes end, if only by a time limit.

    Raises:
        UserError: There is no such environment, its constructor raises, or a space does not fit.
    """
    env = _construct(config)
    for name in config.wrappers:
        wrap = load(name, f"env.wrappers={name}")
        with one_line(f"env.wrappers={name}"):
            env = wrap(env)
    if not isinstance(env, gymnasium.Env):
        raise UserError(f"{config.option}: a {type(env).__name__} is not a gymnasium.Env")
    _check_spaces(env, config.option)
    limited = env if time_limit(env) else EpisodeGuard(env, config.option)
    return limited if config.action_repeat == 1 else ActionRepeat(limited, config.action_repeat)


def _construct(config: EnvConfig) -> Env:
    """Call what makes the environment, and set its time limit."""
    limit = config.max_episode_steps
    if config.entry_point is None:
        keywords: dict[str, Any] = {} if limit is None else {"max_episode_steps": limit}
        find_in_current_folder()  # an id may name its module, as in module:Id-v0
        with one_line(config.option):
            return gymnasium.make(
                config.env_id, disable_env_checker=True, **config.kwargs, **keywords
            )
    make = load(config.entry_point, config.option)
    with one_line(config.option):
        env: Env = make(**config.kwargs)
    return env if limit is None else TimeLimit(env, limit)


def time_limit(env: Env) -> int | None:
    """Return the shortest time limit among an environment's wrappers; None if there is none."""
    limits = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            limits.append(int(env._max_episode_steps))
        elif isinstance(env, EpisodeGuard):
            limits.append(LONGEST_EPISODE)
        env = env.env
    return min(limits, default=None)


class EpisodeGuard(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Cuts the episodes of an environment without a time limit, and says so when it does."""

    def __init__(self, env: Env, option: str) -> None:
        """Wrap an environment that `option` named."""
        super().__init__(env)
        self.option, self.num_steps = option, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start to count."""
        self.num_steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and truncate the episode that has become too long."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.num_steps += 1
        if self.num_steps == LONGEST_EPISODE and not (terminated or truncated):
            truncated = True
            text = "cut an episode that had not ended: set env.max_episode_steps"
            warnings.warn(f"{self.option}: after {LONGEST_EPISODE:,} steps {text}", stacklevel=2)
        return observation, reward, terminated, truncated, info


def env_shape(env: Env) -> EnvShape:
    """Return the sizes of an environment made by `make_env`."""
    assert isinstance(env.action_space, spaces.Discrete)
    observation_dim = spaces.flatdim(network_space(env.observation_space))
    num_players = int(env.metadata.get("num_players", 1))
    return EnvShape(observation_dim, int(env.action_space.n), time_limit(env), num_players)


def _check_spaces(env: Env, option: str) -> None:
    """Raise UserError where the networks cannot take the environment's spaces."""
    if not isinstance(env.action_space, spaces.Discrete):
        raise UserError(f"{option}: the action space is {env.action_space}, but must be Discrete")
    for space in _leaves(network_space(env.observation_space)):
        if not isinstance(space, _VECTOR_SPACES):
            raise UserError(f"{option}: observations in {space} cannot be made a vector")
        if isinstance(space, spaces.Box) and len(space.shape) > 1:
            is_all = space is network_space(env.observation_space)
            wrapper = "=[gymnasium.wrappers:FlattenObservation] makes" if is_all else " can make"
            raise UserError(
                f"{option}: observations of shape {space.shape} are images, but must be vectors "
                f"(env.wrappers{wrapper} them such: docs/environments.md)"
            )


def _leaves(space: Any) -> Iterator[Any]:
    """Yield the spaces that a space is made of."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.values() if isinstance(space, spaces.Dict) else space
        for part in parts:
            yield from _leaves(part)
    else:
        yield space
