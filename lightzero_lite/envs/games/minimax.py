"""The perfect player of tic-tac-toe."""

from __future__ import annotations

from functools import cache

import numpy as np

from lightzero_lite.envs.games.tic_tac_toe import ALL_CELLS, TicTacToe, has_line, legal_cells
from lightzero_lite.types import BoolArray


@cache
def value(own: int, other: int) -> int:
    """Return what a position is worth to the player to move: 1 won, 0 drawn, -1 lost.

    Args:
        own: His stones, a bit a cell.
        other: The other player's, who moved last.
    """
    if has_line(other):
        return -1
    if own | other == ALL_CELLS:
        return 0
    return max(-value(other, own | 1 << cell) for cell in legal_cells(own, other))


def optimal_cells(own: int, other: int) -> list[int]:
    """Return every move that keeps what the position is worth."""
    best = value(own, other)
    cells = legal_cells(own, other)
    return [cell for cell in cells if -value(other, own | 1 << cell) == best]


def perfect(game: TicTacToe, legal_actions: BoolArray, rng: np.random.Generator) -> int:
    """Return an optimal move, drawn uniformly from all of them."""
    return int(rng.choice(optimal_cells(game.own, game.other)))
