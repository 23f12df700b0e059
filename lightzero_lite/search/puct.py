"""MuZero's selection: PUCT over normalised q values."""

from __future__ import annotations

import functools

import numpy as np

from lightzero_lite.search.tree import (
    ILLEGAL,
    ROOT,
    UNVISITED,
    Float64Array,
    grow,
    kernel,
)
from lightzero_lite.types import Float32Array, Int32Array

EPSILON = 1e-8  # smallest range of q values that is still stretched to [0, 1]


@functools.lru_cache(maxsize=64)
def exploration_table(num_simulations: int, pb_c_init: float, pb_c_base: float) -> Float64Array:
    """Return sqrt(n) * (pb_c_init + log((n + pb_c_base + 1) / pb_c_base)) for n = 0 .. N."""
    parent_visits = np.arange(num_simulations + 2, dtype=np.float64)
    log_term = np.log((parent_visits + pb_c_base + 1.0) / pb_c_base)
    return np.sqrt(parent_visits) * (pb_c_init + log_term)


@kernel
def _tree_range(root: int, last_node: int, qvalues: Float64Array) -> tuple[float, float]:
    """Return the least and the greatest q of all visited edges of one tree."""
    low = np.inf
    high = -np.inf
    for node in range(ROOT + 1, last_node + 1):
        low = min(low, qvalues[root, node])
        high = max(high, qvalues[root, node])
    return low, high


@kernel
def _sibling_range(
    root: int, node: int, values: Float64Array, qvalues: Float64Array, children: Int32Array
) -> tuple[float, float]:
    """Return the least and the greatest of a node's value and its visited actions' q."""
    low = high = values[root, node]
    for action in range(children.shape[2]):
        child = children[root, node, action]
        if child > ROOT:
            low = min(low, qvalues[root, child])
            high = max(high, qvalues[root, child])
    return low, high


@kernel
def _select_action(
    root: int,
    node: int,
    low: float,
    high: float,
    visits: Int32Array,
    qvalues: Float64Array,
    children: Int32Array,
    priors: Float64Array,
    exploration: Float64Array,
) -> int:
    """Return the action of the greatest PUCT score, the lowest index on a tie."""
    q_range = max(high - low, EPSILON)
    scale = exploration[visits[root, node]]
    best_action = -1
    best_score = -np.inf
    for action in range(children.shape[2]):
        child = children[root, node, action]
        if child == ILLEGAL:
            continue
        score = scale * priors[root, node, action]
        if child != UNVISITED:
            score = score / (1 + visits[root, child]) + (qvalues[root, child] - low) / q_range
        # The first legal action stands even against NaN, which no comparison prefers.
        if best_action < 0 or score > best_score:
            best_action = action
            best_score = score
    return best_action


@kernel
def _select_leaf(
    root: int,
    last_node: int,
    is_tree_range: bool,
    visits: Int32Array,
    values: Float64Array,
    qvalues: Float64Array,
    children: Int32Array,
    priors: Float64Array,
    leaf_parent: Int32Array,
    leaf_action: Int32Array,
    exploration: Float64Array,
) -> None:
    """Walk one tree from its root to the first edge that no simulation took yet."""
    low, high = 0.0, 0.0
    if is_tree_range:
        low, high = _tree_range(root, last_node, qvalues)
    node = ROOT
    while True:
        if not is_tree_range:
            low, high = _sibling_range(root, node, values, qvalues, children)
        action = _select_action(
            root, node, low, high, visits, qvalues, children, priors, exploration
        )
        child = children[root, node, action]
        if child == UNVISITED:
            leaf_parent[root] = node
            leaf_action[root] = action
            return
        node = child


@kernel
def puct_first(
    is_tree_range: bool,
    visits: Int32Array,
    values: Float64Array,
    qvalues: Float64Array,
    children: Int32Array,
    priors: Float64Array,
    leaf_parent: Int32Array,
    leaf_action: Int32Array,
    exploration: Float64Array,
) -> None:
    """Select where the first simulation of every tree goes."""
    for root in range(leaf_parent.size):
        _select_leaf(
            root, ROOT, is_tree_range, visits, values, qvalues, children, priors, leaf_parent,
            leaf_action, exploration,
        )  # fmt: skip


@kernel
def puct_next(
    new_node: int,
    discount: float,
    is_tree_range: bool,
    visits: Int32Array,
    values: Float64Array,
    raw_values: Float64Array,
    rewards: Float64Array,
    qvalues: Float64Array,
    parents: Int32Array,
    actions: Int32Array,
    children: Int32Array,
    priors: Float64Array,
    leaf_parent: Int32Array,
    leaf_action: Int32Array,
    reward: Float32Array,
    value: Float32Array,
    prior_logits: Float32Array,
    exploration: Float64Array,
) -> None:
    """Add the new node of every tree, then select where its next simulation goes."""
    for root in range(leaf_parent.size):
        grow(
            root, new_node, discount, visits, values, raw_values, rewards, qvalues, parents,
            actions, children, priors, leaf_parent, leaf_action, reward, value, prior_logits,
        )  # fmt: skip
        _select_leaf(
            root, new_node, is_tree_range, visits, values, qvalues, children, priors, leaf_parent,
            leaf_action, exploration,
        )  # fmt: skip
