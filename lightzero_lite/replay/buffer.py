"""The replay buffer: whole episodes in a ring of transitions, sampled with their targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightzero_lite.replay import targets
from lightzero_lite.replay.episode import check_finite, check_shapes, last_steps, num_steps
from lightzero_lite.replay.storage import EpisodeStorage, Window
from lightzero_lite.replay.sum_tree import Float64Array, SumTree
from lightzero_lite.types import (
    Episode,
    Float32Array,
    Int32Array,
    Int64Array,
    ReplayBatch,
    StateDict,
    UserError,
)


class ReplayBuffer:
    """Whole episodes, oldest out first, and batches of sampled positions with their targets.

    Episodes are numbered from 0 in the order of their arrival: `episode_ids` of a batch.
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
        use_priority: bool = False,
        priority_alpha: float = 0.6,
        priority_epsilon: float = 1e-6,
    ) -> None:
        """Allocate an empty buffer.

        Args:
          size: most transitions that are stored, at least 1.
          observation_shape: shape `O` of one observation.
          num_actions: A.
          td_steps: n of the n-step value target, at least 1.
          num_unroll_steps: K, model steps of a sample.
          discount: gamma; negative when two players alternate.
          use_priority: True: a transition is drawn in proportion to (priority + epsilon)^alpha;
            False: all are drawn alike.
          priority_alpha: alpha, 0 for uniform draws; 0.6 as in Schaul et al. (2015).
          priority_epsilon: epsilon > 0, which leaves a transition of priority 0 a chance.
        """
        assert num_actions >= 1, "num_actions is at least 1"
        assert td_steps >= 1, "td_steps is at least 1"
        assert num_unroll_steps >= 0, "num_unroll_steps is at least 0"
        assert priority_alpha >= 0, "priority_alpha is at least 0"
        assert priority_epsilon > 0, "priority_epsilon is positive"
        self._observation_shape = observation_shape
        self._num_actions = num_actions
        self._td_steps = td_steps
        self._num_unroll_steps = num_unroll_steps
        self._discount = discount
        self._alpha = priority_alpha
        self._epsilon = priority_epsilon
        self._weights = targets.n_step_weights(discount, td_steps, num_unroll_steps)
        self._storage = EpisodeStorage(
            size=size, observation_shape=observation_shape, num_actions=num_actions
        )
        self._priorities = SumTree(size) if use_priority else None
        self._num_pushed_transitions = 0

    @property
    def num_transitions(self) -> int:
        """Transitions stored now."""
        return self._storage.num_transitions

    @property
    def num_episodes(self) -> int:
        """Episodes stored now."""
        return self._storage.episodes.num_episodes

    @property
    def num_pushed_transitions(self) -> int:
        """Transitions ever pushed, those included that an overlong episode lost."""
        return self._num_pushed_transitions

    @property
    def num_evicted_transitions(self) -> int:
        """Transitions that were pushed and are not stored any more."""
        return self._num_pushed_transitions - self._storage.num_transitions

    @property
    def num_pushed_episodes(self) -> int:
        """Episodes ever pushed."""
        return self._storage.episodes.next_id

    @property
    def num_evicted_episodes(self) -> int:
        """Episodes that were pushed and are not stored any more."""
        return self._storage.episodes.first_id

    @property
    def memory_bytes(self) -> int:
        """Memory of all arrays in bytes, whether they are filled or not."""
        tree = self._priorities.nbytes if self._priorities is not None else 0
        return self._storage.nbytes + tree

    def push(self, episode: Episode) -> None:
        """Store `episode`, evicting the oldest episodes until it fits.

        Of an episode longer than the buffer the last `size` transitions are stored, and its
        position 0 is then the first of those.

        Args:
          episode: the record; shapes and actions that do not fit the buffer are refused.

        Raises:
          ValueError: an observation, reward, value or policy of `episode` is not finite; the
            buffer is unchanged.
        """
        check_shapes(
            episode, observation_shape=self._observation_shape, num_actions=self._num_actions
        )
        check_finite(episode)
        self._num_pushed_transitions += num_steps(episode)
        episode = last_steps(episode, self._storage.size)
        while self._storage.num_transitions + num_steps(episode) > self._storage.size:
            self._set_masses(self._storage.pop_oldest(), np.zeros(1))
        rows = self._storage.append(episode)
        self._set_masses(rows, self._to_mass(np.abs(episode.raw_values - episode.root_values)))

    def sample(
        self, batch_size: int, rng: np.random.Generator, *, priority_beta: float = 0.4
    ) -> ReplayBatch:
        """Draw positions with replacement and return them unrolled, with their targets.

        With priorities, a sample's importance weight is (1 / (N P))^beta, divided by the largest
        of the batch, where P is its chance and N the number of stored transitions.

        Args:
          batch_size: B.
          rng: source of the positions and of the actions past the end.
          priority_beta: beta, 0 for no correction, 1 for a full one; without priorities all
            weights are 1.
        """
        num_stored = self._storage.num_transitions
        assert num_stored > 0, "an empty buffer cannot be sampled"
        if self._priorities is None:
            offsets = rng.integers(num_stored, size=batch_size)
            rows = (self._storage.first_row + offsets) % self._storage.size
            weights = np.ones(batch_size, np.float32)
        else:
            rows = self._priorities.sample(batch_size, rng)
            chances = self._priorities.values(rows) / self._priorities.total
            raw_weights = (num_stored * chances) ** -priority_beta
            weights = (raw_weights / raw_weights.max()).astype(np.float32)
        return self._batch_at(rows, weights, rng)

    def ages(self, episode_ids: Int64Array, positions: Int64Array) -> Int64Array:
        """Return how many transitions arrived after each of these stored ones, `[B]`.

        Args:
          episode_ids: `[B]`, as in a batch that was drawn since the last push.
          positions: `[B]`, the same.
        """
        rows = self._storage.find(episode_ids, positions)
        places = (rows - self._storage.first_row) % self._storage.size
        ages: Int64Array = self._storage.num_transitions - 1 - places
        return ages

    def priorities(self) -> Float64Array:
        """Return each stored transition's priority, oldest first; 1 where all are drawn alike."""
        if self._priorities is None or self._alpha == 0:
            return np.ones(self.num_transitions)
        masses = self._priorities.values(self._storage.rows())
        priorities: Float64Array = masses ** (1 / self._alpha) - self._epsilon
        return priorities

    def update_priorities(
        self, episode_ids: Int64Array, positions: Int64Array, priorities: NDArray[np.floating[Any]]
    ) -> None:
        """Set the priorities of sampled transitions; those evicted since are left out.

        Args:
          episode_ids: `[B]`, as in the batch.
          positions: `[B]`, as in the batch.
          priorities: `[B]`, at least 0, such as |value - value target|. Of a transition that
            occurs twice the later entry counts.

        Raises:
          ValueError: a priority is not finite or negative; nothing is changed.
        """
        assert self._priorities is not None, "the buffer was made with use_priority=False"
        assert episode_ids.shape == positions.shape == priorities.shape, "one priority a sample"
        if not np.all((priorities >= 0) & np.isfinite(priorities)):
            raise ValueError("priorities must be finite and at least 0")
        assert np.all(episode_ids < self.num_pushed_episodes), "an episode that is yet to come"
        is_stored = episode_ids >= self.num_evicted_episodes
        rows = self._storage.find(episode_ids[is_stored], positions[is_stored])
        self._priorities.set(rows, self._to_mass(priorities[is_stored]))

    def check_valid(self) -> tuple[bool, str]:
        """Return whether the invariants of the storage hold, and if not, which fail."""
        failed = self._storage.failed_checks()
        if self.num_evicted_transitions < 0:
            failed.append("more transitions than were pushed")
        if self._priorities is not None:
            is_sum, reason = self._priorities.check_valid()
            masses = self._priorities.values(np.arange(self._storage.size))
            if not is_sum:
                failed.append(reason)
            if not np.all(masses[self._storage.rows()] > 0):
                failed.append("a stored row without priority")
            if np.count_nonzero(masses) > self._storage.num_transitions:
                failed.append("an evicted row with priority")
        return not failed, "; ".join(failed)

    def state_dict(self) -> StateDict:
        """Return all that is stored, oldest first, as numpy arrays and Python scalars."""
        state: StateDict = {
            "num_pushed_transitions": self._num_pushed_transitions,
            "storage": self._storage.state_dict(),
        }
        if self._priorities is not None:
            state["priorities"] = self._priorities.values(self._storage.rows())
        return state

    def load_state_dict(self, state: StateDict) -> None:
        """Replace the content by what `state_dict` returned.

        The same rng then draws the same batches, and pushes evict the same episodes.

        Raises:
          UserError: the state is of a buffer of another size or another use of priorities, or of
            an older version.
        """
        self._check_loadable(state)
        self._num_pushed_transitions = int(state["num_pushed_transitions"])
        self._storage.load_state_dict(state["storage"])
        if self._priorities is not None:
            self._priorities = SumTree(self._storage.size)
            self._priorities.set(self._storage.rows(), state["priorities"])

    def _check_loadable(self, state: StateDict) -> None:
        """Refuse a state that this buffer cannot hold."""
        if "legal_actions" not in state["storage"]["ring"]:
            raise UserError(
                "the saved replay buffer is of an older version, without action masks: move its "
                "replay_buffer file away, and the buffer fills again on resume"
            )
        saved_size, size = state["storage"]["size"], self._storage.size
        if saved_size != size:
            raise UserError(
                f"the saved replay buffer has room for {saved_size} transitions, this one for "
                f"{size}: resume with the same policy.replay_buffer_size"
            )
        if ("priorities" in state) != (self._priorities is not None):
            raise UserError(
                "the saved replay buffer and this one differ in the use of priorities: "
                "resume with the same policy.use_priority"
            )

    def _set_masses(self, rows: Int64Array, masses: Float64Array) -> None:
        """Set what the rows weigh in the draw, if there are priorities."""
        if self._priorities is not None:
            self._priorities.set(rows, np.broadcast_to(masses, rows.shape))

    def _to_mass(self, priorities: NDArray[np.floating[Any]]) -> Float64Array:
        """Return what a priority weighs in the draw: (priority + epsilon)^alpha."""
        mass: Float64Array = (priorities.astype(np.float64) + self._epsilon) ** self._alpha
        return mass

    def _batch_at(
        self, rows: Int64Array, importance_weights: Float32Array, rng: np.random.Generator
    ) -> ReplayBatch:
        """Return the transitions in `rows` [B] unrolled, with their targets."""
        samples = self._storage.locate(rows)
        lengths, is_terminated = samples.lengths, samples.is_terminated
        steps = samples.positions[:, None] + np.arange(self._num_unroll_steps + 1)
        reward_steps = samples.positions[:, None] + np.arange(len(self._weights))
        bootstrap = targets.bootstrap(
            steps, lengths, is_terminated, discount=self._discount, td_steps=self._td_steps
        )
        masks = targets.unroll_masks(steps, lengths, is_terminated)
        unroll = self._storage.window(samples, steps)
        bootstrap_window = self._storage.window(samples, bootstrap.steps)
        rewards = self._rewards_at(self._storage.window(samples, reward_steps))
        return ReplayBatch(
            observations=self._storage.observations(unroll),
            legal_actions=self._storage.legal_actions(unroll),
            actions=self._actions_at(self._storage.window(samples, steps[:, :-1]), rng),
            rewards=np.ascontiguousarray(rewards[:, : self._num_unroll_steps]),
            value_prefix=targets.value_prefix(rewards, self._weights),
            bootstrap_discount=bootstrap.discount,
            bootstrap_observations=self._storage.observations(bootstrap_window),
            bootstrap_legal_actions=self._storage.legal_actions(bootstrap_window),
            bootstrap_values=self._values_at(bootstrap_window) * (bootstrap.discount != 0),
            policies=self._policies_at(unroll),
            policy_mask=masks.policy,
            value_mask=masks.value,
            reward_mask=masks.reward,
            consistency_mask=masks.consistency,
            importance_weights=importance_weights,
            is_reanalyzed=np.zeros(len(rows), np.float32),
            episode_ids=samples.episode_ids,
            positions=samples.positions,
        )

    def _rewards_at(self, window: Window) -> Float32Array:
        """Return the rewards; 0 past the end."""
        return np.where(window.is_inside, self._storage.rewards(window), np.float32(0))

    def _actions_at(self, window: Window, rng: np.random.Generator) -> Int32Array:
        """Return the actions; random ones past the end."""
        random_actions = rng.integers(self._num_actions, size=window.rows.shape, dtype=np.int32)
        return np.where(window.is_inside, self._storage.actions(window), random_actions)

    def _values_at(self, window: Window) -> Float32Array:
        """Return the search values; at the end the closest stored estimate.

        The last observation was never searched. Its estimate is the value of the one before, with
        the sign turned if the players alternate.
        """
        values = self._storage.root_values(window)
        return np.where(window.is_inside | (self._discount >= 0), values, -values)

    def _policies_at(self, window: Window) -> Float32Array:
        """Return the policy targets; uniform ones past the end."""
        policies = self._storage.policies(window)
        policies[~window.is_inside] = 1.0 / self._num_actions
        return policies
