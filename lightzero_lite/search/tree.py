"""The arrays of B search trees, and the steps on them that every policy shares.

A visited edge (node, action) leads to exactly one child, so that what an edge owns (reward, q,
visits) is stored at the child. N = num_simulations + 1: node n is the one that simulation n added.
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

from lightzero_lite.compiled import compiled
from lightzero_lite.types import BoolArray, Float32Array, Int32Array

Float64Array = NDArray[np.float64]
RecordArray = NDArray[np.void]
Function = TypeVar("Function", bound=Callable[..., Any])

ROOT: Final = 0  # the node that every tree starts from
NO_PARENT: Final = -1  # parent and action of the root
UNVISITED: Final = -1  # child of an edge that no simulation took yet
ILLEGAL: Final = -2  # child of a root edge that no simulation may take

NODE = np.dtype(
    [
        ("value_sum", np.float64),  # of the raw value and of every return backed up
        ("value", np.float64),  # value_sum / visits
        ("raw_value", np.float64),  # what the network said
        ("reward", np.float64),  # reward of the edge into the node
        ("qvalue", np.float64),  # reward + discount * value, of the edge into the node
        ("visits", np.int32),  # evaluations of the node and of its descendants
        ("parent", np.int32),
        ("action", np.int32),  # the action that leads here from the parent
    ],
    align=True,
)
EDGE = np.dtype(
    [
        ("prior", np.float64),  # probability; 0 where the action is illegal
        ("child", np.int32),  # a node, UNVISITED or ILLEGAL
    ],
    align=True,
)


class Tree(NamedTuple):
    """B trees of up to N nodes with A edges each, and where each leaves its tree next."""

    nodes: RecordArray  # [B, N] of NODE
    edges: RecordArray  # [B, N, A] of EDGE
    leaf_node: Int32Array  # [B], the node that the simulation in progress ends at
    leaf_action: Int32Array  # [B], the unvisited action that it takes there


def new_tree(num_roots: int, num_simulations: int, num_actions: int) -> Tree:
    """Allocate a tree; a search clears what it uses, so that one may follow another in it."""
    num_nodes = num_simulations + 1
    return Tree(
        nodes=np.zeros((num_roots, num_nodes), NODE),
        edges=np.zeros((num_roots, num_nodes, num_actions), EDGE),
        leaf_node=np.zeros(num_roots, np.int32),
        leaf_action=np.zeros(num_roots, np.int32),
    )


@dataclass(frozen=True, slots=True)
class TreeCache:
    """Trees by shape: a caller who searches move after move allocates each shape once."""

    _trees: dict[tuple[int, int, int], Tree] = field(default_factory=dict)

    def get(self, num_roots: int, num_simulations: int, num_actions: int) -> Tree:
        """Return the tree of this shape; the next search in it overwrites the last."""
        shape = (num_roots, num_simulations, num_actions)
        if shape not in self._trees:
            self._trees[shape] = new_tree(*shape)
        return self._trees[shape]


def inlined(function: Function) -> Function:
    """Compile a part of kernels into each kernel that calls it."""
    return cast("Function", numba.njit(error_model="numpy", forceinline=True)(function))


def kernel(function: Function) -> Function:
    """Compile a function that Python calls.

    numba drops a kernel's code from disk when the kernel's own file changes, not when this file,
    parts of which it inlines, does: hence this file's digest in the name of the entry.
    """
    function.__qualname__ += _SOURCE_DIGEST
    return compiled(function)


def _source_digest() -> str:
    """Return a digest of this file's text, empty where there is only byte code."""
    try:
        return f"_{zlib.crc32(Path(__file__).read_bytes()):08x}"
    except OSError:
        return ""


_SOURCE_DIGEST: Final = _source_digest()


@inlined
def set_priors(node: int, edges: RecordArray, prior_logits: Float32Array) -> None:
    """Write softmax(prior_logits) over the legal actions of one node of every tree."""
    num_roots, num_actions = prior_logits.shape
    for root in range(num_roots):
        top = -np.inf
        for action in range(num_actions):
            if edges[root, node, action].child != ILLEGAL:
                top = max(top, prior_logits[root, action])
        total = 0.0
        for action in range(num_actions):
            weight = 0.0
            if edges[root, node, action].child != ILLEGAL:
                weight = np.exp(np.float64(prior_logits[root, action]) - top)
            edges[root, node, action].prior = weight
            total += weight
        for action in range(num_actions):
            edges[root, node, action].prior /= total


@kernel
def plant(
    nodes: RecordArray,
    edges: RecordArray,
    invalid_actions: BoolArray,
    value: Float32Array,
    prior_logits: Float32Array,
) -> None:
    """Make node 0 of every tree: a root evaluated once, none of its actions taken yet."""
    for root in range(nodes.shape[0]):
        node = nodes[root, ROOT]
        node.value_sum = node.value = node.raw_value = value[root]
        node.reward = node.qvalue = 0.0
        node.visits = 1
        node.parent = node.action = NO_PARENT
        for action in range(edges.shape[2]):
            illegal = invalid_actions[root, action]
            edges[root, ROOT, action].child = ILLEGAL if illegal else UNVISITED
    set_priors(ROOT, edges, prior_logits)


@inlined
def expand(
    new_node: int,
    nodes: RecordArray,
    edges: RecordArray,
    leaf_node: Int32Array,
    leaf_action: Int32Array,
    reward: Float32Array,
    value: Float32Array,
    prior_logits: Float32Array,
) -> None:
    """Hang the new node of every tree on the edge that its simulation ended with."""
    num_roots, _, num_actions = edges.shape
    if reward.size != num_roots or value.size != num_roots:
        raise ValueError("recurrent_fn must return reward [B] and value [B]")
    if prior_logits.shape != (num_roots, num_actions):
        raise ValueError("recurrent_fn must return prior_logits [B, A]")
    for root in range(num_roots):
        node = nodes[root, new_node]
        node.value_sum = node.value = node.raw_value = value[root]
        node.reward = reward[root]
        node.visits = 1
        node.parent = leaf_node[root]
        node.action = leaf_action[root]
        edges[root, leaf_node[root], leaf_action[root]].child = new_node
        for action in range(num_actions):
            edges[root, new_node, action].child = UNVISITED
    set_priors(new_node, edges, prior_logits)


@inlined
def back_up(new_node: int, discount: float, nodes: RecordArray) -> None:
    """Average the new node's value into every node above it (MuZero, appendix B, equation 4).

    With G = value at the new node, each step towards the root turns G into reward + discount * G
    and adds it to the parent's mean.
    """
    for root in range(nodes.shape[0]):
        node = nodes[root, new_node]
        backed_up = node.value
        while node.parent != NO_PARENT:
            backed_up = node.reward + discount * backed_up
            node.qvalue = node.reward + discount * node.value
            node = nodes[root, node.parent]
            node.value_sum += backed_up
            node.visits += 1
            node.value = node.value_sum / node.visits


@inlined
def read_roots(
    nodes: RecordArray,
    edges: RecordArray,
    visit_counts: Int32Array,
    root_value: Float32Array,
    qvalues: Float32Array,
) -> None:
    """Fill the last three arrays with what the search found at the roots."""
    for root in range(nodes.shape[0]):
        root_value[root] = nodes[root, ROOT].value
        for action in range(edges.shape[2]):
            child = edges[root, ROOT, action].child
            visit_counts[root, action] = nodes[root, child].visits if child > ROOT else 0
            qvalues[root, action] = nodes[root, child].qvalue if child > ROOT else 0.0
