"""Whom the agent is evaluated against in games of two players, by name."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from lightzero_lite.envs.entry_point import load
from lightzero_lite.envs.games.alpha_beta import alpha_beta
from lightzero_lite.envs.games.connect_four import ConnectFour
from lightzero_lite.envs.games.minimax import perfect
from lightzero_lite.envs.games.tic_tac_toe import TicTacToe
from lightzero_lite.types import BoolArray, Opponent, UserError


def random_player(game: Any, legal_actions: BoolArray, rng: np.random.Generator) -> int:
    """Return a legal action, drawn uniformly."""
    return int(rng.choice(np.flatnonzero(legal_actions)))


def find_opponent(name: str, game: gymnasium.Env[Any, Any]) -> Opponent:
    """Return the opponent of a game that one entry of env.opponents names.

    Args:
        name: "random", "package.module:function" (any game), "perfect" (tic-tac-toe) or
            "alpha_beta_N" (connect four, N plies deep).
        game: The environment without its wrappers.

    Raises:
        UserError: There is no such opponent for this game.
    """
    known = ["random", "your own package.module:function"]
    if name == "random":
        return random_player
    if isinstance(game, TicTacToe):
        known.append("perfect")
        if name == "perfect":
            return perfect
    if isinstance(game, ConnectFour):
        known.append("alpha_beta_N (N plies deep)")
        if match := re.fullmatch(r"alpha_beta_([1-9]\d?)", name):
            return partial(alpha_beta, depth=int(match[1]))
    if ":" in name:
        return load(name, f"env.opponents=[{name}]")
    raise UserError(
        f"env.opponents: {type(game).__name__} knows no player {name}: choose of {', '.join(known)}"
    )
