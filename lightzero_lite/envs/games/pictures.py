"""A board of stones as text and as a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

CELL = 64  # pixels a side
STONE = 26  # pixels of a stone's radius
MARKS = ".XO"  # empty, first player's, second player's
COLOURS = np.array([[236, 236, 236], [200, 60, 50], [40, 90, 190]], np.uint8)
BOARD = np.array([90, 100, 110], np.uint8)


def rendered(own: NDArray[np.int64], other: NDArray[np.int64], render_mode: str | None) -> Any:
    """Return a board as `board_picture`, or else as `board_text`.

    Args:
        own: `[rows, columns]`, 1 where a stone of the player to move stands.
        other: The same of the other player, who has as many stones or, as the first player, one
            more.
        render_mode: "rgb_array" for a picture.
    """
    stones = own + 2 * other
    if own.sum() != other.sum():  # the second player's turn
        stones = np.where(stones > 0, 3 - stones, 0)
    board = stones.astype(np.int8)
    return board_picture(board) if render_mode == "rgb_array" else board_text(board)


def board_text(stones: NDArray[np.int8]) -> str:
    """Return a line for each row of the board: X the first player's stones, O the second's.

    Args:
        stones: `[rows, columns]`, 0 empty, 1 the first player's, 2 the second's.
    """
    return "\n".join("".join(MARKS[stone] for stone in row) for row in stones)


def board_picture(stones: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Return a picture `[rows * CELL, columns * CELL, 3]`: red disks are the first player's.

    Args:
        stones: as for `board_text`.
    """
    offsets = np.arange(CELL) - (CELL - 1) / 2
    is_disk = offsets[:, None] ** 2 + offsets[None, :] ** 2 <= STONE**2
    rows, columns = stones.shape
    picture = np.tile(np.where(is_disk[..., None], 0, BOARD).astype(np.uint8), (rows, columns, 1))
    colours = np.kron(stones, np.ones((CELL, CELL), np.int8))
    is_inside = np.tile(is_disk, (rows, columns))
    picture[is_inside] = COLOURS[colours[is_inside]]
    return picture
