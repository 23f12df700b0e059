"""The arrays of B search trees, and the three kernels that every policy shares.

Each visited edge (node, action) leads to exactly one child, so that everything an edge owns (its
reward, its value q, its visits) is stored at the child. N = num_simulations + 1 nodes a tree.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from lightzero_lite.types import BoolArray, Float32Array, Int32Array

Float64Array = NDArray[np.float64]
Function = TypeVar("Function", bound=Callable[..., Any])

ROOT: Final = 0  # the node that every tree starts from
NO_PARENT: Final = -1  # in parents and action_from_parent: this node is the root
UNVISITED: Final = -1  # in children: no simulation took this action yet
ILLEGAL: Final = -2  # in children of the root: no simulation may take this action


def _source_digest() -> str:
    """Return a short digest of this file, empty where the source is not at hand."""
    try:
        return f"_{zlib.crc32(Path(__file__).read_bytes()):08x}"
    except OSError:
        return ""


_SOURCE_DIGEST = _source_digest()


def kernel(function: Function) -> Function:
    """Compile a function of arrays and numbers, keeping the machine code on disk where possible.

    numba recompiles a kernel when its own file changes, but not when a kernel that it inlines from
    this file does; the digest in the name of the cache entry makes up for that.
    """
    function.__qualname__ += _SOURCE_DIGEST
    options = {"error_model": "numpy"}
    try:
        compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package folder nor the user's cache folder can be written
        compiled = numba.njit(**options)(function)
    return cast("Function", compiled)


class Tree(NamedTuple):
    """B trees of up to N nodes and A actions; node n is the one that simulation n added."""

    visits: Int32Array  # [B, N], evaluations of the node and of its descendants
    values: Float64Array  # [B, N], mean of the raw value and of every return backed up
    raw_values: Float64Array  # [B, N], what the network said
    rewards: Float64Array  # [B, N], reward of the edge into the node
    qvalues: Float64Array  # [B, N], reward + discount * value of the edge into the node
    parents: Int32Array  # [B, N]
    actions: Int32Array  # [B, N], action from the parent
    children: Int32Array  # [B, N, A], node index, UNVISITED or ILLEGAL
    priors: Float64Array  # [B, N, A], probabilities; an illegal action has 0
    leaf_parent: Int32Array  # [B], where the simulation in progress leaves the tree
    leaf_action: Int32Array  # [B], the action that it leaves with


def new_tree(num_roots: int, num_simulations: int, num_actions: int) -> Tree:
    """Allocate a tree; nothing in it needs clearing between searches."""
    per_node = (num_roots, num_simulations + 1)
    per_edge = (*per_node, num_actions)
    return Tree(
        visits=np.zeros(per_node, np.int32),
        values=np.zeros(per_node, np.float64),
        raw_values=np.zeros(per_node, np.float64),
        rewards=np.zeros(per_node, np.float64),
        qvalues=np.zeros(per_node, np.float64),
        parents=np.full(per_node, NO_PARENT, np.int32),
        actions=np.full(per_node, NO_PARENT, np.int32),
        children=np.full(per_edge, UNVISITED, np.int32),
        priors=np.zeros(per_edge, np.float64),
        leaf_parent=np.zeros(num_roots, np.int32),
        leaf_action=np.zeros(num_roots, np.int32),
    )


@dataclass(frozen=True, slots=True)
class TreeCache:
    """Trees by shape, so that a caller who searches move after move allocates each shape once."""

    _trees: dict[tuple[int, int, int], Tree] = field(default_factory=dict)

    def get(self, num_roots: int, num_simulations: int, num_actions: int) -> Tree:
        """Return the tree of this shape; its last search is overwritten by the next."""
        shape = (num_roots, num_simulations, num_actions)
        if shape not in self._trees:
            self._trees[shape] = new_tree(*shape)
        return self._trees[shape]


@kernel
def plant(
    visits: Int32Array,
    values: Float64Array,
    raw_values: Float64Array,
    children: Int32Array,
    priors: Float64Array,
    invalid_actions: BoolArray,
    prior_logits: Float32Array,
    value: Float32Array,
) -> None:
    """Make node 0 of every tree: the root, evaluated once, no action taken yet."""
    num_roots, num_actions = prior_logits.shape
    for root in range(num_roots):
        visits[root, ROOT] = 1
        values[root, ROOT] = value[root]
        raw_values[root, ROOT] = value[root]
        for action in range(num_actions):
            illegal = invalid_actions[root, action]
            children[root, ROOT, action] = ILLEGAL if illegal else UNVISITED
        set_priors(root, ROOT, children, priors, prior_logits)


@kernel
def set_priors(
    root: int,
    node: int,
    children: Int32Array,
    priors: Float64Array,
    prior_logits: Float32Array,
) -> None:
    """Write softmax(prior_logits) over the legal actions of a node, 0 for the others."""
    num_actions = prior_logits.shape[1]
    top = -np.inf
    for action in range(num_actions):
        if children[root, node, action] != ILLEGAL:
            top = max(top, prior_logits[root, action])
    total = 0.0
    for action in range(num_actions):
        weight = 0.0
        if children[root, node, action] != ILLEGAL:
            weight = np.exp(np.float64(prior_logits[root, action]) - top)
        priors[root, node, action] = weight
        total += weight
    for action in range(num_actions):
        priors[root, node, action] /= total


@kernel
def grow(
    root: int,
    new_node: int,
    discount: float,
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
) -> None:
    """Add the new node to one tree and back its value up to the root.

    Backing up (MuZero, appendix B, equation 4): with G = value at the new node, each step towards
    the root turns G into reward + discount * G and averages it into the parent's value.
    """
    node = new_node
    visits[root, node] = 1
    values[root, node] = value[root]
    raw_values[root, node] = value[root]
    rewards[root, node] = reward[root]
    parents[root, node] = leaf_parent[root]
    actions[root, node] = leaf_action[root]
    children[root, leaf_parent[root], leaf_action[root]] = node
    for action in range(prior_logits.shape[1]):
        children[root, node, action] = UNVISITED
    set_priors(root, node, children, priors, prior_logits)

    backed_up = values[root, node]
    while node != ROOT:
        backed_up = rewards[root, node] + discount * backed_up
        qvalues[root, node] = rewards[root, node] + discount * values[root, node]
        node = parents[root, node]
        count = visits[root, node]
        values[root, node] = (values[root, node] * count + backed_up) / (count + 1)
        visits[root, node] = count + 1


@kernel
def finish(
    new_node: int,
    discount: float,
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
    root_visits: Int32Array,
    root_qvalues: Float32Array,
    root_value: Float32Array,
) -> None:
    """Add the last node of every tree, then read visits, q and value off the roots."""
    num_roots, num_actions = prior_logits.shape
    for root in range(num_roots):
        grow(
            root, new_node, discount, visits, values, raw_values, rewards, qvalues, parents,
            actions, children, priors, leaf_parent, leaf_action, reward, value, prior_logits,
        )  # fmt: skip
        root_value[root] = values[root, ROOT]
        for action in range(num_actions):
            child = children[root, ROOT, action]
            is_visited = child > ROOT
            root_visits[root, action] = visits[root, child] if is_visited else 0
            root_qvalues[root, action] = qvalues[root, child] if is_visited else 0.0
