"""Batched Monte Carlo tree search over a learned model: numpy and numba, no network, no environment."""
