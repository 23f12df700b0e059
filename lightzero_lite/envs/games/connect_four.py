"""Connect four as a Gymnasium environment of two players.

A player's stones are the bits of an integer. Column c has bits 7 c to 7 c + 6 from the bottom up;
the seventh stays 0, so that no line runs from the top of one column into the next.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lightzero_lite.envs.games.pictures import rendered

ROWS, COLUMNS = 6, 7
# Bit of each cell, the top row first.
_BITS = np.arange(ROWS)[::-1, None] + 7 * np.arange(COLUMNS)


def has_four(stones: int) -> bool:
    """Return whether one player's stones have four in a row."""
    for step in (1, 7, 6, 8):  # up, right, down right, up right
        pairs = stones & (stones >> step)
        if pairs & (pairs >> 2 * step):
            return True
    return False


def dropped(all_stones: int, column: int) -> int:
    """Return the bit where a stone comes to rest; 0 if the column is full."""
    bottom = 1 << 7 * column
    return (all_stones + bottom) & ~all_stones & ((bottom << ROWS) - bottom)


class ConnectFour(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Two players drop stones into seven columns; the first with four in a row wins.

    Every step is a move of the player whose turn it is, and everything is seen from his side.

    Action: Discrete(7), the column, from the left.

    Observation: Box(0, 1, (84,), float32), whose turn it is: his stones on 6 rows of 7, the top row
    first, then the other player's.

    Reward: 1 to the player who just moved, if that wins; else 0. The loser never moves last, so
    there is no -1.

    Start: an empty board; the seed changes nothing.

    End: terminated at four in a row (across, up or diagonal) or when the board is full. At most 42
    moves.

    Info: `action_mask`, int8 `[7]`, 1 for columns with room. A full column raises ValueError.

    Two players: `metadata["num_players"]` is 2.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as Gymnasium declares it
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 2,
        "num_players": 2,
    }

    def __init__(self, render_mode: str | None = None) -> None:
        """Make an empty board; render_mode is "ansi" (text), "rgb_array" (a picture) or None."""
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0, 1, (2 * ROWS * COLUMNS,), np.float32)
        self.action_space = spaces.Discrete(COLUMNS)
        self.own, self.other = 0, 0  # the stones of the player to move, and of the other

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Empty the board."""
        super().reset(seed=seed)
        self.own, self.other = 0, 0
        return self._observation(), self._info()

    def step(
        self, action: int | np.integer[Any]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Drop a stone, and pass the turn to the other player."""
        is_column = 0 <= action < COLUMNS
        stone = dropped(self.own | self.other, int(action)) if is_column else 0
        if stone == 0:
            raise ValueError(f"column {action} is full or is no column")
        moved = self.own | stone
        has_won = has_four(moved)
        self.own, self.other = self.other, moved
        info = self._info()
        is_over = has_won or not info["action_mask"].any()
        return self._observation(), float(has_won), is_over, False, info

    def render(self) -> Any:
        """Return the board as text or as a picture, the first player's stones X or red."""
        return rendered(self._cells(self.own), self._cells(self.other), self.render_mode)

    def _observation(self) -> NDArray[np.float32]:
        cells = np.stack([self._cells(self.own), self._cells(self.other)])
        return cells.reshape(-1).astype(np.float32)

    def _info(self) -> dict[str, Any]:
        top_row = self._cells(self.own | self.other)[0]
        return {"action_mask": 1 - top_row.astype(np.int8)}

    def _cells(self, stones: int) -> NDArray[np.int64]:
        """Return `[6, 7]`, 1 where a stone stands, the top row first."""
        return stones >> _BITS & 1
