"""The two searches: MuZero's and Gumbel MuZero's."""

from __future__ import annotations

from typing import Literal

import numpy as np

from lightzero_lite.search.gumbel import (
    gumbel_first,
    gumbel_last,
    gumbel_next,
    halving_schedule,
)
from lightzero_lite.search.puct import (
    exploration_table,
    mix_root_noise,
    puct_first,
    puct_last,
    puct_next,
    sample_visited,
)
from lightzero_lite.search.tree import Float64Array, Tree, TreeCache, plant
from lightzero_lite.types import (
    BoolArray,
    Int32Array,
    RecurrentFn,
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
    value_delta_max: float = 1e-8,
    dirichlet_alpha: float = 0.3,
    dirichlet_fraction: float = 0.25,
    temperature: float = 1.0,
    trees: TreeCache | None = None,
) -> SearchOutput:
    """Search B roots with MuZero's PUCT rule (Schrittwieser et al. 2020, appendix B, equation 2).

    Each step down a tree takes the first action of the greatest q_norm(a) + prior(a) / (1 + n(a))
    * sqrt(n) * (pb_c_init + log((n + pb_c_base + 1) / pb_c_base)), n the node's evaluations.

    Args:
        root: the network's answer at the roots: `prior_logits [B, A]`, `value [B]`.
        recurrent_fn: the model. It is called once a simulation for all B roots, with arrays that
            the next simulation overwrites; it may reuse what it returns in the same way.
        num_simulations: simulations a root, at least 1.
        discount: weight of a child's value, negative where two players alternate.
        rng: where root noise and actions are drawn from.
        invalid_actions: `[B, A]`, True = illegal at the root; None = all are legal.
        q_transform: `tree_min_max` stretches q to [0, 1] over all visited edges of the root's tree,
            `parent_and_siblings` over the node's own value and its visited actions; an unvisited
            action scores 0.
        pb_c_init: the paper's c1.
        pb_c_base: the paper's c2.
        value_delta_max: a range of q smaller than this is taken as this wide, not stretched to 1.
        dirichlet_alpha: concentration of the root noise.
        dirichlet_fraction: share of noise in the root's prior; 0 draws none.
        temperature: actions are drawn from visit_counts^(1 / temperature); 0 takes the most
            visited, the lowest index on a tie.
        trees: buffers kept by the caller from move to move; None allocates new ones.

    Returns:
        The answers; action_weights is visit_counts / num_simulations.

    Raises:
        ValueError: a number is out of range, or a root has no legal action.
    """
    _check_at_least(0.0, temperature=temperature, dirichlet_fraction=dirichlet_fraction)
    if q_transform not in ("tree_min_max", "parent_and_siblings"):
        raise ValueError(f"q_transform {q_transform!r}: use tree_min_max or parent_and_siblings")
    tree = _plant(root, num_simulations, invalid_actions, trees)
    if dirichlet_fraction > 0.0:
        _mix_root_noise(tree, rng, dirichlet_alpha, dirichlet_fraction)
    exploration = exploration_table(num_simulations, pb_c_init, pb_c_base)
    rule = (q_transform == "tree_min_max", value_delta_max)
    answer = _search_puct(tree, recurrent_fn, num_simulations, discount, rule, exploration)
    _draw_action(answer, temperature, rng)
    return answer


def gumbel_muzero_policy(
    root: RootOutput,
    recurrent_fn: RecurrentFn,
    *,
    num_simulations: int,
    discount: float,
    rng: np.random.Generator,
    invalid_actions: BoolArray | None = None,
    max_num_considered_actions: int = 16,
    gumbel_scale: float = 1.0,
    gumbel: Float64Array | None = None,
    trees: TreeCache | None = None,
) -> SearchOutput:
    """Search B roots with sequential halving (Danihelka et al. 2022, algorithm 1 and section 5).

    The root halves the actions of the greatest gumbel + logits, ranking survivors by
    gumbel + logits + sigma(q); nodes below it follow the improved policy
    softmax(logits + sigma(completed q)).

    Args:
        root: as for muzero_policy.
        recurrent_fn: as for muzero_policy.
        num_simulations: simulations a root, at least 1.
        discount: weight of a child's value, negative where two players alternate.
        rng: where the Gumbel noise is drawn from.
        invalid_actions: `[B, A]`, True = illegal at the root; None = all are legal.
        max_num_considered_actions: how many actions of the root the halving starts with at most.
        gumbel_scale: multiplies the noise; 0 draws none and makes the search deterministic.
        gumbel: `[B, A]`, standard Gumbel noise to use in place of drawing it.
        trees: buffers kept by the caller from move to move; None allocates new ones.

    Returns:
        The answers; action is the winner of the halving, action_weights the improved policy.

    Raises:
        ValueError: a number is out of range, or a root has no legal action.
    """
    _check_at_least(1, max_num_considered_actions=max_num_considered_actions)
    tree = _plant(root, num_simulations, invalid_actions, trees)
    root_scores = root.prior_logits.astype(np.float64)
    if gumbel_scale != 0.0:
        noise = rng.gumbel(size=root_scores.shape) if gumbel is None else gumbel
        root_scores += gumbel_scale * noise
    num_roots, num_actions = root_scores.shape
    num_considered = np.full(num_roots, num_actions, np.int32)
    if invalid_actions is not None:
        num_considered -= invalid_actions.sum(axis=1, dtype=np.int32)
    np.minimum(num_considered, max_num_considered_actions, out=num_considered)
    schedule = halving_schedule(min(max_num_considered_actions, num_actions), num_simulations)
    return _search_gumbel(
        tree, recurrent_fn, num_simulations, discount, root_scores, schedule, num_considered
    )


