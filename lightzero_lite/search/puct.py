"""MuZero's selection: PUCT over normalised q values."""

from __future__ import annotations

import functools

import numpy as np

from lightzero_lite.search.tree import (
    ILLEGAL,
    ROOT,
    UNVISITED,
    Float64Array,
    RecordArray,
    back_up,
    expand,
    inlined,
    kernel,
    read_roots,
)
from lightzero_lite.types import Float32Array, Int32Array


@functools.lru_cache(maxsize=64)
def exploration_table(num_simulations: int, pb_c_init: float, pb_c_base: float) -> Float64Array:
    """Return sqrt(n) * (pb_c_init + log((n + pb_c_base + 1) / pb_c_base)) for n = 0 .. N."""
    parent_visits = np.arange(num_simulations + 2, dtype=np.float64)
    log_term = np.log((parent_visits + pb_c_base + 1.0) / pb_c_base)
    table: Float64Array = np.sqrt(parent_visits) * (pb_c_init + log_term)
    table.setflags(write=False)  # one array serves every caller
    return table


@kernel
def mix_root_noise(
    alpha: float,
    fraction: float,
    edges: RecordArray,
    gamma: Float64Array,
    exponential: Float64Array,
) -> None:
    """Turn the roots' priors p into (1 - fraction) * p + fraction * Dirichlet(alpha).

    Gamma(alpha) draws are made in logs, as Gamma(alpha + 1) * U^(1 / alpha): for a small alpha they
    would underflow to a row of zeros.

    Args:
        alpha: concentration, the same for each legal action.
        fraction: share of the noise.
        edges: edges of B trees with planted roots.
        gamma: `[B, A]`, draws of Gamma(alpha + 1); overwritten.
        exponential: `[B, A]`, draws of -log(U).
    """
    num_roots, num_actions = gamma.shape
    for root in range(num_roots):
        top = -np.inf
        for action in range(num_actions):
            if edges[root, ROOT, action].child != ILLEGAL:
                log_gamma = np.log(gamma[root, action]) - exponential[root, action] / alpha
                gamma[root, action] = log_gamma
                top = max(top, log_gamma)
        total = 0.0
        for action in range(num_actions):
            if edges[root, ROOT, action].child != ILLEGAL:
                gamma[root, action] = np.exp(gamma[root, action] - top)
                total += gamma[root, action]
        for action in range(num_actions):
            edge = edges[root, ROOT, action]
            if edge.child != ILLEGAL:
                edge.prior += fraction * (gamma[root, action] / total - edge.prior)


@kernel
def sample_visited(
    exponent: float, visit_counts: Int32Array, draw: Float64Array, action: Int32Array
) -> None:
    """Draw each row's action from visit_counts^exponent by a uniform draw in [0, 1)."""
    num_roots, num_actions = visit_counts.shape
    for root in range(num_roots):
        # Counts are taken relative to the greatest: a large exponent would overflow.
        most = visit_counts[root].max()
        total = 0.0
        for i in range(num_actions):
            total += (visit_counts[root, i] / most) ** exponent
        left = draw[root] * total
        for i in range(num_actions):
            # Rounding may leave a rest behind the last visited action, which then stands.
            if visit_counts[root, i] > 0 and left >= 0.0:
                action[root] = i
                left -= (visit_counts[root, i] / most) ** exponent


@inlined
def _tree_range(root: int, last_node: int, nodes: RecordArray) -> tuple[float, float]:
    """Return the least and the greatest q of all visited edges of one tree."""
    low, high = np.inf, -np.inf
    for node in range(ROOT + 1, last_node + 1):
        low = min(low, nodes[root, node].qvalue)
        high = max(high, nodes[root, node].qvalue)
    return low, high


@inlined
def _sibling_range(
    root: int, node: int, nodes: RecordArray, edges: RecordArray
) -> tuple[float, float]:
    """Return the least and the greatest of a node's value and its visited actions' q."""
    low = high = nodes[root, node].value
    for action in range(edges.shape[2]):
        child = edges[root, node, action].child
        if child > ROOT:
            low = min(low, nodes[root, child].qvalue)
            high = max(high, nodes[root, child].qvalue)
    return low, high


