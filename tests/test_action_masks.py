"""Masks of actions, from the environment to the policy targets; they change at every step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lightzero_lite.building import collect_search, greedy_search, network_shape
from lightzero_lite.collector import Collector, CollectPhase, mix_random_actions
from lightzero_lite.config import Config, EnvConfig, PolicyConfig
from lightzero_lite.envs.factory import EnvShape, env_shape
from lightzero_lite.envs.rollout import Decisions, play_episodes
from lightzero_lite.envs.vector import VectorEnv
from lightzero_lite.evaluator import Evaluator
from lightzero_lite.networks import MuZeroModelMLP
from lightzero_lite.predictor import Predictor
from lightzero_lite.reanalyzer import Reanalyzer
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.search import TreeCache
from lightzero_lite.types import BoolArray, Episode, Float32Array, UserError
from tests.builders import small_buffer, tiny_policy
from tests.fake_envs import Masked, mask_of

NAMES = ["Masked-v0", "MaskedObservation-v0"]
KINDS = ["muzero", "gumbel_muzero"]


def env_config(name: str = "Masked-v0") -> EnvConfig:
    return EnvConfig(
        env_id=f"tests.fake_envs:{name}",
        collector_env_num=3,
        evaluator_env_num=2,
        n_evaluator_episode=5,
    )


def random_model(policy: PolicyConfig) -> MuZeroModelMLP:
    """Return a network whose heads have something to say of two numbers and three actions."""
    torch.manual_seed(3)
    model = MuZeroModelMLP(network_shape(policy, EnvShape(2, 3, None)))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


def random_predictor(policy: PolicyConfig) -> Predictor:
    model = random_model(policy)
    device = torch.device("cpu")
    predictor = Predictor(model.shape, num_simulations=policy.num_simulations, device=device)
    predictor.load(model)
    return predictor


def collect(kind: str, *, name: str = "Masked-v0", eps: float = 0.0) -> list[Episode]:
    """Collect 9 episodes; the environments fail where an illegal action is played."""
    policy, env = tiny_policy(type=kind, num_simulations=4), env_config(name)
    collector = Collector(
        Config(env=env, policy=policy), VectorEnv(env, 3), random_predictor(policy), Ranks()
    )
    phase = CollectPhase(number=0, first_episode=0, num_episodes=9, eps=eps)
    collected = collector.collect(phase, collect_search(policy, 0, TreeCache()))
    assert collected is not None
    assert len(collected.episodes) == 9
    return collected.episodes


def expected_masks(episode: Episode) -> BoolArray:
    masks = np.stack([mask_of(observation) for observation in episode.observations]) == 1
    if episode.is_terminated:
        masks[-1] = True
    return masks


@pytest.mark.parametrize("name", NAMES)
def test_stored_masks_are_those_that_the_environment_told(name: str) -> None:
    envs = VectorEnv(env_config(name), 2)
    assert env_shape(envs.envs[0])[:2] == (2, 3)

    def decide(observations: Float32Array, invalid: BoolArray | None) -> Decisions:
        masks = np.stack([mask_of(observation) for observation in observations]) == 1
        assert (masks.all() and invalid is None) or np.array_equal(invalid, ~masks)
        zeros = np.zeros(len(observations), np.float32)
        return Decisions(masks.argmax(axis=1).astype(np.int32), zeros, zeros, 1.0 * masks)

    for finished in play_episodes(envs, range(7), decide):
        episode = finished.episode
        (told,) = [
            masks
            for env in envs.envs
            for wrapper in [env.unwrapped]
            for masks, seed in zip(masked(env).masks, wrapper.seeds, strict=True)
            if seed == finished.number
        ]
        assert len(told) == len(episode.legal_actions) == len(episode.actions) + 1
        for mask, stored in zip(told[:-1], episode.legal_actions, strict=False):
            assert stored.tolist() == (mask == 1).tolist()
        # The counter allows nothing where it is over; at a time limit its word stands.
        last = [True] * 3 if episode.is_terminated else (told[-1] == 1).tolist()
        assert episode.legal_actions[-1].tolist() == last


def masked(env: object) -> Masked:
    """Return the wrapper with the records."""
    while not isinstance(env, Masked):
        env = env.env  # type: ignore[attr-defined]
    return env


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_searches_play_and_teach_legal_actions_only(kind: str, name: str) -> None:
    shares = []
    for episode in collect(kind, name=name):
        np.testing.assert_array_equal(episode.legal_actions, expected_masks(episode))
        assert np.all(episode.policies[~episode.legal_actions[:-1]] == 0)
        np.testing.assert_allclose(episode.policies.sum(axis=1), 1, atol=1e-6)
        shares += episode.legal_actions[:-1].sum(axis=1).tolist()
    assert {1, 2, 3} == set(shares)  # all sizes of masks occurred


@pytest.mark.parametrize("kind", KINDS)
def test_random_play_is_legal(kind: str) -> None:
    episodes = collect(kind, eps=1.0)
    pairs = [
        (tuple(legal), action)
        for episode in episodes
        for legal, action in zip(episode.legal_actions.tolist(), episode.actions, strict=False)
    ]
    # Each legal action of each of the seven masks was played.
    assert len(set(pairs)) == sum(sum(mask) for mask in {mask for mask, _ in pairs}) == 12


def test_random_actions_are_uniform_over_the_legal_ones() -> None:
    rng = np.random.default_rng(0)
    legal = np.tile(np.array([[True, False, True, True], [False, True, False, False]]), (4500, 1))
    never = mix_random_actions(np.full(9000, 3, np.int32), legal, 0.0, rng)
    assert np.all(never == 3)
    actions = mix_random_actions(np.full(9000, 3, np.int32), legal, 1.0, rng)
    assert np.all(actions[1::2] == 1)
    counts = np.bincount(actions[::2], minlength=4)
    assert counts[1] == 0
    # Chi-square with 2 degrees of freedom: 13.8 is passed once in a thousand seeds.
    assert float(np.sum((counts[[0, 2, 3]] - 1500) ** 2 / 1500)) < 13.8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_evaluations_play_legal_actions_only(kind: str, name: str) -> None:
    policy = tiny_policy(type=kind, num_simulations=4)
    config = Config(env=env_config(name), policy=policy)
    evaluator = Evaluator(config, random_predictor(policy), Ranks())
    evaluation = evaluator.evaluate(greedy_search(policy, TreeCache()))
    assert evaluation is not None
    assert len(evaluation.summaries) == 5
    assert sum(len(masked(env).masks) for env in evaluator.envs.envs) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_reanalyzed_targets_honour_the_masks(kind: str) -> None:
    policy = tiny_policy(type=kind, num_simulations=6)
    buffer = small_buffer()
    for episode in collect(kind):
        buffer.push(episode)
    batch = buffer.sample(8, np.random.default_rng(0))
    reanalyzer = Reanalyzer(random_predictor(policy), reanalyze_ratio=1.0)
    search = greedy_search(policy, TreeCache())
    model = random_model(policy)
    fresh = reanalyzer.refresh(batch, model, search, np.random.default_rng(0))
    alone = random_predictor(policy)
    for b in range(8):
        for k in range(4):
            # Each position again, searched alone.
            for name, has_target in (("", batch.policy_mask), ("_", batch.bootstrap_discount)):
                if has_target[b, k] == 0:
                    continue
                prefix = "bootstrap_" * bool(name)
                observation = getattr(batch, f"{prefix}observations")[b, k]
                invalid = ~getattr(batch, f"{prefix}legal_actions")[b, k][None]
                root = alone.initial(observation[None])
                output = search(
                    root,
                    alone.recurrent_fn,
                    rng=np.random.default_rng(1),
                    invalid_actions=invalid,
                )
                if name:
                    value = fresh.bootstrap_values[b, k]
                    np.testing.assert_allclose(value, output.root_value[0], rtol=1e-3, atol=1e-4)
                else:
                    np.testing.assert_allclose(
                        fresh.policies[b, k], output.action_weights[0], atol=1e-5
                    )
                    assert np.all(fresh.policies[b, k][invalid[0]] == 0)


@pytest.mark.parametrize(
    ("name", "steps", "message"),
    [
        (
            "MaskOfFour-v0",
            0,
            "an action mask has shape (4,), but must have one entry for each of the 3 actions",
        ),
        (
            "MaskOfNothing-v0",
            2,
            "an action mask allows no action, but the episode goes on: end it with terminated=True",
        ),
    ],
)
def test_a_mask_that_cannot_be_is_one_line(name: str, steps: int, message: str) -> None:
    envs = VectorEnv(env_config(name), 1)

    def play() -> None:
        legal = envs.local[0].reset(12).legal_actions
        for _ in range(steps):
            legal = envs.local[0].step(int(legal.argmax())).legal_actions

    with pytest.raises(UserError) as refused:
        play()
    assert str(refused.value) == f"env.env_id=tests.fake_envs:{name}: {message}"


def test_gymnasiums_own_masks_are_read() -> None:
    envs = VectorEnv(EnvConfig(env_id="Taxi-v4"), 1)
    for seed in range(5):
        legal = envs.local[0].reset(seed).legal_actions
        taxi = envs.envs[0].unwrapped
        assert legal.tolist() == (taxi.action_mask(taxi.s) == 1).tolist()  # type: ignore[attr-defined]
        assert 0 < legal.sum() < 6
