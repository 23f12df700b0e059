"""Collect phases: exactly the episodes asked for, on seeds that belong to the episodes."""

from __future__ import annotations

from collections import Counter as Tally
from typing import cast

import numpy as np
import pytest

from lightzero_lite.collector import (
    Collected,
    Collector,
    CollectPhase,
    CollectTotals,
    collector_fields,
)
from lightzero_lite.config import Config, EnvConfig
from lightzero_lite.envs.vector import VectorEnv
from lightzero_lite.predictor import Predictor
from lightzero_lite.runtime.distributed import Ranks, share
from lightzero_lite.types import Episode, EpisodeSummary
from tests import fake_search
from tests.builders import on_ranks
from tests.fake_envs import Counter

COLLECTOR_FIELDS = [
    "episode_count",
    "envstep_count",
    "train_sample_count",
    "avg_envstep_per_episode",
    "avg_sample_per_episode",
    "avg_envstep_per_sec",
    "avg_train_sample_per_sec",
    "avg_episode_per_sec",
    "collect_time",
    "reward_mean",
    "reward_std",
    "each_reward",
    "reward_max",
    "reward_min",
    "total_envstep_count",
    "total_train_sample_count",
    "total_episode_count",
    "total_duration",
]


def make_collector(num_envs: int, *, seed: int = 0, ranks: Ranks | None = None) -> Collector:
    ranks = ranks or Ranks()
    env = EnvConfig(env_id="tests.fake_envs:BothEndsCounter-v0", collector_env_num=num_envs)
    envs = VectorEnv(env, share(num_envs, ranks.rank, ranks.num_ranks))
    predictor = cast(Predictor, fake_search.FakePredictor())
    return Collector(Config(env=env, seed=seed), envs, predictor, ranks)


def phase(num_episodes: int, *, number: int = 0, first: int = 0, eps: float = 0.0) -> CollectPhase:
    return CollectPhase(number=number, first_episode=first, num_episodes=num_episodes, eps=eps)


def collect(num_envs: int, one: CollectPhase, *, seed: int = 0) -> Collected:
    return make_collector(num_envs, seed=seed).collect(one, fake_search.fake_search)


def assert_equal(left: list[Episode], right: list[Episode]) -> None:
    for episode, other in zip(left, right, strict=True):
        for field, value in zip(episode, other, strict=True):
            assert np.array_equal(field, value)


@pytest.mark.parametrize(("num_envs", "num_episodes"), [(1, 1), (2, 5), (3, 11), (4, 4), (8, 3)])
def test_a_phase_plays_exactly_its_episodes(num_envs: int, num_episodes: int) -> None:
    collector = make_collector(num_envs)
    collected = collector.collect(phase(num_episodes), fake_search.fake_search)
    assert [summary.number for summary in collected.summaries] == list(range(num_episodes))
    for summary, episode in zip(collected.summaries, collected.episodes, strict=True):
        env = collector.envs.envs[summary.env].unwrapped
        assert isinstance(env, Counter)
        key = float(episode.observations[0, 0])
        (record,) = [r for r in env.record if r[0].observation[0] == key]
        assert summary.num_steps == len(record) == len(episode.actions)
        assert summary.episode_return == sum(step.reward for step in record)
        assert episode.rewards.tolist() == [step.reward for step in record]
        assert episode.is_terminated == record[-1].terminated


def test_what_is_stored_is_the_answer_for_the_observation_that_it_stands_beside() -> None:
    for episode in collect(3, phase(7)).episodes:
        for t, observation in enumerate(episode.observations[:-1]):
            assert episode.actions[t] == fake_search.action_of(observation)
            assert episode.raw_values[t] == fake_search.value_of(observation)
            assert episode.root_values[t] == fake_search.value_of(observation) + 1
            assert np.array_equal(episode.policies[t], fake_search.policy_of(observation))


