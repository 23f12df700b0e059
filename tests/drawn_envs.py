"""Environments that draw themselves in a way that a test can read."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import error

from tests.fake_envs import Counter, Masked

NUM_STEPS = 11


class Drawn(Counter):
    """A counter whose picture has a red that says how far it is."""

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self, *, render_mode: str | None = None, flaw: str | None = None, **options: Any
    ) -> None:
        """Configure the counter; flaw "package": a package is missing, "flat": no colours."""
        super().__init__(min_length=NUM_STEPS, max_length=NUM_STEPS, **options)
        self.render_mode, self.flaw = render_mode, flaw

    def render(self) -> Any:
        """Paint 40 x 30 pixels."""
        if self.flaw == "package":
            raise error.DependencyNotInstalled("painter is not installed")
        assert self.render_mode == "rgb_array"
        picture = np.full((30, 40, 3), (20 * self.count, 0, 200), np.uint8)
        return picture[:, :, 0] if self.flaw == "flat" else picture


class DrawnMasked(Masked):
    """A masked counter whose picture is black."""

    metadata = Drawn.metadata

    def __init__(self, *, render_mode: str | None = None) -> None:
        """Configure the counter."""
        super().__init__(min_length=NUM_STEPS, max_length=NUM_STEPS)

    def render(self) -> Any:
        """Paint 40 x 30 pixels."""
        return np.zeros((30, 40, 3), np.uint8)


gymnasium.register("DrawnMasked-v0", entry_point=DrawnMasked)
gymnasium.register("Drawn-v0", entry_point=Drawn, kwargs={"reward": "action"})
gymnasium.register("DrawnWithout-v0", entry_point=Drawn, kwargs={"flaw": "package"})
gymnasium.register("DrawnFlat-v0", entry_point=Drawn, kwargs={"flaw": "flat"})
