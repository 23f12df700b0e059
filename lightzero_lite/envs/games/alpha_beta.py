"""A player of connect four who looks some moves ahead and knows nothing of what comes after."""

from __future__ import annotations

import numpy as np

from lightzero_lite.envs.games.connect_four import COLUMNS, ConnectFour, dropped, has_four
from lightzero_lite.types import BoolArray

BOUND = 1000  # more than any value
_CENTRE_FIRST = (3, 2, 4, 1, 5, 0, 6)  # good moves early make more cuts


def value(own: int, other: int, depth: int, low: int = -BOUND, high: int = BOUND) -> int:
    """Return what a position is worth to the player to move, exact between low and high.

    A win that comes with d plies left to look ahead counts d, so a sooner one counts more; a loss
    counts -d. Where the look-ahead ends, and at a draw, it is 0.

    Args:
        own: His stones, as in `connect_four`.
        other: The other player's.
        depth: Plies to look ahead.
        low: He has a move worth this elsewhere: less need not be told apart.
        high: The other player will not let him have more.
    """
    values = []
    for column in _CENTRE_FIRST if depth > 0 else ():
        worth = move_value(own, other, column, depth, low, high)
        if worth is None:
            continue
        values.append(worth)
        low = max(low, worth)
        if low >= high:
            break
    return max(values, default=0)


def move_value(
    own: int, other: int, column: int, depth: int, low: int = -BOUND, high: int = BOUND
) -> int | None:
    """Return what a move is worth to the player who makes it; None where the column is full.

    Args: as for `value`; the move itself is the first of at least one ply.
    """
    stone = dropped(own | other, column)
    if stone == 0:
        return None
    if has_four(own | stone):
        return depth
    return -value(other, own | stone, depth - 1, -high, -low)


def alpha_beta(
    game: ConnectFour, legal_actions: BoolArray, rng: np.random.Generator, *, depth: int
) -> int:
    """Return a move of the highest value, drawn uniformly from all of them."""
    worth = {column: move_value(game.own, game.other, column, depth) for column in range(COLUMNS)}
    values = {column: one for column, one in worth.items() if one is not None}
    best = max(values.values())
    return int(rng.choice([column for column, one in values.items() if one == best]))
