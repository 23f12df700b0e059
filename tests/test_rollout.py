"""Whole episodes, compared step by step with what the environments themselves recorded."""

from __future__ import annotations

import numpy as np
import pytest

from lightzero_lite.config import EnvConfig
from lightzero_lite.envs.factory import env_shape, make_env
from lightzero_lite.envs.rollout import Decisions, FinishedEpisode, play_episodes
from lightzero_lite.envs.vector import VectorEnv
from lightzero_lite.types import BoolArray, Float32Array, UserError
from tests import fake_search
from tests.fake_envs import Counter, Step

COMBINATIONS = [(1, 1), (1, 3), (2, 5), (3, 10), (4, 4), (8, 3)]


def fake_envs(name: str, num_envs: int) -> VectorEnv:
    return VectorEnv(EnvConfig(env_id=f"tests.fake_envs:{name}"), num_envs)


def inner(envs: VectorEnv, index: int) -> Counter:
    env = envs.envs[index].unwrapped
    assert isinstance(env, Counter)
    return env


def assert_is_record(finished: FinishedEpisode, record: list[Step]) -> None:
    """Compare a stored episode with an environment's own record of it, one step at a time."""
    episode = finished.episode
    assert len(episode.actions) == len(episode.rewards) == len(record)
    assert len(episode.observations) == len(record) + 1
    for t, step in enumerate(record):
        assert episode.observations[t].tolist() == step.observation
        assert episode.observations[t + 1].tolist() == step.next_observation
        assert episode.actions[t] == step.action
        assert episode.rewards[t] == step.reward
        # What was decided belongs to the observation that it was decided for.
        observation = np.array(step.observation, np.float32)
        assert step.action == fake_search.action_of(observation)
        assert episode.raw_values[t] == fake_search.value_of(observation)
        assert episode.root_values[t] == episode.raw_values[t] + 1
        assert np.array_equal(episode.policies[t], fake_search.policy_of(observation))
    assert [step.terminated or step.truncated for step in record[:-1]] == [False] * (
        len(record) - 1
    )
    assert episode.is_terminated == record[-1].terminated == (not record[-1].truncated)


@pytest.mark.parametrize(("num_envs", "num_episodes"), COMBINATIONS)
def test_every_transition_is_one_that_the_environment_made(
    num_envs: int, num_episodes: int
) -> None:
    envs = fake_envs("BothEndsCounter-v0", num_envs)
    seeds = [1000 + 7 * i for i in range(num_episodes)]
    finished = list(play_episodes(envs, seeds, fake_search.decide))
    assert sorted(one.number for one in finished) == list(range(num_episodes))
    for one in finished:
        env = inner(envs, one.env)
        assert_is_record(one, env.record[env.seeds.index(seeds[one.number])])
    # Nothing was played beside these episodes, and none was left unfinished.
    played = [record for index in range(num_envs) for record in inner(envs, index).record]
    assert len(played) == num_episodes
    assert sum(map(len, played)) == sum(len(one.episode.actions) for one in finished)


def test_both_ends_occur_and_are_told_apart() -> None:
    finished = list(
        play_episodes(fake_envs("BothEndsCounter-v0", 2), list(range(6)), fake_search.decide)
    )
    ends = {one.number: one.episode.is_terminated for one in finished}
    assert ends == {0: True, 1: False, 2: True, 3: False, 4: True, 5: False}


def test_a_time_limit_of_the_configuration_truncates() -> None:
    config = EnvConfig(env_id="tests.fake_envs:FixedCounter-v0", max_episode_steps=4)
    envs = VectorEnv(config, 1)
    (finished,) = play_episodes(envs, [3], fake_search.decide)
    assert finished.episode.rewards.tolist() == [1, 2, 3, 4]
    assert finished.episode.is_terminated is False
    assert env_shape(envs.envs[0]).max_episode_steps == 4


def test_end_and_time_limit_in_one_step_count_as_the_end() -> None:
    config = EnvConfig(env_id="tests.fake_envs:FixedCounter-v0", max_episode_steps=7)
    (finished,) = play_episodes(VectorEnv(config, 1), [3], fake_search.decide)
    assert len(finished.episode.rewards) == 7
    assert finished.episode.is_terminated is True


