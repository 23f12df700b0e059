"""Batched Monte-Carlo tree search; knows numpy and numba, no network and no game."""

from lightzero_lite.search.policies import QTransform, muzero_policy
from lightzero_lite.search.tree import TreeCache

__all__ = ["QTransform", "TreeCache", "muzero_policy"]
