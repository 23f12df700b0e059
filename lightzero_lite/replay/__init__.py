"""Episode storage, sampling and training targets: numpy and numba, no network, no environment."""
