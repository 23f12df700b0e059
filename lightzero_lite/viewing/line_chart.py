"""A curve as a piece of SVG for a page: no picture library, and the page's own colours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 30, 36  # margins around the plot
MOST_POINTS = 400


def line_chart(
    x: FloatArray, y: FloatArray, *, title: str, x_label: str, y_label: str, goal: float | None
) -> str:
    """Draw y over x as an <svg> element.

    Strokes and texts have the classes axis, grid, curve, goal, title and label, which a style sheet
    gives their colours.

    Args:
        x: [N], rising.
        y: [N]; points that are not finite are left out.
        title: What is shown.
        x_label: Unit of x.
        y_label: Unit of y.
        goal: A value to mark by a line; None: none.
    """
    finite = np.isfinite(y)
    x, y = x[finite], y[finite]
    levels = y if goal is None else np.append(y, goal)
    left, right = _range(np.append(x, 0.0))
    low, high = _range(levels)
    across = (WIDTH - LEFT - RIGHT) / (right - left)
    up = (HEIGHT - TOP - BOTTOM) / (high - low)

    def place(a: float, b: float) -> tuple[float, float]:
        return LEFT + (a - left) * across, HEIGHT - BOTTOM - (b - low) * up

    name = escape(title, quote=True)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">']
    parts += _texts(name, escape(x_label), escape(y_label))
    for tick in ticks(low, high):
        _, height = place(left, tick)
        parts += [_line("grid", LEFT, height, WIDTH - RIGHT, height)]
        parts += [_text("label", LEFT - 6, height + 3.5, short(tick), "end")]
    for tick in ticks(left, right):
        along, _ = place(tick, low)
        parts += [_text("label", along, HEIGHT - BOTTOM + 15, short(tick), "middle")]
    parts += [_line("axis", LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM)]
    if goal is not None:
        _, height = place(left, goal)
        parts += [_line("goal", LEFT, height, WIDTH - RIGHT, height)]
    every = max(1, math.ceil(len(x) / MOST_POINTS))
    chosen = sorted({*range(0, len(x), every), len(x) - 1}) if len(x) else []
    points = [place(float(x[i]), float(y[i])) for i in chosen]
    if points:
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts += [f'<polyline class="curve" points="{path}" />']
        parts += [f'<circle class="end" cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="3" />']
    return "".join([*parts, "</svg>"])


def ticks(low: float, high: float) -> list[float]:
    """Return 3 to 7 round numbers from low to high: steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10((high - low) / 3))
    step = next(m * power for m in (5, 2, 1) if (high - low) / (m * power) >= 3)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def short(value: float) -> str:
    """Write a number briefly: 20k, 1.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def _range(values: FloatArray) -> tuple[float, float]:
    """Return the least and the greatest value, apart from each other even where they are one."""
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    slack = 0.0 if high > low else max(abs(high), 1.0) / 2
    return low - slack, high + slack


def _texts(title: str, x_label: str, y_label: str) -> Iterator[str]:
    yield _text("title", 6, 16, title, "start")
    yield _text("label", WIDTH - RIGHT, 16, y_label, "end")
    yield _text("label", WIDTH - RIGHT, HEIGHT - 5, x_label, "end")


def _text(kind: str, x: float, y: float, text: str, anchor: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" />'
