"""The replay buffer: whole episodes in a ring of transitions, sampled with their targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightzero_lite.replay import targets
from lightzero_lite.replay.episode import check_finite, check_shapes, last_steps, num_steps
from lightzero_lite.types import (
    BoolArray,
    Episode,
    Float32Array,
    Int32Array,
    Int64Array,
    ReplayBatch,
)


class ReplayBuffer:
    """Whole episodes, oldest out first, and batches of sampled positions with their targets.

    A transition occupies one row of the ring arrays. The rows of an episode follow one another,
    modulo the size, and so do the episodes: the stored rows are one run of the ring. Episodes are
    numbered from 0 in the order of their arrival; the number is the `episode_ids` of a batch.
    """

    def __init__(
        self,
        *,
        size: int,
        observation_shape: tuple[int, ...],
        num_actions: int,
        td_steps: int,
        num_unroll_steps: int,
        discount: float,
    ) -> None:
        """Allocate an empty buffer.

        Args:
          size: most transitions that are stored, at least 1.
          observation_shape: shape `O` of one observation.
          num_actions: A.
          td_steps: n of the n-step value target, at least 1.
          num_unroll_steps: K, model steps of a sample.
          discount: gamma; negative when two players alternate.
        """
        assert size >= 1, "size is at least 1"
        assert num_actions >= 1, "num_actions is at least 1"
        assert td_steps >= 1, "td_steps is at least 1"
        assert num_unroll_steps >= 0, "num_unroll_steps is at least 0"
        self._size = size
        self._num_actions = num_actions
        self._td_steps = td_steps
        self._num_unroll_steps = num_unroll_steps
        self._discount = discount
        self._weights = targets.n_step_weights(discount, td_steps, num_unroll_steps)
        self._observations = np.zeros((size, *observation_shape), np.float32)
        self._actions = np.zeros(size, np.min_scalar_type(num_actions - 1))
        self._rewards = np.zeros(size, np.float32)
        self._root_values = np.zeros(size, np.float32)
        self._policies = np.zeros((size, num_actions), np.float32)
        self._row_episode = np.zeros(size, np.int64)
        self._episodes = _EpisodeTable(observation_shape)
        self._first_row = 0
        self._num_transitions = 0
        self._num_pushed_transitions = 0

    @property
    def num_transitions(self) -> int:
        """Transitions stored now."""
        return self._num_transitions

    @property
    def num_episodes(self) -> int:
        """Episodes stored now."""
        return self._episodes.num_episodes

    def push(self, episode: Episode) -> None:
        """Store `episode`, evicting the oldest episodes until it fits.

        Of an episode longer than the buffer the last `size` transitions are stored.

        Raises:
          ValueError: an observation, reward, value or policy of `episode` is not finite.
        """
        check_shapes(
            episode,
            observation_shape=self._observations.shape[1:],
            num_actions=self._num_actions,
        )
        check_finite(episode)
        self._num_pushed_transitions += num_steps(episode)
        episode = last_steps(episode, self._size)
        length = num_steps(episode)
        while self._num_transitions + length > self._size:
            self._evict_oldest()
        start = (self._first_row + self._num_transitions) % self._size
        rows = (start + np.arange(length)) % self._size
        self._observations[rows] = episode.observations[:-1]
        self._actions[rows] = episode.actions
        self._rewards[rows] = episode.rewards
        self._root_values[rows] = episode.root_values
        self._policies[rows] = episode.policies
        self._row_episode[rows] = self._episodes.append(
            start, length, bool(episode.is_terminated), episode.observations[-1]
        )
        self._num_transitions += length

    def sample(
        self, batch_size: int, rng: np.random.Generator, *, priority_beta: float = 0.4
    ) -> ReplayBatch:
        """Draw positions with replacement and return them unrolled, with their targets.

        Args:
          batch_size: B.
          rng: source of the positions and of the actions past the end.
          priority_beta: exponent of the importance weights; without effect on uniform sampling.
        """
        assert self._num_transitions > 0, "an empty buffer cannot be sampled"
        offsets = rng.integers(self._num_transitions, size=batch_size)
        rows = (self._first_row + offsets) % self._size
        return self._batch_at(rows, np.ones(batch_size, np.float32), rng)

    def _evict_oldest(self) -> None:
        """Forget the oldest episode."""
        _, length = self._episodes.pop_oldest()
        self._first_row = (self._first_row + length) % self._size
        self._num_transitions -= length

    def _batch_at(
        self, rows: Int64Array, importance_weights: Float32Array, rng: np.random.Generator
    ) -> ReplayBatch:
        """Return the unrolled positions that are stored in `rows` [B]."""
        episode_ids = self._row_episode[rows]
        slots = self._episodes.slots(episode_ids)
        starts = self._episodes.starts[slots]
        lengths = self._episodes.lengths[slots][:, None]
        is_terminated = self._episodes.is_terminated[slots][:, None]
        positions = (rows - starts) % self._size
        steps = positions[:, None] + np.arange(self._num_unroll_steps + 1)
        bootstrap = targets.bootstrap(
            steps, lengths, is_terminated, discount=self._discount, td_steps=self._td_steps
        )
        masks = targets.unroll_masks(steps, lengths, is_terminated)
        rewards = self._reward_window(starts, lengths, positions)
        step_rows = self._rows_at(starts, lengths, steps)
        return ReplayBatch(
            observations=self._observations_at(step_rows, slots, steps >= lengths),
            actions=self._actions_at(step_rows[:, :-1], masks.policy[:, :-1] > 0, rng),
            rewards=rewards[:, : self._num_unroll_steps],
            value_prefix=targets.value_prefix(rewards, self._weights),
            bootstrap_discount=bootstrap.discount,
            bootstrap_observations=self._observations_at(
                self._rows_at(starts, lengths, bootstrap.steps), slots, bootstrap.steps >= lengths
            ),
            bootstrap_values=self._bootstrap_values_at(starts, lengths, bootstrap),
            policies=self._policies_at(step_rows, masks.policy > 0),
            policy_mask=masks.policy,
            value_mask=masks.value,
            reward_mask=masks.reward,
            consistency_mask=masks.consistency,
            importance_weights=importance_weights,
            episode_ids=episode_ids,
            positions=positions,
        )

    def _rows_at(self, starts: Int64Array, lengths: Int64Array, steps: Int64Array) -> Int64Array:
        """Return the row of each step, not yet wrapped; steps past the end take the last row."""
        return starts[:, None] + np.minimum(steps, lengths - 1)

    def _reward_window(
        self, starts: Int64Array, lengths: Int64Array, positions: Int64Array
    ) -> Float32Array:
        """Return `[B, K + n]` rewards from each position on; 0 past the end."""
        steps = positions[:, None] + np.arange(self._num_unroll_steps + self._td_steps)
        rewards = _take(self._rewards, self._rows_at(starts, lengths, steps))
        rewards[steps >= lengths] = 0.0
        return rewards

    def _observations_at(
        self, rows: Int64Array, slots: Int64Array, is_final: BoolArray
    ) -> Float32Array:
        """Return the observations in `rows`, and the episode's last one where `is_final`."""
        observations = _take(self._observations, rows)
        samples, steps = np.nonzero(is_final)
        observations[samples, steps] = self._episodes.final_observations[slots[samples]]
        return observations

    def _actions_at(
        self, rows: Int64Array, is_inside: BoolArray, rng: np.random.Generator
    ) -> Int32Array:
        """Return the stored actions, random ones past the end."""
        random_actions = rng.integers(self._num_actions, size=rows.shape, dtype=np.int32)
        return np.where(is_inside, _take(self._actions, rows), random_actions)

    def _bootstrap_values_at(
        self, starts: Int64Array, lengths: Int64Array, bootstrap: targets.Bootstrap
    ) -> Float32Array:
        """Return the stored search values that the targets bootstrap from.

        No search was run on the last observation. The closest stored estimate is the episode's
        last root value, seen by the player to move after it.
        """
        values = _take(self._root_values, self._rows_at(starts, lengths, bootstrap.steps))
        if self._discount < 0:
            values[bootstrap.steps >= lengths] *= -1.0
        values[bootstrap.discount == 0.0] = 0.0
        return values

    def _policies_at(self, rows: Int64Array, is_inside: BoolArray) -> Float32Array:
        """Return the stored policy targets, uniform ones past the end."""
        policies = _take(self._policies, rows)
        policies[~is_inside] = 1.0 / self._num_actions
        return policies


