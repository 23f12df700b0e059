"""Storage of the replay buffer: a ring of transitions, beside a table of their episodes.

Nothing is computed here. What lies past the end of an episode reads as what its last transition
says, and as its last observation; the buffer masks and replaces it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightzero_lite.replay.episode import num_steps
from lightzero_lite.replay.episode_table import EpisodeTable
from lightzero_lite.types import BoolArray, Episode, Float32Array, Int64Array, StateDict


class Ring(NamedTuple):
    """The stored transitions, one a row; R rows."""

    observations: Float32Array  # [R, *O]
    legal_actions: BoolArray  # [R, A], True: legal
    actions: NDArray[Any]  # [R], one byte where that holds A - 1
    rewards: Float32Array  # [R]
    root_values: Float32Array  # [R]
    policies: Float32Array  # [R, A]


class Samples(NamedTuple):
    """B stored transitions and what is known of their episodes."""

    episode_ids: Int64Array  # [B]
    slots: Int64Array  # [B], index of the episode in the table
    starts: Int64Array  # [B], row of the episode's first transition
    lengths: Int64Array  # [B, 1], T of the episode
    is_terminated: BoolArray  # [B, 1], True: the environment ended; False: a time limit
    positions: Int64Array  # [B], t of the transition


class Window(NamedTuple):
    """W steps of the episode of each of B samples."""

    rows: Int64Array  # [B, W], may pass the last row once; past the end: the last transition's
    is_inside: BoolArray  # [B, W], True where the step is less than T
    slots: Int64Array  # [B], index of the episode in the table


class EpisodeStorage:
    """Whole episodes, oldest out first, in preallocated arrays of `size` rows.

    The rows of an episode follow one another, modulo the size, and so do the episodes: the stored
    rows are one run of the ring, from the oldest to the youngest transition.
    """

    def __init__(self, *, size: int, observation_shape: tuple[int, ...], num_actions: int) -> None:
        """Allocate an empty storage.

        Args:
          size: most transitions that are stored, at least 1.
          observation_shape: shape `O` of one observation.
          num_actions: A.
        """
        assert size >= 1, "size is at least 1"
        self.size = size
        self.num_transitions = 0
        self.first_row = 0  # of the oldest transition
        self.episodes = EpisodeTable(observation_shape, num_actions)
        self._ring = Ring(
            observations=np.zeros((size, *observation_shape), np.float32),
            legal_actions=np.zeros((size, num_actions), np.bool_),
            actions=np.zeros(size, np.uint8 if num_actions <= 256 else np.int32),
            rewards=np.zeros(size, np.float32),
            root_values=np.zeros(size, np.float32),
            policies=np.zeros((size, num_actions), np.float32),
        )
        self._row_episode: Int64Array = np.zeros(size, np.int64)

    @property
    def nbytes(self) -> int:
        """Memory of all arrays in bytes, whether they are filled or not."""
        ring = sum(array.nbytes for array in self._ring)
        return ring + self._row_episode.nbytes + self.episodes.nbytes

    def rows(self) -> Int64Array:
        """Return the rows of the stored transitions, oldest first."""
        return self._run(0, self.num_transitions)

    def append(self, episode: Episode) -> Int64Array:
        """Store an episode for which there is room and return its rows."""
        length = num_steps(episode)
        assert self.num_transitions + length <= self.size, "no room for the episode"
        rows = self._run(self.num_transitions, length)
        self._ring.observations[rows] = episode.observations[:-1]
        self._ring.legal_actions[rows] = episode.legal_actions[:-1]
        self._ring.actions[rows] = episode.actions
        self._ring.rewards[rows] = episode.rewards
        self._ring.root_values[rows] = episode.root_values
        self._ring.policies[rows] = episode.policies
        self._row_episode[rows] = self.episodes.append(int(rows[0]), episode)
        self.num_transitions += length
        return rows

    def pop_oldest(self) -> Int64Array:
        """Forget the oldest episode and return the rows that it had."""
        rows = self._run(0, self.episodes.pop_oldest())
        self.first_row = (self.first_row + len(rows)) % self.size
        self.num_transitions -= len(rows)
        return rows

    def locate(self, rows: Int64Array) -> Samples:
        """Return which transitions are stored in `rows` [B]."""
        episode_ids = self._row_episode[rows]
        slots = self.episodes.slots(episode_ids)
        starts = self.episodes.starts[slots]
        return Samples(
            episode_ids=episode_ids,
            slots=slots,
            starts=starts,
            lengths=self.episodes.lengths[slots][:, None],
            is_terminated=self.episodes.is_terminated[slots][:, None],
            positions=(rows - starts) % self.size,
        )

    def find(self, episode_ids: Int64Array, positions: Int64Array) -> Int64Array:
        """Return the rows of transitions of stored episodes; both arguments are `[B]`."""
        slots = self.episodes.slots(episode_ids)
        is_inside = (positions >= 0) & (positions < self.episodes.lengths[slots])
        assert bool(np.all(is_inside)), "a position outside of its episode"
        rows: Int64Array = (self.episodes.starts[slots] + positions) % self.size
        return rows

    def window(self, samples: Samples, steps: Int64Array) -> Window:
        """Return where the steps [B, W] of the samples' episodes are stored."""
        rows = samples.starts[:, None] + np.minimum(steps, samples.lengths - 1)
        return Window(rows, steps < samples.lengths, samples.slots)

    def observations(self, window: Window) -> Float32Array:
        """Return `[B, W, *O]`, the observation at each step; past the end the last one."""
        return _take_or_final(self._ring.observations, self.episodes.final_observations, window)

    def legal_actions(self, window: Window) -> BoolArray:
        """Return `[B, W, A]`, True: legal at each step's observation; past the end the last one."""
        return _take_or_final(self._ring.legal_actions, self.episodes.final_legal_actions, window)

    def actions(self, window: Window) -> NDArray[Any]:
        """Return `[B, W]`, the action at each step; past the end the last one."""
        return _take(self._ring.actions, window.rows)

    def rewards(self, window: Window) -> Float32Array:
        """Return `[B, W]`, the reward at each step; past the end the last one."""
        return _take(self._ring.rewards, window.rows)

    def root_values(self, window: Window) -> Float32Array:
        """Return `[B, W]`, the search value at each step; past the end the last one."""
        return _take(self._ring.root_values, window.rows)

    def policies(self, window: Window) -> Float32Array:
        """Return `[B, W, A]`, the policy target at each step; past the end the last one."""
        return _take(self._ring.policies, window.rows)

    def failed_checks(self) -> list[str]:
        """Return what is wrong with the arrays; empty if every invariant holds."""
        ids = self.episodes.ids()
        slots = self.episodes.slots(ids)
        starts, lengths = self.episodes.starts[slots], self.episodes.lengths[slots]
        offsets = np.cumsum(lengths) - lengths
        checks = {
            "more transitions than the size": self.num_transitions <= self.size,
            "an episode without steps": bool(np.all(lengths >= 1)),
            "lengths do not add up": int(lengths.sum()) == self.num_transitions,
            "a gap between episodes": np.array_equal(
                starts, (self.first_row + offsets) % self.size
            ),
            "a row names another episode": np.array_equal(
                self._row_episode[self.rows()], np.repeat(ids, lengths)
            ),
        }
        return [reason for reason, holds in checks.items() if not holds]

    def state_dict(self) -> StateDict:
        """Return all that is stored, oldest first, as numpy arrays and Python scalars."""
        rows = self.rows()
        return {
            "size": self.size,
            "first_row": self.first_row,
            "num_transitions": self.num_transitions,
            "ring": {name: array[rows] for name, array in self._ring._asdict().items()},
            "episodes": self.episodes.state_dict(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Replace the content by what `state_dict` of a storage of this size returned."""
        assert state["size"] == self.size, "the state of a storage of another size"
        self.first_row = int(state["first_row"])
        self.num_transitions = int(state["num_transitions"])
        rows = self.rows()
        for name, array in self._ring._asdict().items():
            stored = state["ring"][name]
            assert stored.shape == (len(rows), *array.shape[1:]), f"{name} of another shape"
            array[rows] = stored
        self.episodes.load_state_dict(state["episodes"])
        ids = self.episodes.ids()
        self._row_episode[rows] = np.repeat(ids, self.episodes.lengths[self.episodes.slots(ids)])

    def _run(self, offset: int, count: int) -> Int64Array:
        """Return `count` rows from the `offset`-th after the oldest stored one."""
        rows: Int64Array = (self.first_row + offset + np.arange(count)) % self.size
        return rows


def _take(ring: NDArray[Any], rows: Int64Array) -> NDArray[Any]:
    """Return `ring[rows]`; rows past the last wrap round to the first.

    `np.take` copies whole rows, ten times as fast as indexing, and saves the modulo.
    """
    taken: NDArray[Any] = np.take(ring, rows, axis=0, mode="wrap")
    return taken


def _take_or_final(ring: NDArray[Any], final: NDArray[Any], window: Window) -> NDArray[Any]:
    """Return what belongs to each step of a window; past the end what stands once an episode."""
    taken = _take(ring, window.rows)
    samples, steps = np.nonzero(~window.is_inside)
    taken[samples, steps] = final[window.slots[samples]]
    return taken
