"""Gumbel MuZero's selection: sequential halving at the root, improved policy below it."""

from __future__ import annotations

import functools
from typing import Final

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

EPSILON: Final = 1e-8  # a smaller range of q values is not stretched to [0, 1]
MAXVISIT_INIT: Final = 50.0  # c_visit of the paper's equation 8
VALUE_SCALE: Final = 0.1  # c_scale of the same
TINY: Final = 1e-300  # keeps the mean over visited actions defined where their priors are 0


@functools.lru_cache(maxsize=64)
def halving_schedule(max_num_considered_actions: int, num_simulations: int) -> Int32Array:
    """Return the visits that an action must have to be taken next at the root.

    Row m, column s: with m actions considered at first, simulation s takes one of those that have
    that many visits. Every halving phase gives each survivor the same number of visits, and there
    are ceil(log2(m)) phases of num_simulations / phases simulations (Gumbel MuZero, figure 1).
    """
    rows = [_halving_row(m, num_simulations) for m in range(max_num_considered_actions + 1)]
    schedule = np.array(rows, np.int32)
    schedule.setflags(write=False)  # one array serves every caller
    return schedule


def _halving_row(num_considered: int, num_simulations: int) -> list[int]:
    """Return the row of halving_schedule for one number of actions."""
    if num_considered <= 1:
        return list(range(num_simulations))
    num_phases = (num_considered - 1).bit_length()
    row: list[int] = []
    survivors, visits = num_considered, 0
    while len(row) < num_simulations:
        for _ in range(max(1, num_simulations // (num_phases * survivors))):
            row += [visits] * survivors
            visits += 1
        survivors = max(2, survivors // 2)
    return row[:num_simulations]


@inlined
def _completion(
    root: int, node: int, nodes: RecordArray, edges: RecordArray
) -> tuple[float, float, float]:
    """Return the value that stands in for unvisited actions, the greatest q, and the q scale.

    The stand-in is v_mix of the paper's appendix D (equation 33): the raw value, and the visited
    actions' q weighted by their priors, averaged as if every visit counted once. The scale is that
    of sigma (equation 8), over q stretched to [0, 1]: sigma(q) = scale * (q - low).
    """
    low, high = np.inf, -np.inf
    prior_sum = weighted_q = 0.0
    max_visits = num_visited = 0
    for action in range(edges.shape[2]):
        edge = edges[root, node, action]
        if edge.child > ROOT:
            child = nodes[root, edge.child]
            prior = max(edge.prior, TINY)
            prior_sum += prior
            weighted_q += prior * child.qvalue
            max_visits = max(max_visits, child.visits)
            low = min(low, child.qvalue)
            high = max(high, child.qvalue)
            num_visited += 1
    mixed = nodes[root, node].raw_value
    if num_visited < edges.shape[2]:
        if num_visited > 0:
            visits = nodes[root, node].visits - 1
            mixed = (mixed + visits * (weighted_q / prior_sum)) / (visits + 1)
        low = min(low, mixed)
        high = max(high, mixed)
    scale = (MAXVISIT_INIT + max_visits) * VALUE_SCALE / max(high - low, EPSILON)
    return mixed, high, scale


@inlined
def _root_action(
    root: int,
    considered_visits: int,
    nodes: RecordArray,
    edges: RecordArray,
    root_scores: Float64Array,
) -> tuple[int, int]:
    """Return the best action that has this many visits, by gumbel + logits + sigma(q)."""
    mixed, high, scale = _completion(root, ROOT, nodes, edges)
    best_action, best_child = -1, UNVISITED
    best_score = -np.inf
    for action in range(edges.shape[2]):
        child = edges[root, ROOT, action].child
        visits, qvalue = 0, mixed
        if child > ROOT:
            visits, qvalue = nodes[root, child].visits, nodes[root, child].qvalue
        if child == ILLEGAL or visits != considered_visits:
            continue
        score = root_scores[root, action] + scale * (qvalue - high)
        # The first candidate stands even among NaNs, which win no comparison.
        if best_action < 0 or score > best_score:
            best_action, best_child = action, child
            best_score = score
    return best_action, best_child


@inlined
def _improve_policy(
    root: int, node: int, nodes: RecordArray, edges: RecordArray, policy: Float64Array
) -> None:
    """Write softmax(logits + sigma(completed q)) of one node (equation 11); illegal actions get 0.

    The softmax is taken as prior * exp(sigma), so that all unvisited actions share one exponential.
    """
    mixed, high, scale = _completion(root, node, nodes, edges)
    unvisited_factor = np.exp(scale * (mixed - high))
    total = 0.0
    for action in range(edges.shape[2]):
        edge = edges[root, node, action]
        factor = unvisited_factor
        if edge.child > ROOT:
            factor = np.exp(scale * (nodes[root, edge.child].qvalue - high))
        policy[action] = edge.prior * factor
        total += policy[action]
    for action in range(edges.shape[2]):
        policy[action] /= total


@inlined
def _interior_action(
    root: int, node: int, nodes: RecordArray, edges: RecordArray, policy: Float64Array
) -> tuple[int, int]:
    """Return the action that most lags behind the improved policy (appendix C, equation 14)."""
    _improve_policy(root, node, nodes, edges, policy)
    best_action, best_child = 0, UNVISITED
    best_score = -np.inf
    for action in range(edges.shape[2]):
        child = edges[root, node, action].child
        score = policy[action]
        if child > ROOT:
            score -= nodes[root, child].visits / nodes[root, node].visits
        if action == 0 or score > best_score:
            best_action, best_child = action, child
            best_score = score
    return best_action, best_child


@inlined
def _select(
    simulation: int,
    nodes: RecordArray,
    edges: RecordArray,
    leaf_node: Int32Array,
    leaf_action: Int32Array,
    root_scores: Float64Array,
    schedule: Int32Array,
    num_considered: Int32Array,
) -> None:
    """Walk every tree from its root to the first action that no simulation took yet."""
    policy = np.empty(edges.shape[2], np.float64)
    for root in range(nodes.shape[0]):
        considered_visits = schedule[num_considered[root], simulation]
        node = ROOT
        action, child = _root_action(root, considered_visits, nodes, edges, root_scores)
        while child != UNVISITED:
            node = child
            action, child = _interior_action(root, node, nodes, edges, policy)
        leaf_node[root] = node
        leaf_action[root] = action


@kernel
def gumbel_first(
    nodes: RecordArray,
    edges: RecordArray,
    leaf_node: Int32Array,
    leaf_action: Int32Array,
    root_scores: Float64Array,
    schedule: Int32Array,
    num_considered: Int32Array,
) -> None:
    """Select where the first simulation of every tree ends."""
    _select(0, nodes, edges, leaf_node, leaf_action, root_scores, schedule, num_considered)


@kernel
def gumbel_next(
    new_node: int,
    discount: float,
    nodes: RecordArray,
    edges: RecordArray,
    leaf_node: Int32Array,
    leaf_action: Int32Array,
    reward: Float32Array,
    value: Float32Array,
    prior_logits: Float32Array,
    root_scores: Float64Array,
    schedule: Int32Array,
    num_considered: Int32Array,
) -> None:
    """Add the new node of every tree, then select where the next simulation ends."""
    expand(new_node, nodes, edges, leaf_node, leaf_action, reward, value, prior_logits)
    back_up(new_node, discount, nodes)
    _select(new_node, nodes, edges, leaf_node, leaf_action, root_scores, schedule, num_considered)


@kernel
def gumbel_last(
    new_node: int,
    discount: float,
    nodes: RecordArray,
    edges: RecordArray,
    leaf_node: Int32Array,
    leaf_action: Int32Array,
    reward: Float32Array,
    value: Float32Array,
    prior_logits: Float32Array,
    root_scores: Float64Array,
    best_action: Int32Array,
    visit_counts: Int32Array,
    action_weights: Float32Array,
    root_value: Float32Array,
    qvalues: Float32Array,
) -> None:
    """Add the last node of every tree and fill the last five arrays from the roots.

    The action is the winner of the halving; the weights are the improved policy.
    """
    expand(new_node, nodes, edges, leaf_node, leaf_action, reward, value, prior_logits)
    back_up(new_node, discount, nodes)
    read_roots(nodes, edges, visit_counts, root_value, qvalues)
    policy = np.empty(edges.shape[2], np.float64)
    for root in range(nodes.shape[0]):
        most_visits = visit_counts[root].max()
        best_action[root], _ = _root_action(root, most_visits, nodes, edges, root_scores)
        _improve_policy(root, ROOT, nodes, edges, policy)
        for action in range(edges.shape[2]):
            action_weights[root, action] = policy[action]
