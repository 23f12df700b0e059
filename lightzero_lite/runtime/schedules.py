"""Schedules as pure functions of the training iteration: a resumed run needs no schedule state."""

from __future__ import annotations

import math
from typing import Literal


def linear(start: float, end: float, progress: float) -> float:
    """Return the value on the line from start (progress 0) to end (progress 1 and beyond)."""
    return start + (end - start) * min(max(progress, 0.0), 1.0)


def learning_rate_factor(
    kind: Literal["constant", "linear", "cosine"], final_factor: float, progress: float
) -> float:
    """Return the factor of the learning rate, from 1 (progress 0) to final_factor (progress 1)."""
    if kind == "constant":
        return 1.0
    if kind == "linear":
        return linear(1.0, final_factor, progress)
    bend = 0.5 * (1.0 + math.cos(math.pi * min(max(progress, 0.0), 1.0)))
    return final_factor + (1.0 - final_factor) * bend
