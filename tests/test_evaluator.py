"""Evaluations: the same greedy episodes every time, whatever plays them."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import torch

from lightzero_lite.building import greedy_search, network_shape
from lightzero_lite.config import Config, EnvConfig, ModelConfig, PolicyConfig
from lightzero_lite.envs.factory import EnvShape
from lightzero_lite.evaluator import Evaluation, Evaluator, episode_lines, evaluator_fields
from lightzero_lite.networks import MuZeroModelMLP
from lightzero_lite.predictor import Predictor
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.search import TreeCache
from lightzero_lite.types import EpisodeSummary
from tests import fake_search
from tests.builders import on_ranks
from tests.fake_envs import Counter

EVALUATOR_FIELDS = [
    "train_iter",
    "ckpt_name",
    "episode_count",
    "envstep_count",
    "evaluate_time",
    "avg_envstep_per_episode",
    "avg_envstep_per_sec",
    "avg_time_per_episode",
    "reward_mean",
    "reward_std",
    "each_reward",
    "reward_max",
    "reward_min",
]


def make_evaluator(num_envs: int, num_episodes: int, ranks: Ranks | None = None) -> Evaluator:
    env = EnvConfig(
        env_id="tests.fake_envs:BothEndsCounter-v0",
        evaluator_env_num=num_envs,
        n_evaluator_episode=num_episodes,
    )
    predictor = cast(Predictor, fake_search.FakePredictor())
    return Evaluator(Config(env=env), predictor, ranks or Ranks())


def results(evaluation: Evaluation) -> list[tuple[int, float, int]]:
    """Return what may not depend on who played: number, return and length of each episode."""
    return [(one.number, one.episode_return, one.num_steps) for one in evaluation.summaries]


@pytest.mark.parametrize(("num_envs", "num_episodes"), [(1, 1), (1, 4), (3, 8), (4, 4), (9, 3)])
def test_an_evaluation_plays_exactly_its_episodes(num_envs: int, num_episodes: int) -> None:
    evaluator = make_evaluator(num_envs, num_episodes)
    assert len(evaluator.envs) == min(num_envs, num_episodes)
    evaluation = evaluator.evaluate(fake_search.fake_search)
    assert [one.number for one in evaluation.summaries] == list(range(num_episodes))
    played = []
    for env in evaluator.envs.envs:
        assert isinstance(env.unwrapped, Counter)
        played += [(sum(s.reward for s in r), len(r)) for r in env.unwrapped.record]
    assert sorted(played) == sorted(one[1:] for one in results(evaluation))
    assert evaluation.mean_return == pytest.approx(np.mean([one[0] for one in played]))


def test_evaluations_are_alike_whoever_plays_them() -> None:
    evaluator = make_evaluator(3, 10)
    expected = results(evaluator.evaluate(fake_search.fake_search))
    assert len({one[1:] for one in expected}) > 3
    assert results(evaluator.evaluate(fake_search.fake_search)) == expected
    assert results(make_evaluator(1, 10).evaluate(fake_search.fake_search)) == expected
    for num_ranks, num_envs in ((2, 4), (3, 2), (4, 10)):
        answers = on_ranks(
            num_ranks,
            lambda ranks, num_envs=num_envs: make_evaluator(num_envs, 10, ranks).evaluate(
                fake_search.fake_search
            ),
        )
        assert all(answer == answers[0] for answer in answers)
        assert results(answers[0]) == expected


def test_environments_are_numbered_over_all_ranks() -> None:
    def evaluate(ranks: Ranks) -> Evaluation:
        return make_evaluator(4, 10, ranks).evaluate(fake_search.fake_search)

    summaries = on_ranks(2, evaluate)[0].summaries
    assert {one.env for one in summaries[:5]} == {0, 1}
    assert {one.env for one in summaries[5:]} == {2, 3}


def test_fewer_episodes_than_ranks_leave_some_ranks_idle() -> None:
    def evaluate(ranks: Ranks) -> Evaluation:
        return make_evaluator(2, 2, ranks).evaluate(fake_search.fake_search)

    answers = on_ranks(3, evaluate)
    assert [len(answer.summaries) for answer in answers] == [2, 2, 2]


def test_evaluation_with_the_real_search_repeats_itself_and_is_greedy() -> None:
    policy = PolicyConfig(num_simulations=8, model=ModelConfig(latent_state_dim=16))
    torch.manual_seed(3)
    shape = network_shape(policy, EnvShape(2, 3, None))
    model = MuZeroModelMLP(shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    predictor = Predictor(shape, num_simulations=8, device=torch.device("cpu"))
    predictor.load(model)
    env = EnvConfig(
        env_id="tests.fake_envs:BothEndsCounter-v0", evaluator_env_num=2, n_evaluator_episode=5
    )
    evaluator = Evaluator(Config(env=env, policy=policy), predictor, Ranks())
    search = greedy_search(policy, TreeCache())
    first = results(evaluator.evaluate(search))
    assert results(evaluator.evaluate(search)) == first
    # Another stream of random numbers changes nothing: there is no noise and nothing is drawn.
    observations = np.array([[0.3, 0.1], [0.5, 0.2]], np.float32)
    actions = []
    for seed in range(5):
        root, rng = predictor.initial(observations), np.random.default_rng(seed)
        actions.append(search(root, predictor.recurrent_fn, rng=rng).action.tolist())
    assert actions == [actions[0]] * 5


def three_episodes() -> Evaluation:
    summaries = [
        EpisodeSummary(number=0, env=0, episode_return=9.0, num_steps=9),
        EpisodeSummary(number=1, env=1, episode_return=1.5, num_steps=2),
        EpisodeSummary(number=2, env=0, episode_return=3.0, num_steps=4),
    ]
    return Evaluation(summaries, seconds=0.5)


def test_lines_of_finished_episodes() -> None:
    lines = list(episode_lines(three_episodes()))
    start = "[EVALUATOR]env"
    assert lines == [
        f"{start} 0 completes an episode, final reward: 9.0, current episode: 1",
        f"{start} 1 completes an episode, final reward: 1.5, current episode: 2",
        f"{start} 0 completes an episode, final reward: 3.0, current episode: 3",
    ]


def test_fields_of_the_evaluator_log() -> None:
    fields = evaluator_fields(three_episodes(), train_iter=700)
    assert list(fields) == EVALUATOR_FIELDS
    assert len(EVALUATOR_FIELDS) == 13
    assert fields == {
        "train_iter": 700,
        "ckpt_name": "iteration_700.pth.tar",
        "episode_count": 3,
        "envstep_count": 15,
        "evaluate_time": 0.5,
        "avg_envstep_per_episode": 5.0,
        "avg_envstep_per_sec": 30.0,
        "avg_time_per_episode": pytest.approx(1 / 6),
        "reward_mean": 4.5,
        "reward_std": pytest.approx(np.sqrt((4.5**2 + 3**2 + 1.5**2) / 3)),
        "each_reward": [9.0, 1.5, 3.0],
        "reward_max": 9.0,
        "reward_min": 1.5,
    }
