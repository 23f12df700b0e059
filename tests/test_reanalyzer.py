"""Reanalyze against the target network's own answers, searched one observation at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lightzero_lite.building import greedy_search, network_shape
from lightzero_lite.config import PolicyConfig
from lightzero_lite.envs.factory import EnvShape
from lightzero_lite.networks import MuZeroModelMLP
from lightzero_lite.predictor import Predictor
from lightzero_lite.reanalyzer import Reanalyzer
from lightzero_lite.search import TreeCache
from lightzero_lite.types import ReplayBatch
from tests.builders import ACTION_NUM, OBSERVATION_DIM, make_learner, random_batch, tiny_policy

CPU = torch.device("cpu")


def random_model(policy: PolicyConfig) -> MuZeroModelMLP:
    """Return a network whose heads have something to say."""
    torch.manual_seed(3)
    model = MuZeroModelMLP(network_shape(policy, EnvShape(OBSERVATION_DIM, ACTION_NUM, None)))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


def refreshed(
    policy: PolicyConfig, batch: ReplayBatch, model: MuZeroModelMLP, ratio: float
) -> ReplayBatch:
    predictor = Predictor(model.shape, num_simulations=policy.num_simulations, device=CPU)
    reanalyzer = Reanalyzer(predictor, reanalyze_ratio=ratio)
    search = greedy_search(policy, TreeCache())
    return reanalyzer.refresh(batch, model, search, np.random.default_rng(0))


@pytest.mark.parametrize("kind", ["muzero", "gumbel_muzero"])
def test_the_share_of_the_batch_gets_what_a_search_of_each_observation_says(kind: str) -> None:
    policy = tiny_policy(type=kind, num_simulations=6)
    model = random_model(policy)
    batch = random_batch(0)
    batch.policy_mask[1, 2:] = 0  # sample 1 ends after two positions
    batch.bootstrap_discount[2, 1] = 0  # and here nothing is bootstrapped
    fresh = refreshed(policy, batch, model, 0.5)

    alone = Predictor(model.shape, num_simulations=6, device=CPU)
    alone.load(model)
    search = greedy_search(policy, TreeCache())

    def search_alone(observation: np.ndarray) -> tuple[np.ndarray, float]:
        root = alone.initial(observation[None])
        output = search(root, alone.recurrent_fn, rng=np.random.default_rng(9))
        return output.action_weights[0], float(output.root_value[0])

    for b in range(8):
        for k in range(4):
            weights, _ = search_alone(batch.observations[b, k])
            _, value = search_alone(batch.bootstrap_observations[b, k])
            keeps_policy = b >= 4 or batch.policy_mask[b, k] == 0
            keeps_value = b >= 4 or batch.bootstrap_discount[b, k] == 0
            policy_target = batch.policies[b, k] if keeps_policy else weights
            value_target = batch.bootstrap_values[b, k] if keeps_value else value
            np.testing.assert_allclose(fresh.policies[b, k], policy_target, atol=1e-5)
            np.testing.assert_allclose(
                fresh.bootstrap_values[b, k], value_target, rtol=1e-3, atol=1e-4
            )
    assert fresh.is_reanalyzed.tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert not batch.is_reanalyzed.any()  # the buffer's own batch is left as it was


def test_ratio_0_gives_the_batch_back() -> None:
    policy = tiny_policy()
    batch = random_batch(0)
    assert refreshed(policy, batch, random_model(policy), 0.0) is batch


def test_reanalyzed_samples_bootstrap_from_the_search_and_others_from_the_target_network() -> None:
    learner = make_learner(tiny_policy())
    batch = random_batch(0)
    by_network = learner._value_targets(batch).numpy()
    batch.is_reanalyzed[:3] = 1
    mixed = learner._value_targets(batch).numpy()
    by_search = batch.value_prefix + batch.bootstrap_discount * batch.bootstrap_values
    np.testing.assert_allclose(mixed[:3], by_search[:3], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(mixed[3:], by_network[3:])
    assert not np.allclose(mixed[:3], by_network[:3])
