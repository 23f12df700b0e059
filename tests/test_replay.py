"""The replay buffer against a plain list of episodes, by hand and by properties."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightzero_lite.replay import ReplayBuffer
from lightzero_lite.types import Episode, ReplayBatch, UserError

NUM_ACTIONS = 3


def make_episode(number: int, length: int, *, is_terminated: bool = True) -> Episode:
    """Make an episode of which every entry differs from those of all others."""
    steps = np.arange(length + 1, dtype=np.float32)
    rng = np.random.default_rng(number)
    actions = rng.integers(NUM_ACTIONS, size=length, dtype=np.int32)
    legal_actions = rng.random((length + 1, NUM_ACTIONS)) < 0.5
    legal_actions[np.arange(length), actions] = True
    return Episode(
        observations=np.stack([np.full(length + 1, number, np.float32), steps], axis=1),
        legal_actions=legal_actions,
        actions=actions,
        rewards=rng.normal(size=length).astype(np.float32),
        root_values=rng.normal(size=length).astype(np.float32),
        raw_values=rng.normal(size=length).astype(np.float32),
        policies=rng.dirichlet(np.ones(NUM_ACTIONS), size=length).astype(np.float32),
        is_terminated=is_terminated,
    )


def make_buffer(**changes: Any) -> ReplayBuffer:
    arguments = {
        "size": 10,
        "observation_shape": (2,),
        "num_actions": NUM_ACTIONS,
        "td_steps": 3,
        "num_unroll_steps": 2,
        "discount": 0.9,
    }
    return ReplayBuffer(**(arguments | changes))


def suffix(episode: Episode, size: int) -> Episode:
    """Return what a buffer of `size` keeps of an episode."""
    return Episode(*(field[-size - (i < 2) :] for i, field in enumerate(episode[:-1])), episode[-1])


class PlainBuffer:
    """The slow model: a list of (number, episode), and loops over samples and steps."""

    def __init__(self, size: int) -> None:
        """Make an empty model."""
        self.size, self.next_id = size, 0
        self.episodes: deque[tuple[int, Episode]] = deque()

    @property
    def num_transitions(self) -> int:
        """Transitions stored now."""
        return sum(len(episode.actions) for _, episode in self.episodes)

    def push(self, episode: Episode) -> None:
        """Append, then drop from the front while there are too many transitions."""
        self.episodes.append((self.next_id, suffix(episode, self.size)))
        self.next_id += 1
        while self.num_transitions > self.size:
            self.episodes.popleft()

    def positions(self) -> list[tuple[int, int]]:
        """List (episode id, position) of every transition, oldest first."""
        return [(i, t) for i, episode in self.episodes for t in range(len(episode.actions))]


def slow_row(episode: Episode, t: int, unroll: int, td_steps: int, discount: float) -> dict:
    """Unroll one position step by step; "actions" holds None where any action may stand."""
    length = len(episode.actions)
    row: dict[str, list[Any]] = {name: [] for name in ReplayBatch._fields[:-3]}
    for s in range(t, t + unroll + 1):
        end = min(s + td_steps, length) if s <= length else s
        row["observations"].append(episode.observations[min(s, length)])
        row["legal_actions"].append(episode.legal_actions[min(s, length)])
        row["bootstrap_observations"].append(episode.observations[min(end, length)])
        row["bootstrap_legal_actions"].append(episode.legal_actions[min(end, length)])
        row["value_prefix"].append(
            sum(discount**i * episode.rewards[s + i] for i in range(end - s))
        )
        if end < length:
            factor, value = discount ** (end - s), episode.root_values[end]
        elif end == length and not episode.is_terminated:
            # Nobody searched the last observation: the value before it, as the mover sees it.
            factor = discount ** (end - s)
            value = episode.root_values[-1] * (-1 if discount < 0 else 1)
        else:
            factor, value = 0.0, 0.0
        row["bootstrap_discount"].append(factor)
        row["bootstrap_values"].append(value)
        uniform = np.full(NUM_ACTIONS, 1 / NUM_ACTIONS)
        row["policies"].append(episode.policies[s] if s < length else uniform)
        row["policy_mask"].append(float(s < length))
        row["value_mask"].append(float(s <= length or episode.is_terminated))
        if s < t + unroll:
            row["actions"].append(episode.actions[s] if s < length else None)
            row["rewards"].append(episode.rewards[s] if s < length else 0.0)
            row["reward_mask"].append(float(s < length or episode.is_terminated))
            row["consistency_mask"].append(float(s + 1 <= length))
    return row


def assert_batch_is(batch: ReplayBatch, plain: PlainBuffer, **numbers: Any) -> None:
    """Compare every field of every sample with the slow model."""
    episodes = dict(plain.episodes)
    for b, (episode_id, t) in enumerate(zip(batch.episode_ids, batch.positions, strict=True)):
        row = slow_row(episodes[int(episode_id)], int(t), **numbers)
        for k, action in enumerate(row.pop("actions")):
            assert batch.actions[b, k] == action if action is not None else True
        for name, expected in row.items():
            np.testing.assert_allclose(
                getattr(batch, name)[b], np.array(expected), rtol=1e-5, atol=1e-6, err_msg=name
            )


def batches_equal(one: ReplayBatch, other: ReplayBatch) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


# Content of a batch.


@settings(deadline=None, max_examples=100)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=8),
    size=st.integers(1, 25),
    unroll=st.integers(0, 4),
    td_steps=st.integers(1, 7),
    discount=st.sampled_from([1.0, 0.9, -0.99, -1.0]),
    use_priority=st.booleans(),
)
def test_every_field_agrees_with_a_loop_over_steps(
    lengths: list[tuple[int, bool]],
    size: int,
    unroll: int,
    td_steps: int,
    discount: float,
    use_priority: bool,
) -> None:
    numbers = {"td_steps": td_steps, "discount": discount}
    buffer = make_buffer(size=size, num_unroll_steps=unroll, use_priority=use_priority, **numbers)
    plain = PlainBuffer(size)
    for number, (length, is_terminated) in enumerate(lengths):
        for target in (buffer, plain):
            target.push(make_episode(number, length, is_terminated=is_terminated))
    batch = buffer.sample(64, np.random.default_rng(0))
    assert_batch_is(batch, plain, unroll=unroll, **numbers)
    assert np.all((batch.actions >= 0) & (batch.actions < NUM_ACTIONS))


def test_a_batch_has_the_stated_shapes_and_types() -> None:
    buffer = make_buffer(use_priority=True)
    buffer.push(make_episode(0, 4))
    batch = buffer.sample(5, np.random.default_rng(0))
    shapes = {
        "observations": (5, 3, 2),
        "actions": (5, 2),
        "rewards": (5, 2),
        "bootstrap_observations": (5, 3, 2),
        "legal_actions": (5, 3, NUM_ACTIONS),
        "bootstrap_legal_actions": (5, 3, NUM_ACTIONS),
        "policies": (5, 3, NUM_ACTIONS),
        "reward_mask": (5, 2),
        "consistency_mask": (5, 2),
    } | dict.fromkeys(["importance_weights", "is_reanalyzed", "episode_ids", "positions"], (5,))
    others = {"actions": np.int32, "episode_ids": np.int64, "positions": np.int64}
    others |= {"legal_actions": np.bool_, "bootstrap_legal_actions": np.bool_}
    for name, array in batch._asdict().items():
        assert array.shape == shapes.get(name, (5, 3)), name
        assert array.dtype == others.get(name, np.float32), name
        assert array.flags.c_contiguous, name


def test_actions_past_the_end_are_drawn_from_all_legal_ones() -> None:
    # One step only, so that action 1 of each sample lies past the end.
    buffer = make_buffer()
    buffer.push(make_episode(0, 1))
    counts = np.bincount(buffer.sample(3000, np.random.default_rng(0)).actions[:, 1])
    # Chi-square with 2 degrees of freedom: 13.8 is passed once in a thousand seeds.
    assert float(np.sum((counts - 1000) ** 2 / 1000)) < 13.8


def test_images_and_scalars_can_be_observations() -> None:
    for shape in ((), (2, 3, 4)):
        buffer = make_buffer(observation_shape=shape)
        observations = np.arange(6 * int(np.prod(shape)), dtype=np.float32)
        episode = make_episode(0, 5)._replace(observations=observations.reshape(6, *shape))
        buffer.push(episode)
        batch = buffer.sample(20, np.random.default_rng(0))
        for b, t in enumerate(batch.positions):
            expected = episode.observations[np.minimum(t + np.arange(3), 5)]
            np.testing.assert_array_equal(batch.observations[b], expected)


# Ring: order, wraparound, eviction.


def test_the_oldest_episodes_leave_first() -> None:
    buffer = make_buffer(size=10)
    stored = []
    for number, length in enumerate([4, 3, 3, 1, 9, 10, 2]):
        buffer.push(make_episode(number, length))
        ids = buffer.sample(200, np.random.default_rng(number)).episode_ids
        stored.append(sorted({int(i) for i in ids}))
        assert buffer.num_pushed_episodes == number + 1
    # 4 + 3 + 3 fill it; one more step costs the whole episode 0; 9 leave room for one step only.
    assert stored == [[0], [0, 1], [0, 1, 2], [1, 2, 3], [3, 4], [5], [6]]
    assert (buffer.num_transitions, buffer.num_episodes) == (2, 1)
    assert (buffer.num_pushed_transitions, buffer.num_evicted_transitions) == (32, 30)
    assert buffer.num_evicted_episodes == 6


def test_the_age_of_a_transition_is_how_many_came_after_it() -> None:
    buffer = make_buffer(size=10)
    for number, length in enumerate([4, 4, 5]):
        buffer.push(make_episode(number, length))
    # Episode 0 is gone; episode 2 takes rows 8, 9, 0, 1, 2.
    ages = buffer.ages(np.array([2, 2, 2, 1, 1]), np.array([4, 2, 0, 3, 0]))
    assert ages.tolist() == [0, 2, 4, 5, 8]


def test_an_episode_wraps_round_the_end_of_the_ring() -> None:
    # Episode 2 takes rows 8, 9, 0, 1, 2: its values must come back in order.
    buffer, plain = make_buffer(size=10), PlainBuffer(10)
    for number, length in enumerate([4, 4, 5]):
        for target in (buffer, plain):
            target.push(make_episode(number, length))
    assert buffer.state_dict()["storage"]["episodes"]["starts"].tolist() == [4, 8]
    batch = buffer.sample(100, np.random.default_rng(0))
    assert {int(t) for t in batch.positions[batch.episode_ids == 2]} == {0, 1, 2, 3, 4}
    assert_batch_is(batch, plain, unroll=2, td_steps=3, discount=0.9)


@pytest.mark.parametrize("is_terminated", [True, False])
def test_of_an_episode_longer_than_the_buffer_the_end_is_kept(is_terminated: bool) -> None:
    buffer = make_buffer(size=6)
    buffer.push(make_episode(0, 2))
    buffer.push(make_episode(1, 9, is_terminated=is_terminated))
    assert (buffer.num_transitions, buffer.num_episodes) == (6, 1)
    assert (buffer.num_pushed_transitions, buffer.num_evicted_transitions) == (11, 5)
    batch = buffer.sample(100, np.random.default_rng(0))
    # Steps 3..8 of the episode are positions 0..5, and the last is followed by observation 9.
    np.testing.assert_array_equal(batch.observations[:, 0, 1], batch.positions + 3)
    is_last = batch.positions == 5
    assert np.all(batch.observations[is_last, 1, 1] == 9)
    assert np.all(batch.value_mask[is_last, 2] == float(is_terminated))
    assert buffer.check_valid() == (True, "")


@settings(deadline=None, max_examples=60)
@given(
    size=st.integers(1, 30),
    operations=st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.integers(1, 40)),
            st.tuples(st.just("update"), st.integers(1, 20)),
            st.tuples(st.just("reload"), st.just(0)),
        ),
        max_size=25,
    ),
)
def test_random_operations_keep_the_invariants(
    size: int, operations: list[tuple[str, int]]
) -> None:
    buffer, plain = make_buffer(size=size, use_priority=True), PlainBuffer(size)
    rng, pushed, seen = np.random.default_rng(0), 0, None
    for number, (name, count) in enumerate(operations):
        if name == "push":
            pushed += count
            for target in (buffer, plain):
                target.push(make_episode(number, count, is_terminated=count % 2 == 0))
            seen = seen or buffer.sample(count, rng)
        elif name == "update" and seen is not None:
            # Mostly of samples that were evicted long ago.
            buffer.update_priorities(
                seen.episode_ids, seen.positions, rng.random(len(seen.positions))
            )
        elif name == "reload":
            state = buffer.state_dict()
            buffer = make_buffer(size=size, use_priority=True)
            buffer.load_state_dict(state)
        assert buffer.check_valid() == (True, "")
        assert buffer.num_transitions == plain.num_transitions
        assert buffer.num_episodes == len(plain.episodes)
        assert buffer.num_pushed_transitions == pushed
    if pushed:
        batch = buffer.sample(50, rng)
        assert_batch_is(batch, plain, unroll=2, td_steps=3, discount=0.9)


def test_check_valid_finds_damage() -> None:
    def damaged(harm: str) -> str:
        buffer = make_buffer(use_priority=True)
        buffer.push(make_episode(0, 4))
        buffer.push(make_episode(1, 5))
        exec(harm, {"buffer": buffer, "storage": buffer._storage, "np": np})
        return buffer.check_valid()[1]

    assert damaged("storage.episodes.lengths[0] = 5").startswith("lengths do not add up")
    assert damaged("storage.episodes.starts[1] = 5") == "a gap between episodes"
    assert damaged("storage._row_episode[3] = 1") == "a row names another episode"
    assert damaged("storage.num_transitions = 11").startswith("more transitions than the size")
    assert "without priority" in damaged("buffer._priorities.set(np.array([2]), np.zeros(1))")
    assert "evicted row" in damaged("buffer._priorities.set(np.array([9]), np.ones(1))")


# Draws, priorities and importance weights.


def count_draws(buffer: ReplayBuffer, num_draws: int) -> dict[tuple[int, int], int]:
    """Draw one at a time, so that the draws are independent, and count (episode, position)."""
    rng, counts = np.random.default_rng(3), dict[tuple[int, int], int]()
    for _ in range(num_draws):
        batch = buffer.sample(1, rng)
        key = (int(batch.episode_ids[0]), int(batch.positions[0]))
        counts[key] = counts.get(key, 0) + 1
    return counts


def test_uniform_draws_reach_every_transition_alike() -> None:
    buffer, plain = make_buffer(size=10), PlainBuffer(10)
    for number, length in enumerate([4, 4, 5]):
        for target in (buffer, plain):
            target.push(make_episode(number, length))
    batch = buffer.sample(9000, np.random.default_rng(0))
    drawn = list(zip(batch.episode_ids.tolist(), batch.positions.tolist(), strict=True))
    counts = np.array([drawn.count(position) for position in plain.positions()])
    assert counts.sum() == 9000
    # Chi-square with 8 degrees of freedom: 26.1 is passed once in a thousand seeds.
    assert float(np.sum((counts - 1000) ** 2 / 1000)) < 26.1
    assert np.all(batch.importance_weights == 1.0)


def test_draws_follow_priority_to_the_power_of_alpha() -> None:
    buffer = make_buffer(use_priority=True, priority_alpha=0.5)
    buffer.push(
        make_episode(0, 3)._replace(
            root_values=np.array([1.0, 4.0, -9.0], np.float32), raw_values=np.zeros(3, np.float32)
        )
    )
    counts = count_draws(buffer, 3000)
    expected = 3000 * np.array([1, 2, 3]) / 6
    observed = np.array([counts[0, t] for t in range(3)])
    assert float(np.sum((observed - expected) ** 2 / expected)) < 13.8


def test_importance_weights_by_hand() -> None:
    # P = 1/4, 3/4 and N = 2: 1 / (N P) is 2 and 2/3, so 1 and 1/3 of the largest.
    buffer = make_buffer(use_priority=True, priority_alpha=1.0, priority_epsilon=1e-12)
    buffer.push(
        make_episode(0, 2)._replace(
            root_values=np.array([1.0, 2.0], np.float32),
            raw_values=np.array([2.0, 5.0], np.float32),
        )
    )
    for beta, low in ((1.0, 1 / 3), (0.5, 1 / 3**0.5), (0.0, 1.0)):
        batch = buffer.sample(64, np.random.default_rng(0), priority_beta=beta)
        expected = np.where(batch.positions == 0, 1.0, low)
        np.testing.assert_allclose(batch.importance_weights, expected, rtol=1e-6)
        assert {0, 1} == set(batch.positions.tolist())


def test_updated_priorities_take_effect_where_they_are_addressed() -> None:
    buffer = make_buffer(use_priority=True, priority_alpha=1.0)
    buffer.push(make_episode(0, 3))
    buffer.push(make_episode(1, 3))
    buffer.update_priorities(
        np.array([0, 0, 0, 1, 1, 1, 1]), np.array([0, 1, 2, 0, 1, 2, 2]), np.array([0.0] * 6 + [7])
    )
    batch = buffer.sample(200, np.random.default_rng(0))
    assert set(zip(batch.episode_ids.tolist(), batch.positions.tolist(), strict=True)) == {(1, 2)}


def test_priorities_of_evicted_episodes_are_dropped() -> None:
    # Episode 1 now has the rows that episode 0 had when it was sampled.
    buffer = make_buffer(size=4, use_priority=True)
    buffer.push(make_episode(0, 4))
    buffer.push(make_episode(1, 4))
    before = buffer.state_dict()["priorities"]
    buffer.update_priorities(np.zeros(4, np.int64), np.arange(4), np.full(4, 1e6))
    np.testing.assert_array_equal(buffer.state_dict()["priorities"], before)
    buffer.update_priorities(np.array([0, 1]), np.array([2, 3]), np.array([1e6, 1e6]))
    after = buffer.state_dict()["priorities"]
    np.testing.assert_array_equal(after[:3], before[:3])
    assert after[3] == pytest.approx(1e6**0.6, rel=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.1])
def test_a_priority_that_is_no_number_is_refused(bad: float) -> None:
    buffer = make_buffer(use_priority=True)
    buffer.push(make_episode(0, 2))
    with pytest.raises(ValueError, match="priorities"):
        buffer.update_priorities(np.zeros(2, np.int64), np.arange(2), np.array([1.0, bad]))


def test_priorities_of_unknown_transitions_are_a_mistake() -> None:
    buffer = make_buffer(use_priority=True)
    buffer.push(make_episode(0, 2))
    for episode_id, position in ((1, 0), (0, 2), (0, -1)):
        with pytest.raises(AssertionError):
            buffer.update_priorities(np.array([episode_id]), np.array([position]), np.ones(1))
    with pytest.raises(AssertionError, match="use_priority"):
        make_buffer().update_priorities(np.zeros(0, int), np.zeros(0, int), np.zeros(0))


# What is refused.


@pytest.mark.parametrize(
    "name", ["observations", "rewards", "root_values", "raw_values", "policies"]
)
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_non_finite_quantities_are_named_and_leave_the_buffer_alone(name: str, bad: float) -> None:
    buffer = make_buffer()
    buffer.push(make_episode(0, 8))
    episode = make_episode(1, 3)
    getattr(episode, name)[2] = bad
    with pytest.raises(ValueError, match=f"non-finite {name} in an episode, first at index 2"):
        buffer.push(episode)
    assert (buffer.num_transitions, buffer.num_pushed_transitions) == (8, 8)


def test_episodes_that_do_not_fit_the_buffer_are_refused() -> None:
    good = make_episode(0, 3)
    for field, value, message in (
        ("observations", good.observations[:-1], "observations has shape"),
        ("rewards", good.rewards[:, None], "rewards has shape"),
        ("policies", good.policies[:, :-1], "policies has shape"),
        ("legal_actions", good.legal_actions[:-1], "legal_actions has shape"),
        ("legal_actions", ~good.legal_actions, "an illegal action at index 0"),
        ("actions", np.array([0, NUM_ACTIONS, 0]), "actions 0..3 of 3"),
        ("actions", np.array([0, -1, 0]), "actions -1..0 of 3"),
        ("actions", np.zeros(0, np.int32), "at least one step"),
    ):
        with pytest.raises(AssertionError, match=message):
            make_buffer().push(good._replace(**{field: value}))


def test_an_empty_buffer_is_not_sampled() -> None:
    with pytest.raises(AssertionError, match="empty"):
        make_buffer().sample(1, np.random.default_rng(0))


# Saving and memory.


def assert_plain(state: Any) -> None:
    """Assert that a state holds nothing but dictionaries, arrays and Python scalars."""
    if isinstance(state, dict):
        for value in state.values():
            assert_plain(value)
    else:
        assert isinstance(state, (int, float)) or type(state) is np.ndarray


@pytest.mark.parametrize("use_priority", [False, True])
def test_a_restored_buffer_continues_as_the_saved_one(use_priority: bool) -> None:
    buffer = make_buffer(size=30, use_priority=use_priority)
    for number, length in enumerate([7, 9, 3, 11, 8]):
        buffer.push(make_episode(number, length, is_terminated=number % 2 == 0))
    if use_priority:
        seen = buffer.sample(10, np.random.default_rng(0))
        buffer.update_priorities(seen.episode_ids, seen.positions, np.linspace(0, 5, 10))
    state = buffer.state_dict()
    assert_plain(state)
    restored = make_buffer(size=30, use_priority=use_priority)
    restored.push(make_episode(99, 20))
    restored.load_state_dict(state)
    assert restored.check_valid() == (True, "")
    rngs = np.random.default_rng(5), np.random.default_rng(5)
    for number, length in enumerate([6, 30, 1, 4]):
        assert batches_equal(buffer.sample(40, rngs[0]), restored.sample(40, rngs[1]))
        for target in (buffer, restored):
            target.push(make_episode(10 + number, length))
        assert restored.num_evicted_transitions == buffer.num_evicted_transitions
        assert restored.num_episodes == buffer.num_episodes


def test_a_saved_state_does_not_change_with_the_buffer() -> None:
    buffer = make_buffer(size=4)
    buffer.push(make_episode(0, 4))
    state = buffer.state_dict()
    before = state["storage"]["ring"]["rewards"].copy()
    buffer.push(make_episode(1, 4))
    np.testing.assert_array_equal(state["storage"]["ring"]["rewards"], before)


def test_a_state_of_another_buffer_is_refused_with_the_key_to_change() -> None:
    state = make_buffer(size=10).state_dict()
    with pytest.raises(UserError, match=r"room for 10 .* 11: .*policy\.replay_buffer_size"):
        make_buffer(size=11).load_state_dict(state)
    with pytest.raises(UserError, match=r"policy\.use_priority"):
        make_buffer(size=10, use_priority=True).load_state_dict(state)
    del state["storage"]["ring"]["legal_actions"]
    with pytest.raises(UserError, match=r"without action masks: move its replay_buffer file away"):
        make_buffer(size=10).load_state_dict(state)


@pytest.mark.parametrize("use_priority", [False, True])
def test_a_million_cartpole_transitions_take_at_most_100_mb(use_priority: bool) -> None:
    buffer = make_buffer(
        size=1_000_000, observation_shape=(4,), num_actions=2, use_priority=use_priority
    )
    # The table of episodes grows with their number, at worst one a transition, and by doubling.
    per_slot = buffer._storage.episodes.nbytes / len(buffer._storage.episodes.starts)
    fixed = buffer.memory_bytes - buffer._storage.episodes.nbytes
    assert fixed >= 1_000_000 * (4 * 4 + 2 + 1 + 4 + 4 + 2 * 4)
    assert fixed + 2**20 * per_slot <= 100e6


def test_memory_stays_flat_once_the_buffer_is_full() -> None:
    buffer = make_buffer(size=500, use_priority=True)
    for number in range(500):
        buffer.push(make_episode(number, 1))
    full = buffer.memory_bytes
    for number in range(3000):
        buffer.push(make_episode(number, 1 + number % 3))
    assert buffer.memory_bytes == full
    assert buffer.check_valid() == (True, "")
