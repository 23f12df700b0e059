"""Tic-tac-toe as a Gymnasium environment of two players."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lightzero_lite.envs.games.pictures import rendered

ALL_CELLS = 0b111_111_111
LINES = (
    *(0b000_000_111, 0b000_111_000, 0b111_000_000),
    *(0b001_001_001, 0b010_010_010, 0b100_100_100),
    *(0b100_010_001, 0b001_010_100),
)
_CELLS = np.arange(9)


def has_line(stones: int) -> bool:
    """Return whether one player's stones, a bit a cell, fill a line."""
    return any(stones & line == line for line in LINES)


def legal_cells(own: int, other: int) -> list[int]:
    """Return the empty cells."""
    return [cell for cell in range(9) if not (own | other) >> cell & 1]


class TicTacToe(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Two players take turns; the first with three stones in a line wins.

    Every step is a move of the player whose turn it is, and everything is seen from his side.

    Action: Discrete(9), the cell to take, 0 to 8 in reading order.

    Observation: Box(0, 1, (18,), float32), whose turn it is: his stones in cells 0 to 8, then the
    other player's.

    Reward: 1 to the player who just moved, if that wins; else 0. The loser never moves last, so
    there is no -1.

    Start: an empty board; the seed changes nothing.

    End: terminated when a line is full or the board is. At most 9 moves.

    Info: `action_mask`, int8 `[9]`, 1 for empty cells. A taken cell raises ValueError.

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
        self.observation_space = spaces.Box(0, 1, (18,), np.float32)
        self.action_space = spaces.Discrete(9)
        self.own, self.other = 0, 0  # bit i: a stone in cell i, of the player to move or the other

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
        """Take a cell, and pass the turn to the other player."""
        if action not in legal_cells(self.own, self.other):
            raise ValueError(f"cell {action} is taken or is no cell")
        moved = self.own | 1 << int(action)
        has_won = has_line(moved)
        self.own, self.other = self.other, moved
        is_over = has_won or self.own | self.other == ALL_CELLS
        return self._observation(), float(has_won), is_over, False, self._info()

    def render(self) -> Any:
        """Return the board as text or as a picture, the first player's stones X or red."""
        own, other = (self._cells(stones).reshape(3, 3) for stones in (self.own, self.other))
        return rendered(own, other, self.render_mode)

    def _observation(self) -> NDArray[np.float32]:
        cells = [self._cells(self.own), self._cells(self.other)]
        return np.concatenate(cells).astype(np.float32)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": 1 - self._cells(self.own | self.other).astype(np.int8)}

    def _cells(self, stones: int) -> NDArray[np.int64]:
        """Return `[9]`, 1 where a stone stands."""
        return stones >> _CELLS & 1
