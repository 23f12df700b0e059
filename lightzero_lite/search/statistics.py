"""What finished searches looked like: how their visits spread, and how deep they went."""

from __future__ import annotations

import numpy as np

from lightzero_lite.search.tree import ROOT, Float64Array
from lightzero_lite.types import Int32Array


def visit_entropy(visit_counts: Int32Array) -> Float64Array:
    """Return the entropy in nats of each root's visits, `[B]` from `[B, A]`.

    It is 0 where one action has all visits, and log A where all have as many.
    """
    shares = visit_counts / visit_counts.sum(axis=1, keepdims=True)
    logs = np.log(shares, where=shares > 0, out=np.zeros_like(shares))
    entropy: Float64Array = -(shares * logs).sum(axis=1)
    return entropy


def simulation_depths(parents: Int32Array) -> Int32Array:
    """Return how many actions each simulation took from its root, `[B, num_simulations]`.

    Args:
        parents: `[B, N]`, parent of each node. Simulation i added node i + 1, whose parent an
            earlier simulation added.
    """
    roots = np.arange(len(parents))
    depths = np.zeros(parents.shape, np.int32)
    for node in range(ROOT + 1, parents.shape[1]):
        depths[:, node] = depths[roots, parents[:, node]] + 1
    return depths[:, ROOT + 1 :]
