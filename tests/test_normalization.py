"""Normalised observations and scaled rewards: what is stored, learned from and reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from lightzero_lite.building import network_shape
from lightzero_lite.collector import Collector, CollectPhase
from lightzero_lite.config import Config, EnvConfig
from lightzero_lite.envs.factory import EnvShape
from lightzero_lite.envs.vector import VectorEnv
from lightzero_lite.learner import UpdateResult
from lightzero_lite.loading import load_subject
from lightzero_lite.networks import MuZeroModelMLP
from lightzero_lite.normalization import ObservationNormalizer, moments_of
from lightzero_lite.predictor import Predictor
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.seeding import Role, stream
from lightzero_lite.train import build_trainer
from lightzero_lite.trainer import Trainer
from lightzero_lite.types import Float32Array, ReplayBatch, UserError
from tests import fake_search
from tests.builders import tiny_policy
from tests.launch import COUNTER, TINY

RUN = (*TINY, f"env.env_id={COUNTER}", "exp_name=run", "max_env_step=200")


def normalizer_of(*episodes: Float32Array) -> ObservationNormalizer:
    normalizer = ObservationNormalizer(episodes[0].shape[1], is_enabled=True)
    normalizer.update(moments_of(episode) for episode in episodes)
    return normalizer


def random_episodes(seed: int, *lengths: int) -> list[Float32Array]:
    """Draw observations of two numbers far from 0, one of which hardly varies."""
    rng = np.random.default_rng(seed)
    return [rng.normal((50, -3000), (0.1, 7), (n, 2)).astype(np.float32) for n in lengths]


def test_merged_moments_are_those_of_all_observations_together() -> None:
    episodes = random_episodes(0, 1, 40, 7, 300, 2)
    everything = np.concatenate(episodes).astype(np.float64)
    moments = normalizer_of(*episodes).moments
    assert moments.number == 350
    np.testing.assert_allclose(moments.mean, everything.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(moments.squares / 350, everything.var(axis=0), rtol=1e-10)


def test_what_was_seen_has_mean_0_and_deviation_1() -> None:
    episodes = random_episodes(1, 30, 50)
    seen = normalizer_of(*episodes).normalize(np.concatenate(episodes))
    assert seen.dtype == np.float32
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(seen.std(axis=0), 1, atol=1e-3)


def test_numbers_by_hand() -> None:
    # Mean 2, variance 1; the second number never changes.
    normalizer = normalizer_of(np.array([[1, 5], [3, 5]], np.float32))
    seen = normalizer.normalize(np.array([[[2.5, 5], [14, 5], [-99, 6]]], np.float32))
    np.testing.assert_allclose(seen, [[[0.5, 0], [10, 0], [-10, 10]]], atol=1e-6)


def test_nothing_is_changed_before_there_are_statistics_or_where_it_is_off() -> None:
    (episode,) = random_episodes(2, 9)
    assert ObservationNormalizer(2, is_enabled=True).normalize(episode) is episode
    off = ObservationNormalizer(2, is_enabled=False)
    off.update([moments_of(episode)])
    assert off.normalize(episode) is episode
    assert off.state_dict() is None


def test_the_predictor_sees_normalised_observations() -> None:
    policy, (episode,) = tiny_policy(num_simulations=2), random_episodes(3, 8)
    model = MuZeroModelMLP(network_shape(policy, EnvShape(2, 3, None)))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    normalizer = normalizer_of(episode)
    answers = []
    for given, observations in ((normalizer, episode), (None, normalizer.normalize(episode))):
        predictor = Predictor(
            model.shape, num_simulations=2, device=torch.device("cpu"), normalizer=given
        )
        predictor.load(model)
        answers.append(predictor.initial(observations).value)
    assert np.array_equal(*answers)
    assert np.ptp(answers[0]) > 0.01


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    monkeypatch.chdir(tmp_path)
    return build_trainer([*RUN, "env.normalize_observation=true"], Ranks())


def test_the_buffer_stores_what_came_and_the_learner_gets_it_normalised(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[ReplayBatch] = []
    learn = trainer.learner.update

    def update(batch: ReplayBatch) -> UpdateResult:
        batches.append(batch)
        return learn(batch)

    monkeypatch.setattr(trainer.learner, "update", update)
    trainer._collect()
    trainer._update()
    stored = trainer.buffer.sample(32, stream(0, Role.SAMPLE, 0, 0), priority_beta=0.4)
    counts = stored.observations[:, 0, 1] * 10
    assert np.abs(counts - np.round(counts)).max() < 1e-5
    assert counts.max() > 5
    for name in ("observations", "bootstrap_observations"):
        raw, seen = getattr(stored, name), getattr(batches[0], name)
        mean, deviation = trainer.normalizer.moments.mean, np.ptp(seen) / np.ptp(raw)
        assert abs(float(seen[..., 1].mean())) < 1 < deviation
        expected = (raw - mean) / np.sqrt(
            trainer.normalizer.moments.squares / trainer.normalizer.moments.number
        )
        np.testing.assert_allclose(seen, expected, atol=1e-4)


def test_statistics_are_frozen_in_evaluations_and_come_with_the_checkpoint(
    trainer: Trainer, tmp_path: Path
) -> None:
    trainer.run()
    moments, counters = trainer.normalizer.moments, trainer.counters
    # Those that were collected, the last ones of episodes included; two evaluations add nothing.
    assert moments.number == counters.envstep + counters.episodes
    newest = f"run/ckpt/iteration_{trainer.train_iter}.pth.tar"
    subject = load_subject([f"ckpt={newest}"], Ranks())
    resumed = build_trainer(
        [*RUN[:-1], "env.normalize_observation=true", f"resume={newest}"], Ranks()
    )
    for other in (subject.predictor.normalizer, resumed.normalizer, resumed.predictor.normalizer):
        assert other.moments.number == moments.number > 200
        assert np.array_equal(other.moments.mean, moments.mean)
        assert np.array_equal(other.moments.squares, moments.squares)
    line = (
        f"={newest}: its networks saw normalised observations: set env.normalize_observation=true"
    )
    with pytest.raises(UserError, match=f"^resume{line}$"):
        build_trainer([*RUN, f"resume={newest}"], Ranks())
    with pytest.raises(UserError, match=f"^ckpt{line}$"):
        load_subject([f"ckpt={newest}", "env.normalize_observation=false"], Ranks())


def test_a_checkpoint_without_statistics_is_not_taken_for_one_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    build_trainer([*RUN, "max_env_step=1"], Ranks()).run()
    best = "run/ckpt/ckpt_best.pth.tar"
    assert torch.load(best)["observation_statistics"] is None
    line = f"={best}: its networks saw no normalised observations: set env.normalize_observation=fa"
    with pytest.raises(UserError, match=f"^resume{line}lse$"):
        build_trainer([*RUN, f"resume={best}", "env.normalize_observation=true"], Ranks())


@pytest.mark.parametrize(
    ("scale", "clip", "expected"),
    [
        (1.0, None, [1, 2, 3, 4, 5, 6, 7]),
        (0.5, None, [0.5, 1, 1.5, 2, 2.5, 3, 3.5]),
        (1.0, 2.5, [1, 2, 2.5, 2.5, 2.5, 2.5, 2.5]),
        (0.5, 3.0, [0.5, 1, 1.5, 2, 2.5, 3, 3]),
        (0.5, 0.25, [0.25] * 7),
    ],
)
def test_rewards_are_scaled_for_learning_and_reported_as_they_came(
    scale: float, clip: float | None, expected: list[float]
) -> None:
    env = EnvConfig(
        env_id="tests.fake_envs:FixedCounter-v0",  # rewards 1 .. 7
        collector_env_num=2,
        reward_scale=scale,
        reward_clip=clip,
    )
    predictor = cast(Any, fake_search.FakePredictor())
    collector = Collector(Config(env=env), VectorEnv(env, 2), predictor, Ranks())
    phase = CollectPhase(number=0, first_episode=0, num_episodes=3, eps=0.0)
    collected = collector.collect(phase, fake_search.fake_search)
    assert collected is not None
    assert [summary.episode_return for summary in collected.summaries] == [28.0] * 3
    for episode in collected.episodes:
        assert episode.rewards.dtype == np.float32
        assert episode.rewards.tolist() == expected


def test_evaluations_are_not_scaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = ["env.env_id=tests.fake_envs:FixedCounter-v0", "env.reward_scale=0.01"]
    scaled = build_trainer([*RUN, *overrides, "exp_name=scaled", "max_env_step=60"], Ranks())
    scaled.run()
    assert scaled.counters.last_return == scaled.counters.best_score == 28.0
    batch = scaled.buffer.sample(64, np.random.default_rng(0))
    assert batch.rewards.max() == np.float32(0.07)
    text = Path("scaled/log/collector/collector_logger.txt").read_text()
    assert "reward_mean" in text
    assert "| 28.0" in text
