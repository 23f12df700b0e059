"""Environments that draw themselves, off screen."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import error
from numpy.typing import NDArray
from PIL import Image

from lightzero_lite.config import EnvConfig
from lightzero_lite.envs.factory import make_env
from lightzero_lite.envs.vector import VectorEnv
from lightzero_lite.types import UserError

Picture = NDArray[np.uint8]  # [H, W, 3]

_WIDTH, _HEIGHT = 360, 270  # pixels of a picture at most
_MODE = "rgb_array"
_DEFAULT_FPS = 4.0  # of environments that name no speed: what has no speed is a game


class RenderedEnv:
    """One environment that can be drawn, in a VectorEnv of its own."""

    def __init__(self, config: EnvConfig) -> None:
        """Construct the environment.

        Raises:
            UserError: It does not draw itself as an array of pixels.
        """
        # Classic control and the toy games draw by pygame, which must not look for a screen.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        self.option = config.option
        plain = make_env(config)
        modes = [str(mode) for mode in plain.metadata.get("render_modes", [])]
        self.fps = float(plain.metadata.get("render_fps") or _DEFAULT_FPS)
        plain.close()
        if _MODE not in modes:
            raise self._refusal(f"it renders {', '.join(modes) or 'nothing'}, not {_MODE}")
        keywords = {**config.kwargs, "render_mode": _MODE}
        self.envs = VectorEnv(replace(config, kwargs=keywords, vectorization="sync"), 1)

    def picture(self) -> Picture:
        """Draw the current state, at most 360 x 270 pixels.

        Raises:
            UserError: A package is missing, or what comes is no picture.
        """
        try:
            drawn: Any = self.envs.envs[0].render()
        except error.DependencyNotInstalled as failure:
            raise self._refusal(
                f"{' '.join(str(failure).split())}; or pip install 'lightzero-lite[viz]'"
            ) from None
        picture = np.asarray(drawn)
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
            raise self._refusal(f"a picture has shape {picture.shape} and type {picture.dtype}")
        return _fitted(picture)

    def close(self) -> None:
        """Close the environment."""
        self.envs.close()

    def _refusal(self, reason: str) -> UserError:
        return UserError(f"{self.option} cannot be watched: {reason}")


def _fitted(picture: Picture) -> Picture:
    """Return a picture scaled to the size of all; small ones grow by whole factors."""
    height, width, _ = picture.shape
    factor = min(_WIDTH / width, _HEIGHT / height)
    factor = factor if factor < 1 else math.floor(factor)
    if factor == 1:
        return picture.copy()
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    method = Image.Resampling.NEAREST if factor > 1 else Image.Resampling.LANCZOS
    return np.asarray(Image.fromarray(picture).resize(size, method))