@inlined
def _best_action(
    root: int,
    node: int,
    low: float,
    high: float,
    least_range: float,
    nodes: RecordArray,
    edges: RecordArray,
    exploration: Float64Array,
) -> tuple[int, int]:
    """Return the action of the greatest PUCT score (MuZero, appendix B, eq. 2) and its child."""
    q_range = max(high - low, least_range)
    weight = exploration[nodes[root, node].visits]
    best_action = -1
    best_child = UNVISITED
    best_score = -np.inf
    for action in range(edges.shape[2]):
        edge = edges[root, node, action]
        score = weight * edge.prior
        if edge.child > ROOT:
            child = nodes[root, edge.child]
            score = score / (1 + child.visits) + (child.qvalue - low) / q_range
        # The first legal action stands even among NaNs, which win no comparison.
        if edge.child != ILLEGAL and (best_action < 0 or score > best_score):
            best_action = action
            best_score = score
            best_child = edge.child
    return best_action, best_child


@inlined
def _select(
    last_node: int,
    is_tree_range: bool,
    least_range: float,
    nodes: RecordArray,
    edges: RecordArray,
    leaf_node: Int32Array,
    leaf_action: Int32Array,
    exploration: Float64Array,
) -> None:
    """Walk every tree from its root to the first action that no simulation took yet."""
    for root in range(nodes.shape[0]):
        low, high = 0.0, 0.0
        if is_tree_range:
            low, high = _tree_range(root, last_node, nodes)
        node, action, child = ROOT, 0, ROOT
        while child != UNVISITED:
            node = child
            if not is_tree_range:
                low, high = _sibling_range(root, node, nodes, edges)
            action, child = _best_action(
                root, node, low, high, least_range, nodes, edges, exploration
            )
        leaf_node[root] = node
        leaf_action[root] = action


@kernel
def puct_first(
    is_tree_range: bool,
    least_range: float,
    nodes: RecordArray,
    edges: RecordArray,
    leaf_node: Int32Array,
    leaf_action: Int32Array,
    exploration: Float64Array,
) -> None:
    """Select where the first simulation of every tree ends."""
    _select(ROOT, is_tree_range, least_range, nodes, edges, leaf_node, leaf_action, exploration)


@kernel
def puct_next(
    new_node: int,
    discount: float,
    is_tree_range: bool,
    least_range: float,
    nodes: RecordArray,
    edges: RecordArray,
    leaf_node: Int32Array,
    leaf_action: Int32Array,
    reward: Float32Array,
    value: Float32Array,
    prior_logits: Float32Array,
    exploration: Float64Array,
) -> None:
    """Add the new node of every tree, then select where the next simulation ends.

    One call a simulation: entering a kernel costs as much as walking the trees of ten roots.
    """
    expand(new_node, nodes, edges, leaf_node, leaf_action, reward, value, prior_logits)
    back_up(new_node, discount, nodes)
    _select(new_node, is_tree_range, least_range, nodes, edges, leaf_node, leaf_action, exploration)


@kernel
def puct_last(
    new_node: int,
    discount: float,
    nodes: RecordArray,
    edges: RecordArray,
    leaf_node: Int32Array,
    leaf_action: Int32Array,
    reward: Float32Array,
    value: Float32Array,
    prior_logits: Float32Array,
    visit_counts: Int32Array,
    action_weights: Float32Array,
    root_value: Float32Array,
    qvalues: Float32Array,
) -> None:
    """Add the last node of every tree and fill the last four arrays from the roots."""
    expand(new_node, nodes, edges, leaf_node, leaf_action, reward, value, prior_logits)
    back_up(new_node, discount, nodes)
    read_roots(nodes, edges, visit_counts, root_value, qvalues)
    for root in range(nodes.shape[0]):
        for action in range(edges.shape[2]):
            action_weights[root, action] = visit_counts[root, action] / new_node
