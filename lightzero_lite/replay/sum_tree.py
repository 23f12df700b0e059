"""A binary tree of sums: draws of indices in proportion to their values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightzero_lite.compiled import compiled
from lightzero_lite.types import Int64Array

Float64Array = NDArray[np.float64]


class SumTree:
    """Non-negative float64 values at [0, num_leaves) that can be set and drawn in batches.

    Node i has the children 2i and 2i + 1, the root is node 1 and leaf j is node capacity + j. A
    node is always recomputed as the sum of its children, never changed by a difference, so the
    whole tree is a function of its leaves: rounding does not pile up over a long run, and a tree
    that is rebuilt from its leaves draws the same indices.
    """

    def __init__(self, num_leaves: int) -> None:
        """Make a tree of zeros.

        Args:
          num_leaves: how many values there are, at least 1.
        """
        assert num_leaves >= 1, "num_leaves is at least 1"
        self._num_leaves = num_leaves
        self._capacity = 1 << (num_leaves - 1).bit_length()
        self._nodes: Float64Array = np.zeros(2 * self._capacity, np.float64)

    @property
    def total(self) -> float:
        """Sum of all values."""
        return float(self._nodes[1])

    @property
    def nbytes(self) -> int:
        """Memory of the tree in bytes."""
        return self._nodes.nbytes

    def values(self, indices: Int64Array) -> Float64Array:
        """Return the values at `indices` [B]."""
        self._check_indices(indices)
        values: Float64Array = self._nodes[self._capacity + indices]
        return values

    def set(self, indices: Int64Array, values: Float64Array) -> None:
        """Set the values at `indices`.

        Args:
          indices: `[B]` in [0, num_leaves); of an index that occurs twice the later entry counts.
          values: `[B]`, finite and at least 0.
        """
        self._check_indices(indices)
        assert indices.shape == values.shape, "one value an index"
        assert bool(np.all((values >= 0) & (values < np.inf))), "values are finite and >= 0"
        _set_leaves(self._nodes, self._capacity + indices, values.astype(np.float64))

    def sample(self, batch_size: int, rng: np.random.Generator) -> Int64Array:
        """Draw `batch_size` indices, each in proportion to its value; 0 is never drawn.

        The draws are stratified: draw b is uniform over the b-th of batch_size equal parts of the
        total. The expected count of an index is batch_size * value / total, as it is for
        independent draws, with less spread.

        Args:
          batch_size: B.
          rng: source of the draws.
        """
        assert self.total > 0, "a tree of zeros cannot be sampled"
        quantiles = (np.arange(batch_size) + rng.random(batch_size)) / batch_size
        return _find_leaves(self._nodes, quantiles * self.total) - self._capacity

    def check_valid(self) -> tuple[bool, str]:
        """Return whether every node is the sum of its children, and if not, which is not."""
        nodes = self._nodes
        sums = nodes[2::2] + nodes[3::2]
        wrong = np.nonzero(nodes[1 : self._capacity] != sums)[0]
        if len(wrong):
            return False, f"node {wrong[0] + 1} is not the sum of its children"
        if np.any(nodes[self._capacity + self._num_leaves :] != 0):
            return False, "a leaf past the last is not 0"
        return True, ""

    def _check_indices(self, indices: Int64Array) -> None:
        """Assert that `indices` lie in the tree: a kernel would write outside of its memory."""
        is_inside = (indices >= 0) & (indices < self._num_leaves)
        assert bool(np.all(is_inside)), f"indices must lie in [0, {self._num_leaves})"


@compiled
def _set_leaves(nodes: NDArray[Any], leaves: NDArray[Any], values: NDArray[Any]) -> None:
    """Set the leaf nodes, one after another, and recompute the nodes above each."""
    for entry in range(len(leaves)):
        node = leaves[entry]
        nodes[node] = values[entry]
        while node > 1:
            node >>= 1
            nodes[node] = nodes[2 * node] + nodes[2 * node + 1]


@compiled
def _find_leaves(nodes: NDArray[Any], masses: NDArray[Any]) -> NDArray[Any]:
    """Return, for each mass, the leaf node where the running sum of the leaves exceeds it."""
    capacity = len(nodes) // 2
    leaves = np.empty(len(masses), np.int64)
    for entry in range(len(masses)):
        mass = masses[entry]
        node = 1
        while node < capacity:
            node *= 2
            # A sum rounded down may leave too much mass for the right child: never enter a 0.
            if mass >= nodes[node] and nodes[node + 1] > 0.0:
                mass -= nodes[node]
                node += 1
        leaves[entry] = node
    return leaves
