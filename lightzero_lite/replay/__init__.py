"""Episode storage, sampling and training targets, in numpy and numba."""

from lightzero_lite.replay.buffer import ReplayBuffer

__all__ = ["ReplayBuffer"]
