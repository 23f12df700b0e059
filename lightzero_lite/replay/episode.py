"""Checks and cuts of one episode record."""

from __future__ import annotations

import numpy as np

from lightzero_lite.types import Episode


def num_steps(episode: Episode) -> int:
    """Return T, the number of transitions of `episode`."""
    return len(episode.actions)


def check_shapes(episode: Episode, *, observation_shape: tuple[int, ...], num_actions: int) -> None:
    """Assert that every field has the shape that `Episode` states and that actions are legal.

    Args:
      episode: the record to check, of T >= 1 steps.
      observation_shape: shape `O` of one observation.
      num_actions: A; every action lies in [0, A).
    """
    length = num_steps(episode)
    assert length >= 1, "an episode has at least one step"
    _assert_shape("observations", episode.observations, (length + 1, *observation_shape))
    _assert_shape("legal_actions", episode.legal_actions, (length + 1, num_actions))
    _assert_shape("actions", episode.actions, (length,))
    _assert_shape("rewards", episode.rewards, (length,))
    _assert_shape("root_values", episode.root_values, (length,))
    _assert_shape("raw_values", episode.raw_values, (length,))
    _assert_shape("policies", episode.policies, (length, num_actions))
    lowest, highest = int(np.min(episode.actions)), int(np.max(episode.actions))
    assert 0 <= lowest <= highest < num_actions, f"actions {lowest}..{highest} of {num_actions}"
    is_legal = episode.legal_actions[np.arange(length), episode.actions]
    assert is_legal.all(), f"an illegal action at index {int(is_legal.argmin())}"


def check_finite(episode: Episode) -> None:
    """Refuse an episode that would poison the stored targets.

    Args:
      episode: the record to check.

    Raises:
      ValueError: an observation, reward, value or policy is NaN or infinite; the message names
        the quantity and the first bad index.
    """
    for name in ("observations", "rewards", "root_values", "raw_values", "policies"):
        is_finite = np.isfinite(getattr(episode, name))
        if not is_finite.all():
            step = int(np.argwhere(~is_finite)[0][0])
            raise ValueError(f"non-finite {name} in an episode, first at index {step}")


def last_steps(episode: Episode, count: int) -> Episode:
    """Return the last `count` steps of `episode` as an episode; all of it when it is shorter.

    The end stays what it was, so every target of the suffix equals that of the whole episode.

    Args:
      episode: the record to cut, of T steps.
      count: how many steps to keep, at least 1.
    """
    assert count >= 1, "at least one step is kept"
    first = max(num_steps(episode) - count, 0)
    return Episode(
        observations=episode.observations[first:],
        legal_actions=episode.legal_actions[first:],
        actions=episode.actions[first:],
        rewards=episode.rewards[first:],
        root_values=episode.root_values[first:],
        raw_values=episode.raw_values[first:],
        policies=episode.policies[first:],
        is_terminated=episode.is_terminated,
    )


def with_scaled_rewards(episode: Episode, scale: float, clip: float | None) -> Episode:
    """Return `episode` with rewards that learning takes better.

    Args:
      episode: the record, with rewards as the environment gave them.
      scale: factor of every reward.
      clip: then cut to [-clip, clip]; None: nothing is cut.
    """
    if scale == 1.0 and clip is None:
        return episode
    rewards = episode.rewards * np.float32(scale)
    return episode._replace(rewards=rewards if clip is None else np.clip(rewards, -clip, clip))


def _assert_shape(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Assert that the field `name` of an episode has `shape`."""
    assert array.shape == shape, f"{name} has shape {array.shape}, expected {shape}"
