"""Batched Monte-Carlo tree search; knows numpy and numba, no network and no game."""

from lightzero_lite.search.policies import QTransform, gumbel_muzero_policy, muzero_policy
from lightzero_lite.search.statistics import simulation_depths, visit_entropy
from lightzero_lite.search.tree import TreeCache

__all__ = [
    "QTransform",
    "TreeCache",
    "gumbel_muzero_policy",
    "muzero_policy",
    "simulation_depths",
    "visit_entropy",
]
