"""A search tree as a picture: visits as the width of an edge, values as the colour of a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lightzero_lite.search.tree import NO_PARENT, ROOT, RecordArray, TreeCache
from lightzero_lite.types import SearchOutput, UserError

MOST_NODES = 60  # of more, the least visited are left out
CHOSEN, EDGE, INK = "#d55e00", "#8a8a8a", "#222222"


class SearchTree(NamedTuple):
    """The tree of one search."""

    nodes: RecordArray  # [N] of tree.NODE; node 0 is the root
    action: int  # that the search chose
    discount: float  # negative: players alternate


class Place(NamedTuple):
    """Where a node stands."""

    x: float  # in widths of a leaf
    depth: int  # edges from the root


def kept_tree(trees: TreeCache, output: SearchOutput, discount: float) -> SearchTree:
    """Copy the tree of a search of one root from where that search kept it."""
    num_simulations, num_actions = int(output.visit_counts.sum()), output.visit_counts.shape[1]
    tree = trees.get(1, num_simulations, num_actions)
    return SearchTree(tree.nodes[0].copy(), int(output.action[0]), discount)


def shown_nodes(tree: SearchTree, most: int = MOST_NODES) -> list[int]:
    """Return the most visited nodes; a node's parent is always among them."""
    # A parent has more visits than its children, so that no order by visits separates them.
    order = np.argsort(-tree.nodes["visits"], kind="stable")
    return sorted(order[:most].tolist())


def places(tree: SearchTree, shown: list[int]) -> dict[int, Place]:
    """Return where each node stands: leaves side by side, a parent midway above its children."""
    children: dict[int, list[int]] = {node: [] for node in shown}
    for node in shown:
        if tree.nodes[node]["parent"] != NO_PARENT:
            children[int(tree.nodes[node]["parent"])].append(node)
    found: dict[int, Place] = {}
    num_leaves = 0

    def place(node: int, depth: int) -> float:
        nonlocal num_leaves
        below = sorted(children[node], key=lambda child: int(tree.nodes[child]["action"]))
        if below:
            xs = [place(child, depth + 1) for child in below]
            x = (xs[0] + xs[-1]) / 2
        else:
            x, num_leaves = float(num_leaves), num_leaves + 1
        found[node] = Place(x, depth)
        return x

    place(ROOT, 0)
    return found


def values(tree: SearchTree, where: dict[int, Place]) -> dict[int, float]:
    """Return the value of each node, as the player to move at the root sees it."""
    sign = -1.0 if tree.discount < 0 else 1.0
    return {n: sign**place.depth * float(tree.nodes[n]["value"]) for n, place in where.items()}


def draw_tree(tree: SearchTree, out: Path, title: str) -> None:
    """Write a picture of a tree; the suffix of `out` says of which kind.

    Raises:
        UserError: matplotlib is not installed, or knows no such kind of picture.
    """
    try:
        from matplotlib import colormaps, colors
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.cm import ScalarMappable
        from matplotlib.figure import Figure
    except ModuleNotFoundError as missing:
        raise UserError(
            f"{missing.name} is not installed: pip install 'lightzero-lite[viz]'"
        ) from None
    shown = shown_nodes(tree)
    where = places(tree, shown)
    value = values(tree, where)
    scale = ScalarMappable(
        colors.Normalize(min(value.values()), max(value.values())), colormaps["viridis"]
    )
    width = max(6.5, 0.62 * (1 + max(p.x for p in where.values())) + 1.6)
    height = max(3.5, 0.78 * (1 + max(p.depth for p in where.values())) + 1.1)
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for node in shown:
        _draw_edge(axes, tree, where, node)
    for node in shown:
        _draw_node(axes, tree, where[node], value[node], node, scale)
    axes.invert_yaxis()
    axes.margins(0.06)
    axes.axis("off")
    hidden = len(tree.nodes) - len(shown)
    note = f"; {hidden} nodes with fewest visits are not drawn" if hidden else ""
    axes.set_title(title, fontsize=11, loc="left")
    figure.supxlabel(
        f"In a node: value, visits. On an edge: action; as wide as its visits{note}.",
        fontsize=8, color="#555555", x=0.02, ha="left",
    )  # fmt: skip
    bar = figure.colorbar(scale, ax=axes, shrink=0.6, aspect=30, pad=0.01)
    bar.set_label("value, seen from the root", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


def _draw_edge(axes: Any, tree: SearchTree, where: dict[int, Place], node: int) -> None:
    """Draw the edge that leads to a node."""
    record = tree.nodes[node]
    if record["parent"] == NO_PARENT:
        return
    above, below = where[int(record["parent"])], where[node]
    is_chosen = record["parent"] == ROOT and record["action"] == tree.action
    colour = CHOSEN if is_chosen else EDGE
    share = record["visits"] / tree.nodes[ROOT]["visits"]
    axes.plot(
        [above.x, below.x], [above.depth, below.depth],
        color=colour, linewidth=0.8 + 9 * share, solid_capstyle="round", zorder=1,
    )  # fmt: skip
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
    x, y = (above.x + below.x) / 2, (above.depth + below.depth) / 2
    axes.text(
        x, y, str(record["action"]), color=colour, fontsize=7, ha="center", va="center", bbox=box
    )


def _draw_node(
    axes: Any, tree: SearchTree, place: Place, value: float, node: int, scale: Any
) -> None:
    """Draw a node with its value and visits."""
    colour = scale.to_rgba(value)
    is_dark = np.dot(colour[:3], (0.299, 0.587, 0.114)) < 0.55
    axes.scatter(place.x, place.depth, s=560, color=[colour], edgecolors="white", zorder=2)
    decimals = max(0, 2 - len(f"{abs(value):.0f}") // 2)
    text = f"{value:.{decimals}f}\n{tree.nodes[node]['visits']}"
    ink = "white" if is_dark else INK
    axes.text(
        place.x, place.depth, text, color=ink, fontsize=6.5, ha="center", va="center", zorder=3
    )
