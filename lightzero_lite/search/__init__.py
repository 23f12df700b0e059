"""Batched Monte Carlo tree search over a learned model, in numpy and numba."""