def _search_puct(
    tree: Tree,
    recurrent_fn: RecurrentFn,
    num_simulations: int,
    discount: float,
    rule: tuple[bool, float],
    exploration: Float64Array,
) -> SearchOutput:
    """Run all simulations and read the roots; the action is left to be drawn."""
    is_tree_range, least_range = rule
    puct_first(is_tree_range, least_range, *tree, exploration)
    for new_node in range(1, num_simulations):
        step = recurrent_fn(tree.leaf_node, tree.leaf_action, new_node)
        puct_next(new_node, discount, is_tree_range, least_range, *tree, *step, exploration)
    step = recurrent_fn(tree.leaf_node, tree.leaf_action, num_simulations)
    answer = _empty_answer(tree)
    puct_last(
        num_simulations, discount, *tree, *step,
        answer.visit_counts, answer.action_weights, answer.root_value, answer.qvalues,
    )  # fmt: skip
    return answer


def _search_gumbel(
    tree: Tree,
    recurrent_fn: RecurrentFn,
    num_simulations: int,
    discount: float,
    root_scores: Float64Array,
    schedule: Int32Array,
    num_considered: Int32Array,
) -> SearchOutput:
    """Run all simulations and read the roots."""
    plan = (root_scores, schedule, num_considered)
    gumbel_first(*tree, *plan)
    for new_node in range(1, num_simulations):
        step = recurrent_fn(tree.leaf_node, tree.leaf_action, new_node)
        gumbel_next(new_node, discount, *tree, *step, *plan)
    step = recurrent_fn(tree.leaf_node, tree.leaf_action, num_simulations)
    answer = _empty_answer(tree)
    gumbel_last(
        num_simulations, discount, *tree, *step, root_scores, answer.action,
        answer.visit_counts, answer.action_weights, answer.root_value, answer.qvalues,
    )  # fmt: skip
    return answer


def _check_at_least(least: float, **numbers: float) -> None:
    """Refuse a number below the least that makes sense."""
    for name, number in numbers.items():
        if number < least:
            raise ValueError(f"{name} is {number}; it must be at least {least}")


def _plant(
    root: RootOutput,
    num_simulations: int,
    invalid_actions: BoolArray | None,
    trees: TreeCache | None,
) -> Tree:
    """Return a tree whose roots are evaluated."""
    _check_at_least(1, num_simulations=num_simulations)
    prior_logits = np.ascontiguousarray(root.prior_logits, np.float32)
    value = np.ascontiguousarray(root.value, np.float32)
    num_roots, num_actions = prior_logits.shape
    if invalid_actions is None:
        invalid_actions = np.zeros(prior_logits.shape, np.bool_)
    elif invalid_actions.all(axis=1).any():
        rows = np.flatnonzero(invalid_actions.all(axis=1)).tolist()
        raise ValueError(f"every action is illegal at roots {rows}; leave finished games out")
    invalid_actions = np.ascontiguousarray(invalid_actions, np.bool_)
    assert value.shape == (num_roots,), value.shape
    assert invalid_actions.shape == prior_logits.shape, invalid_actions.shape
    tree = (trees or TreeCache()).get(num_roots, num_simulations, num_actions)
    plant(tree.nodes, tree.edges, invalid_actions, value, prior_logits)
    return tree


def _empty_answer(tree: Tree) -> SearchOutput:
    """Allocate what a search returns; it is the caller's to keep."""
    num_roots, _, num_actions = tree.edges.shape
    return SearchOutput(
        action=np.empty(num_roots, np.int32),
        visit_counts=np.empty((num_roots, num_actions), np.int32),
        action_weights=np.empty((num_roots, num_actions), np.float32),
        root_value=np.empty(num_roots, np.float32),
        qvalues=np.empty((num_roots, num_actions), np.float32),
    )


def _mix_root_noise(tree: Tree, rng: np.random.Generator, alpha: float, fraction: float) -> None:
    """Mix Dirichlet noise into the roots' priors."""
    num_roots, _, num_actions = tree.edges.shape
    gamma = rng.standard_gamma(alpha + 1.0, (num_roots, num_actions))
    exponential = rng.standard_exponential((num_roots, num_actions))
    mix_root_noise(alpha, fraction, tree.edges, gamma, exponential)


def _draw_action(answer: SearchOutput, temperature: float, rng: np.random.Generator) -> None:
    """Fill in the actions, drawn from visit_counts^(1 / temperature)."""
    if temperature == 0.0:
        answer.action[:] = answer.visit_counts.argmax(axis=1)
    else:
        draw = rng.random(len(answer.action))
        sample_visited(1.0 / temperature, answer.visit_counts, draw, answer.action)
