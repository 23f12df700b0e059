"""What the replay buffer stores once an episode."""

from __future__ import annotations

import numpy as np

from lightzero_lite.types import BoolArray, Episode, Float32Array, Int64Array, StateDict


class EpisodeTable:
    """What is stored once an episode, oldest out first, in a ring of slots that doubles when full.

    Episodes are numbered from 0 in the order of their arrival. Episode i lives in slot i modulo
    the capacity, a power of two, so a number finds its slot without a search.
    """

    def __init__(self, observation_shape: tuple[int, ...], num_actions: int) -> None:
        """Make an empty table.

        Args:
          observation_shape: shape `O` of one observation.
          num_actions: A.
        """
        self.first_id = 0  # of the oldest stored episode
        self.next_id = 0  # of the next episode to come
        self._allocate(64, observation_shape, num_actions)

    @property
    def num_episodes(self) -> int:
        """Episodes in the table."""
        return self.next_id - self.first_id

    @property
    def nbytes(self) -> int:
        """Memory of the table in bytes."""
        return sum(array.nbytes for array in self._arrays().values())

    def ids(self) -> Int64Array:
        """Return the numbers of the stored episodes, oldest first."""
        return np.arange(self.first_id, self.next_id)

    def slots(self, episode_ids: Int64Array) -> Int64Array:
        """Return the index of each episode in the arrays."""
        return episode_ids & (len(self.starts) - 1)

    def append(self, start: int, episode: Episode) -> int:
        """Add an episode and return its number.

        Args:
          start: row of its first transition.
          episode: the record, of T >= 1 steps.
        """
        if self.num_episodes == len(self.starts):
            self._double()
        slot = self.next_id & (len(self.starts) - 1)
        self.starts[slot] = start
        self.lengths[slot] = len(episode.actions)
        self.is_terminated[slot] = episode.is_terminated
        self.final_observations[slot] = episode.observations[-1]
        self.final_legal_actions[slot] = episode.legal_actions[-1]
        self.next_id += 1
        return self.next_id - 1

    def pop_oldest(self) -> int:
        """Drop the oldest episode and return its length."""
        assert self.num_episodes > 0, "the table is empty"
        length = int(self.lengths[self.first_id & (len(self.lengths) - 1)])
        self.first_id += 1
        return length

    def state_dict(self) -> StateDict:
        """Return the stored episodes, oldest first, as numpy arrays and Python scalars."""
        slots = self.slots(self.ids())
        state: StateDict = {name: array[slots] for name, array in self._arrays().items()}
        return {"first_id": self.first_id, "next_id": self.next_id, **state}

    def load_state_dict(self, state: StateDict) -> None:
        """Replace the table by one that `state_dict` returned."""
        self.first_id, self.next_id = int(state["first_id"]), int(state["next_id"])
        capacity = max(64, 1 << (self.num_episodes - 1).bit_length())
        self._reallocate(capacity)
        slots = self.slots(self.ids())
        for name, array in self._arrays().items():
            array[slots] = state[name]

    def _reallocate(self, capacity: int) -> None:
        """Replace the arrays by empty ones of `capacity` slots."""
        self._allocate(
            capacity, self.final_observations.shape[1:], self.final_legal_actions.shape[1]
        )

    def _allocate(
        self, capacity: int, observation_shape: tuple[int, ...], num_actions: int
    ) -> None:
        """Make the arrays, `capacity` slots each."""
        self.starts: Int64Array = np.zeros(capacity, np.int64)
        self.lengths: Int64Array = np.zeros(capacity, np.int64)
        self.is_terminated: BoolArray = np.zeros(capacity, np.bool_)
        self.final_observations: Float32Array = np.zeros((capacity, *observation_shape), np.float32)
        self.final_legal_actions: BoolArray = np.zeros((capacity, num_actions), np.bool_)

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by name."""
        return {
            "starts": self.starts,
            "lengths": self.lengths,
            "is_terminated": self.is_terminated,
            "final_observations": self.final_observations,
            "final_legal_actions": self.final_legal_actions,
        }

    def _double(self) -> None:
        """Double the capacity."""
        stored = self.state_dict()
        self._reallocate(2 * len(self.starts))
        slots = self.slots(self.ids())
        for name, array in self._arrays().items():
            array[slots] = stored[name]
