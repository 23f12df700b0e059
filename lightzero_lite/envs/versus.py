"""A game of two players as one player sees it: the opponent moves inside reset and step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from lightzero_lite.envs.action_masks import find_mask, has_mask, legal_actions
from lightzero_lite.types import Opponent, ResetOptions


def start_options(number: int, num_games: int) -> ResetOptions:
    """Return the options of `Versus.reset` for a game of an evaluation.

    Args:
        number: Its place among the evaluation's games, over all ranks.
        num_games: Games against each opponent, an even number: opponent after opponent, the seats
            in turn.
    """
    return {"opponent": number // num_games, "seat": number % 2}


class Versus(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The agent against one of several opponents, from either seat; it sees its own moves only.

    The reward is the agent's: what its own moves earn, less what the opponent's do. An opponent
    draws from the environment's generator, so that the seed of reset fixes the game.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], opponents: Sequence[Opponent]) -> None:
        """Wrap an environment of two players who alternate."""
        super().__init__(env)
        self.opponents, self.opponent = opponents, opponents[0]
        self.has_mask = has_mask(env.observation_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start a game.

        Args:
            seed: Fixes all that is random in the game and in the opponent.
            options: "opponent", its place among the opponents (default 0), and "seat": 0, the agent
                moves first (the default), or 1.
        """
        chosen = options or {}
        self.opponent = self.opponents[chosen.get("opponent", 0)]
        observation, info = self.env.reset(seed=seed)
        if chosen.get("seat", 0) == 1:
            observation, _, terminated, truncated, info = self._opponents_move(observation, info)
            is_over = terminated or truncated
            assert not is_over, "the game ended before the second player moved"
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make the agent's move, and unless that ends the game the opponent's."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        earned = float(np.asarray(reward).item())
        if not (terminated or truncated):
            observation, reward, terminated, truncated, info = self._opponents_move(
                observation, info
            )
            earned -= float(np.asarray(reward).item())
        return observation, earned, terminated, truncated, info

    def _opponents_move(
        self, observation: Any, info: dict[str, Any]
    ) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        space = self.env.action_space
        assert isinstance(space, spaces.Discrete)
        mask = find_mask(observation, info, is_in_observation=self.has_mask)
        legal = legal_actions(
            mask, int(space.n), must_act=True, option=type(self.unwrapped).__name__
        )
        action = self.opponent(self.env.unwrapped, legal, self.env.unwrapped.np_random)
        return self.env.step(action + space.start)
