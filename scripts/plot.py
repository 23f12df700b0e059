"""Draw learning curves of one or many runs: returns, losses, buffer and speed, as PNG and SVG.

    python scripts/plot.py cartpole_muzero_seed0
    python scripts/plot.py cartpole_muzero_seed* --out cartpole

Runs whose options differ in the seed alone share a colour: a thin line each, with a dot where it
ends, a thick one for their mean, a band of one standard deviation around it. A run that has ended
counts on with its last value. A folder that holds run folders stands for all of them. Needs the
extra viz (matplotlib).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.run_reader import PANELS, Panel, Run, read_run, run_folders
from lightzero_lite.runtime.user_errors import one_line_errors
from lightzero_lite.types import UserError

FloatArray = NDArray[np.float64]
GRID_POINTS = 400
# Colours that readers with any colour vision tell apart (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#5a5a5a"


def grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Group runs that differ in the seed alone, each group under what sets it apart."""
    recipes = list(dict.fromkeys(run.recipe for run in runs))
    groups = {}
    for recipe in recipes:
        differing = [
            f"{key.rpartition('.')[2]} {value}".replace("'", "")
            for key, value in recipe
            if any(dict(other).get(key) != value for other in recipes)
        ]
        members = [run for run in runs if run.recipe == recipe]
        options = members[0].options
        common = f"{options.get('env.env_id', members[0].folder)}, {options.get('policy.type', '')}"
        label = ", ".join(differing[:4]) + (", ..." if len(differing) > 4 else "")
        num_seeds = f"{len(members)} seeds" if len(members) > 1 else "1 run"
        label = f"{label or common.rstrip(', ')} ({num_seeds})"
        groups[f"{label} {len(groups) + 1}" if label in groups else label] = members
    return groups


def mean_and_spread(
    curves: Sequence[tuple[FloatArray, FloatArray]],
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return a common grid, the mean of curves there, and their standard deviation.

    Args:
        curves: (x, y) of each run; before its first and after its last point it stays level.
    """
    first, last = min(x[0] for x, _ in curves), max(x[-1] for x, _ in curves)
    grid = np.linspace(first, last, GRID_POINTS)
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    return grid, values.mean(0), values.std(0)


def draw_panel(axes: Any, panel: Panel, groups: dict[str, list[Run]]) -> None:
    """Draw one scalar of all groups; `axes` are matplotlib's."""
    for (label, runs), colour in zip(groups.items(), _colours(len(groups)), strict=True):
        found = [run.curves[panel.tag] for run in runs if panel.tag in run.curves]
        curves = [(c.seconds if panel.is_over_seconds else c.envsteps, c.values) for c in found]
        if not curves:
            continue
        if len(curves) == 1:
            axes.plot(*curves[0], color=colour, linewidth=1.8, label=label)
            continue
        for x, y in curves:
            axes.plot(x, y, color=colour, linewidth=0.7, alpha=0.45)
            axes.plot(x[-1], y[-1], color=colour, marker="o", markersize=2.5, alpha=0.7)
        grid, mean, deviation = mean_and_spread(curves)
        axes.fill_between(
            grid, mean - deviation, mean + deviation, color=colour, alpha=0.15, linewidth=0
        )
        axes.plot(grid, mean, color=colour, linewidth=2.0, label=label)
    axes.set_title(panel.title, loc="left", fontsize=10, fontweight="bold")
    axes.set_xlabel("seconds" if panel.is_over_seconds else "env steps", color=GREY)
    axes.set_ylabel(panel.unit, color=GREY)
    axes.set_xlim(left=0)
    axes.grid(color="#e6e6e6", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=GREY, labelsize=8)
    axes.xaxis.set_major_formatter(_short)
    axes.yaxis.set_major_formatter(_short)


def _colours(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _short(value: float, _position: int) -> str:
    """Write a tick's number briefly: 20k, 1.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def draw(runs: Sequence[Run], out: Path) -> list[Path]:
    """Draw all panels and write PNG and SVG; return their paths.

    Raises:
        UserError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as missing:
        raise UserError(
            f"{missing.name} is not installed: pip install 'lightzero-lite[viz]'"
        ) from None
    groups = grouped(runs)
    num_columns = 3
    num_rows = math.ceil(len(PANELS) / num_columns)
    figure = Figure(figsize=(4.2 * num_columns, 2.9 * num_rows + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(num_rows, num_columns, squeeze=False)
    for axes, panel in zip(grid.flat, PANELS, strict=True):
        draw_panel(axes, panel, groups)
    for axes in grid[0]:
        _mark_goals(axes, runs)
    handles, labels = grid[0][0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper left", frameon=False)
    paths = [out.with_name(f"{out.name}.{suffix}") for suffix in ("png", "svg")]
    out.parent.mkdir(parents=True, exist_ok=True)
    for path in paths:
        figure.savefig(path, dpi=130)
    return paths


def _mark_goals(axes: Any, runs: Sequence[Run]) -> None:
    """Draw the returns at which training ends."""
    goals = {run.options.get("env.stop_value") for run in runs} - {None}
    for goal in sorted(goals):
        axes.axhline(goal, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)))
        place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        text = f"stop_value {goal:g}"
        axes.annotate(text, (1, goal), (0, -9), ha="right", fontsize=7, color=GREY, **place)


def main() -> None:
    """Draw the runs that the command line names; exit 2 where it cannot be done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+", help="run folders, or what holds some")
    parser.add_argument(
        "--out", type=Path, default=Path("curves"), help="pictures without suffix (curves)"
    )
    arguments = parser.parse_args()
    with one_line_errors(Ranks()):
        runs = [read_run(folder) for folder in run_folders(arguments.folders)]
        for path in draw(runs, arguments.out):
            print(path)


if __name__ == "__main__":
    main()