def test_an_episode_is_the_same_whatever_the_number_of_environments() -> None:
    seeds = [5 * i for i in range(9)]
    runs = []
    for num_envs in (1, 2, 4, 9):
        finished = play_episodes(
            fake_envs("BothEndsCounter-v0", num_envs), seeds, fake_search.decide
        )
        runs.append([one.episode for one in sorted(finished, key=lambda one: one.number)])
    for run in runs[1:]:
        for episode, expected in zip(run, runs[0], strict=True):
            for field, other in zip(episode, expected, strict=True):
                assert np.array_equal(field, other)


def test_the_batch_holds_the_environments_in_play_and_no_other() -> None:
    sizes: list[int] = []

    def decide(observations: Float32Array, invalid: BoolArray | None) -> Decisions:
        sizes.append(len(observations))
        return fake_search.decide(observations)

    envs = fake_envs("FixedCounter-v0", 3)  # each episode has 7 steps
    assert len(list(play_episodes(envs, list(range(5)), decide))) == 5
    assert sizes == [3] * 7 + [2] * 7


def test_the_last_observation_is_a_copy_that_a_later_episode_cannot_change() -> None:
    def decide(observations: Float32Array, invalid: BoolArray | None) -> Decisions:
        zeros = np.zeros(len(observations), np.float32)
        return Decisions(zeros.astype(np.int32), zeros, zeros, np.zeros((1, 2), np.float32))

    finished = list(play_episodes(fake_envs("Reusing-v0", 1), [0, 1], decide))
    assert [one.episode.observations[:, 0].tolist() for one in finished] == [[0, 1, 2, 3]] * 2


def test_dictionaries_are_flattened_and_actions_start_where_the_space_starts() -> None:
    envs = fake_envs("Dict-v0", 1)
    assert env_shape(envs.envs[0])[:2] == (5, 3)
    assert envs.local[0].reset(1).observation.tolist() == [0, 1, 0, 0, 0]
    assert envs.local[0].step(0).observation.tolist() == [0, 0, 1, -1, -1]
    assert envs.local[0].step(2).observation.tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("name", ["NanReward-v0", "InfiniteReward-v0"])
def test_a_reward_that_is_not_finite_stops_the_run(name: str) -> None:
    envs = fake_envs(name, 1)
    envs.local[0].reset(1)
    with pytest.raises(FloatingPointError, match="env 0 returned"):
        envs.local[0].step(0)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("Pendulum-v1", "the action space is Box(-2.0, 2.0, (1,), float32), but must be Discrete"),
        (
            "tests.fake_envs:Image-v0",
            "observations of shape (8, 8) are images, but must be vectors "
            "(env.wrappers=[gymnasium.wrappers:FlattenObservation] makes them such: "
            "docs/environments.md)",
        ),
        (
            "tests.fake_envs:Sequence-v0",
            "observations in Sequence(Discrete(3), stack=False) cannot be made a vector",
        ),
    ],
)
def test_spaces_that_the_networks_cannot_take_are_refused(env_id: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        make_env(EnvConfig(env_id=env_id))
    assert str(refused.value) == f"env.env_id={env_id}: {message}"


@pytest.mark.parametrize(
    ("env_id", "part"),
    [
        ("CartPol-v1", "CartPole"),
        ("CartPole-v99", "v1"),
        ("nowhere.at_all:Counter-v0", "nowhere"),
        ("not an id", "not an id"),
        ("tests.fake_envs:Nothing-v0", "Nothing"),
    ],
)
def test_ids_that_do_not_exist_are_refused_in_one_line(env_id: str, part: str) -> None:
    with pytest.raises(UserError) as refused:
        make_env(EnvConfig(env_id=env_id))
    line = str(refused.value)
    assert line.startswith(f"env.env_id={env_id}: ")
    assert part in line.removeprefix(f"env.env_id={env_id}: ")
    assert "\n" not in line
