"""Training targets of sampled positions: pure functions of arrays and plain numbers.

The value target of position t in an episode of T steps, with n = td_steps and m = min(n, T - t):

    z_t = sum_{i < m} discount^i r_{t+i} + discount^m v_{t+m}

v_{t+m} is 0 only where t + m = T and the episode terminated. An episode that a time limit cut has
a last observation that is worth something, so there it is that observation's value. A negative
discount flips the sign at each step: the same formula for two players who alternate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightzero_lite.types import BoolArray, Float32Array, Int64Array

Float64Array = NDArray[np.float64]


class Bootstrap(NamedTuple):
    """Where the value target of each position takes its last term from."""

    steps: Int64Array  # [B, K + 1], t + k + m, at most T: index of the observation
    discount: Float32Array  # [B, K + 1], discount^m; 0 where nothing is bootstrapped


class UnrollMasks(NamedTuple):
    """Which targets of an unroll are trained: 1 train, 0 leave out."""

    policy: Float32Array  # [B, K + 1], 1 where t + k < T
    value: Float32Array  # [B, K + 1], 1 where terminated or t + k <= T
    reward: Float32Array  # [B, K], 1 where terminated or t + k < T
    consistency: Float32Array  # [B, K], 1 where t + k + 1 <= T


def n_step_weights(discount: float, td_steps: int, num_unroll_steps: int) -> Float64Array:
    """Return the band matrix W that turns a window of rewards into n-step sums.

    rewards [B, K + n] @ W [K + n, K + 1] is value_prefix, as W[j, k] = discount^(j - k) for
    0 <= j - k < n and 0 elsewhere.

    Args:
      discount: gamma; negative when two players alternate.
      td_steps: n, at least 1.
      num_unroll_steps: K, at least 0.
    """
    assert td_steps >= 1, "td_steps is at least 1"
    lag = np.arange(num_unroll_steps + td_steps)[:, None] - np.arange(num_unroll_steps + 1)
    is_inside = (lag >= 0) & (lag < td_steps)
    weights: Float64Array = np.where(is_inside, float(discount) ** np.maximum(lag, 0), 0.0)
    return weights


def value_prefix(rewards: Float32Array, weights: Float64Array) -> Float32Array:
    """Return sum_{i < m} discount^i r_{t+k+i} for k = 0..K.

    Args:
      rewards: `[B, K + n]`, r_t and its successors; 0 past the end of the episode, which makes
        m = min(n, T - t - k) of n without a branch.
      weights: `[K + n, K + 1]` of `n_step_weights`.
    """
    prefix: Float32Array = (rewards @ weights).astype(np.float32)
    return prefix


def bootstrap(
    steps: Int64Array,
    lengths: Int64Array,
    is_terminated: BoolArray,
    *,
    discount: float,
    td_steps: int,
) -> Bootstrap:
    """Return which observation each value target bootstraps from, and with what factor.

    The factor is discount^m with m = min(n, T - t - k). It is 0 at the end of a terminated
    episode and beyond the end of any. At t + k = T of a truncated episode m = 0: the target is
    the value of the last observation itself, since a time limit is not death.

    Args:
      steps: `[B, K + 1]`, t + k.
      lengths: `[B, 1]`, T of the sample's episode.
      is_terminated: `[B, 1]`, True: the environment ended; False: a time limit cut the episode.
      discount: gamma; negative when two players alternate.
      td_steps: n, at least 1.
    """
    num_rewards = np.minimum(np.maximum(lengths - steps, 0), td_steps)
    bootstrap_steps = np.minimum(steps + num_rewards, lengths)
    has_value = (bootstrap_steps < lengths) | (~is_terminated & (steps <= lengths))
    powers = float(discount) ** np.arange(td_steps + 1)
    factor = np.where(has_value, powers[num_rewards], 0.0).astype(np.float32)
    return Bootstrap(bootstrap_steps, factor)


def unroll_masks(steps: Int64Array, lengths: Int64Array, is_terminated: BoolArray) -> UnrollMasks:
    """Return which targets of the unrolled positions are trained.

    A terminated episode is absorbing: zero rewards and values past its end are true and taught. A
    time limit leaves what follows unknown: only the value of the last observation has a target.

    Args:
      steps: `[B, K + 1]`, t + k.
      lengths: `[B, 1]`, T of the sample's episode.
      is_terminated: `[B, 1]`, True: the environment ended; False: a time limit cut the episode.
    """
    is_inside = steps < lengths
    reaches = steps <= lengths
    return UnrollMasks(
        policy=is_inside.astype(np.float32),
        value=(reaches | is_terminated).astype(np.float32),
        reward=(is_inside | is_terminated)[:, :-1].astype(np.float32),
        consistency=reaches[:, 1:].astype(np.float32),
    )
