"""Running normalisation of observations: the statistics, and what the networks see.

The replay buffer stores observations as they came, so that old ones are normalised by today's
statistics. These are equal on all ranks and for any number of ranks: they are merged an episode at
a time, in the order of the episodes' numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from lightzero_lite.types import Float32Array, ReplayBatch, StateDict

LIMIT = 10.0  # normalised observations lie in [-LIMIT, LIMIT]
_LEAST_VARIANCE = 1e-8  # of a number that never changed

Float64Array = NDArray[np.float64]


class Moments(NamedTuple):
    """What is known of some observations, each number on its own."""

    number: int
    mean: Float64Array  # [O]
    squares: Float64Array  # [O], sum of squared deviations from the mean


def moments_of(observations: Float32Array) -> Moments:
    """Return the moments of observations [T, O], in double precision."""
    values = observations.astype(np.float64)
    mean = values.mean(axis=0)
    return Moments(len(values), mean, np.square(values - mean).sum(axis=0))


def merged(one: Moments, other: Moments) -> Moments:
    """Return the moments of both together (Chan, Golub and LeVeque, 1979); neither may be empty."""
    number = one.number + other.number
    delta = other.mean - one.mean
    mean = one.mean + delta * (other.number / number)
    squares = one.squares + other.squares + delta**2 * (one.number * other.number / number)
    return Moments(number, mean, squares)


class ObservationNormalizer:
    """Brings each number of an observation to mean 0 and deviation 1, if that is wanted."""

    def __init__(self, observation_dim: int, *, is_enabled: bool) -> None:
        """Know nothing yet: the first observations pass as they are.

        Args:
            observation_dim: Numbers in one observation.
            is_enabled: False: all observations pass as they are.
        """
        self.is_enabled = is_enabled
        self.moments = Moments(0, np.zeros(observation_dim), np.zeros(observation_dim))

    def update(self, episodes: Iterable[Moments]) -> None:
        """Take in the moments of episodes, in an order that is the same on all ranks."""
        for moments in episodes:
            is_first = self.moments.number == 0
            self.moments = moments if is_first else merged(self.moments, moments)

    def normalize(self, observations: Float32Array) -> Float32Array:
        """Return observations [..., O] as the networks see them, clipped at 10 deviations."""
        if not self.is_enabled or self.moments.number == 0:
            return observations
        variance = self.moments.squares / self.moments.number
        scaled = (observations - self.moments.mean) / np.sqrt(variance + _LEAST_VARIANCE)
        return np.clip(scaled, -LIMIT, LIMIT).astype(np.float32)

    def normalize_batch(self, batch: ReplayBatch) -> ReplayBatch:
        """Return a batch whose observations are as the networks see them."""
        if not self.is_enabled:
            return batch
        return batch._replace(
            observations=self.normalize(batch.observations),
            bootstrap_observations=self.normalize(batch.bootstrap_observations),
        )

    def state_dict(self) -> StateDict | None:
        """Return the moments as plain tensors and numbers; None: nothing is normalised."""
        if not self.is_enabled:
            return None
        number, mean, squares = self.moments
        tensors = (torch.from_numpy(array.copy()) for array in (mean, squares))
        return dict(zip(Moments._fields, (number, *tensors), strict=True))

    def load_state_dict(self, state: StateDict | None) -> None:
        """Continue from what `state_dict` returned, under the same option."""
        assert (state is not None) == self.is_enabled
        if state is not None:
            self.moments = Moments(
                int(state["number"]), state["mean"].numpy(), state["squares"].numpy()
            )