def test_an_episode_belongs_to_its_number_whatever_envs_phases_and_ranks_there_are() -> None:
    expected = collect(1, phase(12)).episodes
    assert_equal(collect(5, phase(12)).episodes, expected)
    later = collect(3, phase(4, number=9, first=8)).episodes
    assert_equal(later, expected[8:])

    def share_of(ranks: Ranks) -> Collected:
        return make_collector(5, ranks=ranks).collect(phase(12), fake_search.fake_search)

    answers = on_ranks(3, share_of)
    assert_equal([episode for answer in answers for episode in answer.episodes], expected)
    assert answers[0].summaries == answers[1].summaries == answers[2].summaries
    assert answers[0].seconds == answers[1].seconds == answers[2].seconds
    summaries = answers[0].summaries
    assert [summary.number for summary in summaries] == list(range(12))
    assert [summary.num_steps for summary in summaries] == [len(e.actions) for e in expected]
    assert {summary.env for summary in summaries} == {0, 1, 2, 3, 4}


def test_seeds_differ_between_episodes_and_between_runs() -> None:
    keys = [
        float(episode.observations[0, 0])
        for seed in (0, 1)
        for episode in collect(2, phase(10), seed=seed).episodes
    ]
    assert max(Tally(keys).values()) <= 2  # of 1,000 possible; equal streams would give ten pairs
    assert len(set(keys)) > 15


def test_eps_plays_uniformly_at_random_and_leaves_the_policy_target() -> None:
    episodes = collect(4, phase(200, eps=1.0)).episodes
    actions = np.concatenate([episode.actions for episode in episodes])
    shares = np.bincount(actions, minlength=3) / len(actions)
    # 5 standard deviations of a share of 1/3 among about 3,000 steps.
    assert shares == pytest.approx([1 / 3] * 3, abs=5 * np.sqrt(2 / 9 / len(actions)))
    for t, observation in enumerate(episodes[0].observations[:-1]):
        assert np.array_equal(episodes[0].policies[t], fake_search.policy_of(observation))


def test_half_eps_plays_at_random_half_of_the_time() -> None:
    episodes = collect(4, phase(200, eps=0.5)).episodes
    hits = [
        action == fake_search.action_of(observation)
        for episode in episodes
        for action, observation in zip(episode.actions, episode.observations[:-1], strict=True)
    ]
    assert np.mean(hits) == pytest.approx(0.5 + 0.5 / 3, abs=5 * np.sqrt(2 / 9 / len(hits)))


def test_the_search_stream_is_of_the_phase_and_repeats() -> None:
    first, again = collect(2, phase(4, eps=1.0)), collect(2, phase(4, eps=1.0))
    assert_equal(first.episodes, again.episodes)
    other = collect(2, phase(4, number=1, eps=1.0))
    same_start = [
        np.array_equal(a.observations[0], b.observations[0])
        for a, b in zip(first.episodes, other.episodes, strict=True)
    ]
    assert all(same_start)
    assert any(
        not np.array_equal(a.actions, b.actions)
        for a, b in zip(first.episodes, other.episodes, strict=True)
    )


def test_fields_of_the_collector_log() -> None:
    summaries = [
        EpisodeSummary(number=0, env=0, episode_return=10.0, num_steps=12),
        EpisodeSummary(number=1, env=1, episode_return=-2.0, num_steps=5),
        EpisodeSummary(number=2, env=0, episode_return=4.0, num_steps=7),
    ]
    collected = Collected(episodes=[], summaries=summaries, seconds=2.0)
    fields = collector_fields(collected, CollectTotals(envsteps=1024, episodes=63, seconds=17.5))
    assert list(fields) == COLLECTOR_FIELDS
    assert len(COLLECTOR_FIELDS) == 18
    assert fields == {
        "episode_count": 3,
        "envstep_count": 24,
        "train_sample_count": 24,
        "avg_envstep_per_episode": 8.0,
        "avg_sample_per_episode": 8.0,
        "avg_envstep_per_sec": 12.0,
        "avg_train_sample_per_sec": 12.0,
        "avg_episode_per_sec": 1.5,
        "collect_time": 2.0,
        "reward_mean": 4.0,
        "reward_std": pytest.approx(np.sqrt((36 + 36 + 0) / 3)),
        "each_reward": [10.0, -2.0, 4.0],
        "reward_max": 10.0,
        "reward_min": -2.0,
        "total_envstep_count": 1024,
        "total_train_sample_count": 1024,
        "total_episode_count": 63,
        "total_duration": 17.5,
    }
