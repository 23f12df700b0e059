"""The two searches: MuZero's and Gumbel MuZero's."""

from __future__ import annotations

from typing import Literal

import numpy as np

from lightzero_lite.search.puct import exploration_table, puct_first, puct_next
from lightzero_lite.search.tree import ROOT, Float64Array, Tree, TreeCache, finish, plant
from lightzero_lite.types import (
    BoolArray,
    Float32Array,
    Int32Array,
    RecurrentFn,
    RecurrentOutput,
    RootOutput,
    SearchOutput,
)

QTransform = Literal["tree_min_max", "parent_and_siblings"]


def muzero_policy(
    root: RootOutput,
    recurrent_fn: RecurrentFn,
    *,
    num_simulations: int,
    discount: float,
    rng: np.random.Generator,
    invalid_actions: BoolArray | None = None,
    q_transform: QTransform = "tree_min_max",
    pb_c_init: float = 1.25,
    pb_c_base: float = 19652.0,
    dirichlet_alpha: float = 0.3,
    dirichlet_fraction: float = 0.25,
    temperature: float = 1.0,
    trees: TreeCache | None = None,
) -> SearchOutput:
    """Search B roots with MuZero's PUCT rule.

    Args:
        root: the network's answer at the roots, prior_logits [B, A] and value [B].
        recurrent_fn: the model; called once a simulation for all B roots.
        num_simulations: simulations a root, at least 1.
        discount: weight of a child's value; negative where two players alternate.
        rng: where root noise and actions are drawn from.
        invalid_actions: [B, A], True = illegal at the root; None = all legal.
        q_transform: how q is brought to [0, 1]: over the whole tree or among siblings.
        pb_c_init: c1 of the paper's appendix B, equation 2.
        pb_c_base: c2 of the same.
        dirichlet_alpha: concentration of the root noise.
        dirichlet_fraction: share of noise in the root's prior; 0 draws nothing.
        temperature: actions are drawn from visit_counts^(1/temperature); 0 = the most visited.
        trees: buffers to reuse from move to move; None allocates.

    Returns:
        action_weights are visit_counts / num_simulations.
    """
    tree, prior_logits = _plant(root, num_simulations, invalid_actions, trees)
    if dirichlet_fraction > 0.0:
        _mix_root_noise(tree, rng, dirichlet_alpha, dirichlet_fraction, invalid_actions)
    exploration = exploration_table(num_simulations, pb_c_init, pb_c_base)
    is_tree_range = q_transform == "tree_min_max"
    puct_first(
        is_tree_range, tree.visits, tree.values, tree.qvalues, tree.children, tree.priors,
        tree.leaf_parent, tree.leaf_action, exploration,
    )  # fmt: skip
    for new_node in range(1, num_simulations):
        step = _as_float32(recurrent_fn(tree.leaf_parent, tree.leaf_action, new_node))
        puct_next(new_node, discount, is_tree_range, *tree, *step, exploration)
    step = _as_float32(recurrent_fn(tree.leaf_parent, tree.leaf_action, num_simulations))
    visit_counts = np.empty(prior_logits.shape, np.int32)
    qvalues = np.empty(prior_logits.shape, np.float32)
    root_value = np.empty(len(prior_logits), np.float32)
    finish(num_simulations, discount, *tree, *step, visit_counts, qvalues, root_value)
    action = _sample_visited(visit_counts, temperature, rng)
    weights = visit_counts / np.float32(num_simulations)
    return SearchOutput(action, visit_counts, weights.astype(np.float32), root_value, qvalues)


def _plant(
    root: RootOutput,
    num_simulations: int,
    invalid_actions: BoolArray | None,
    trees: TreeCache | None,
) -> tuple[Tree, Float32Array]:
    """Return a tree whose roots are evaluated, and the roots' prior logits."""
    prior_logits = np.ascontiguousarray(root.prior_logits, np.float32)
    value = np.ascontiguousarray(root.value, np.float32)
    num_roots, num_actions = prior_logits.shape
    if num_simulations < 1:
        raise ValueError(f"num_simulations is {num_simulations}; it must be at least 1")
    if invalid_actions is None:
        invalid_actions = np.zeros(prior_logits.shape, np.bool_)
    elif invalid_actions.all(axis=1).any():
        rows = np.flatnonzero(invalid_actions.all(axis=1)).tolist()
        raise ValueError(f"every action is illegal at roots {rows}; leave finished games out")
    tree = (trees or TreeCache()).get(num_roots, num_simulations, num_actions)
    plant(
        tree.visits, tree.values, tree.raw_values, tree.children, tree.priors,
        np.ascontiguousarray(invalid_actions, np.bool_), prior_logits, value,
    )  # fmt: skip
    return tree, prior_logits


def _as_float32(output: RecurrentOutput) -> tuple[Float32Array, Float32Array, Float32Array]:
    """Return reward, value and prior_logits as the kernels want them; no copy where they are so."""
    return (
        np.ascontiguousarray(output.reward, np.float32),
        np.ascontiguousarray(output.value, np.float32),
        np.ascontiguousarray(output.prior_logits, np.float32),
    )


def _mix_root_noise(
    tree: Tree,
    rng: np.random.Generator,
    alpha: float,
    fraction: float,
    invalid_actions: BoolArray | None,
) -> None:
    """Turn the roots' prior p into (1 - fraction) * p + fraction * Dirichlet(alpha)."""
    prior = tree.priors[:, ROOT]
    noise = _dirichlet(rng, alpha, prior.shape, invalid_actions)
    prior += fraction * (noise - prior)


def _dirichlet(
    rng: np.random.Generator,
    alpha: float,
    shape: tuple[int, ...],
    invalid_actions: BoolArray | None,
) -> Float64Array:
    """Draw each row from a symmetric Dirichlet over its legal actions.

    Gamma draws are made in logs, Gamma(alpha) = Gamma(alpha + 1) * U^(1 / alpha): a small alpha
    would otherwise underflow to a row of zeros.
    """
    log_gamma = np.log(rng.standard_gamma(alpha + 1.0, shape))
    log_gamma -= rng.standard_exponential(shape) / alpha  # log U is minus an exponential draw
    if invalid_actions is not None:
        log_gamma[invalid_actions] = -np.inf
    weights = np.exp(log_gamma - log_gamma.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _sample_visited(
    visit_counts: Int32Array, temperature: float, rng: np.random.Generator
) -> Int32Array:
    """Draw an action a row from visit_counts^(1 / temperature)."""
    if temperature == 0.0:
        return visit_counts.argmax(axis=1).astype(np.int32)
    weights = visit_counts / visit_counts.max(axis=1, keepdims=True)
    cumulative = np.cumsum(weights ** (1.0 / temperature), axis=1)
    draws = rng.random(len(cumulative)) * cumulative[:, -1]
    return (cumulative <= draws[:, None]).sum(axis=1).astype(np.int32)