class _EpisodeTable:
    """What is stored once an episode, in a ring of slots that doubles when it is full.

    Episode `i` lives in slot `i` modulo the capacity, a power of two.
    """

    def __init__(self, observation_shape: tuple[int, ...], capacity: int = 64) -> None:
        self.starts: Int64Array = np.zeros(capacity, np.int64)
        self.lengths: Int64Array = np.zeros(capacity, np.int64)
        self.is_terminated: BoolArray = np.zeros(capacity, np.bool_)
        self.final_observations: Float32Array = np.zeros((capacity, *observation_shape), np.float32)
        self.first_id = 0
        self.next_id = 0

    @property
    def num_episodes(self) -> int:
        """Episodes in the table."""
        return self.next_id - self.first_id

    def slots(self, episode_ids: Int64Array) -> Int64Array:
        """Return where the episodes are in the arrays."""
        return episode_ids & (len(self.starts) - 1)

    def append(
        self, start: int, length: int, is_terminated: bool, final_observation: NDArray[np.float32]
    ) -> int:
        """Add an episode and return its number."""
        if self.num_episodes == len(self.starts):
            self._double()
        slot = self.next_id & (len(self.starts) - 1)
        self.starts[slot] = start
        self.lengths[slot] = length
        self.is_terminated[slot] = is_terminated
        self.final_observations[slot] = final_observation
        self.next_id += 1
        return self.next_id - 1

    def pop_oldest(self) -> tuple[int, int]:
        """Drop the oldest episode and return its start row and length."""
        slot = self.first_id & (len(self.starts) - 1)
        self.first_id += 1
        return int(self.starts[slot]), int(self.lengths[slot])

    def _double(self) -> None:
        """Double the capacity, moving each episode to its new slot."""
        ids = np.arange(self.first_id, self.next_id)
        old_slots = self.slots(ids)
        new_slots = ids & (2 * len(self.starts) - 1)
        for name in ("starts", "lengths", "is_terminated", "final_observations"):
            old = getattr(self, name)
            new = np.zeros((2 * len(old), *old.shape[1:]), old.dtype)
            new[new_slots] = old[old_slots]
            setattr(self, name, new)


def _take(ring: NDArray[Any], rows: Int64Array) -> NDArray[Any]:
    """Return `ring[rows]`; rows past the last wrap round to the first.

    `np.take` copies whole rows, ten times as fast as indexing, and saves the modulo.
    """
    taken: NDArray[Any] = np.take(ring, rows, axis=0, mode="wrap")
    return taken
