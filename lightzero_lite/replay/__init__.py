"""Episode storage, sampling and training targets, in numpy and numba."""
