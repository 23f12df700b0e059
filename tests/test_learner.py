"""The learner: one update against formulas worked out beside it, and a batch learnt by heart."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightzero_lite.learner import Learner
from lightzero_lite.metrics import UpdateMetrics, step_errors
from lightzero_lite.types import ReplayBatch
from tests.builders import make_learner, part_of, random_batch, tiny_policy

NORMS = ["BN", "LN", "none"]
EPSILON = 0.001


def metrics(learner: Learner, batch: ReplayBatch) -> dict[str, float]:
    """Update once and return what was measured, by name."""
    values = learner.update(batch).metrics.tolist()
    return dict(zip(UpdateMetrics._fields, values, strict=True))


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return copy.deepcopy(learner.model.state_dict())


def assert_equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name


def squash(x: float) -> float:
    """Return MuZero's h, from its formula."""
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + EPSILON * x


def spread(x: float, scale: int) -> np.ndarray:
    """Return the two-hot distribution of h(x), from its definition."""
    position = min(max(squash(x), -scale), scale) + scale
    return np.maximum(0.0, 1.0 - np.abs(np.arange(2 * scale + 1) - position))


def entropy(distribution: np.ndarray) -> float:
    inside = distribution[distribution > 0]
    return float(-(inside * np.log(inside)).sum())


@pytest.mark.parametrize("norm_type", NORMS)
def test_one_batch_is_learnt_down_to_the_entropy_of_its_targets(norm_type: str) -> None:
    policy = tiny_policy(
        norm_type=norm_type,
        value_bootstrap="search",
        learning_rate=0.01,
        weight_decay=0.0,
        ssl_loss_weight=0.5,
        value_loss_weight=1.0,
        unroll_loss_scale="recurrent",
    )
    batch = random_batch(0, size=4)._replace(importance_weights=np.ones(4, np.float32))
    returns = batch.value_prefix + batch.bootstrap_discount * batch.bootstrap_values
    scale = np.array([1, 1 / 3, 1 / 3, 1 / 3])
    floor = 0.0
    for b in range(4):
        floor += scale @ [
            entropy(spread(z, 6)) + entropy(p)
            for z, p in zip(returns[b], batch.policies[b], strict=True)
        ]
        floor += scale[1:] @ [entropy(spread(r, 4)) for r in batch.rewards[b]]
    floor = floor / 4 - 0.5  # and the cosine reaches 1 on all K steps
    learner = make_learner(policy)
    losses = [metrics(learner, batch)["total_loss"] for _ in range(400)]
    assert losses[0] > floor + 3
    assert min(losses) >= floor - 1e-4
    assert losses[-1] < floor + 0.1


@pytest.mark.parametrize("norm_type", NORMS)
def test_target_network_is_copied_exactly_every_target_update_freq(norm_type: str) -> None:
    learner = make_learner(tiny_policy(norm_type=norm_type, target_update_freq=3))
    expected = weights(learner)
    for number in range(1, 8):
        learner.update(random_batch(number))
        if number % 3 == 0:
            expected = weights(learner)
        assert_equal(learner.target_model.state_dict(), expected)
    name = "representation_network.fc_representation.0.weight"
    assert not torch.equal(learner.model.state_dict()[name], expected[name])


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ("constant", [1, 1, 1, 1, 1, 1]),
        ("linear", [1, 0.8, 0.6, 0.4, 0.2, 0.2]),
        # 0.2 + 0.8 (1 + cos(pi t)) / 2 at t = 0, 1/4, 1/2, 3/4, 1
        ("cosine", [1, 0.6 + 0.4 * math.sqrt(0.5), 0.6, 0.6 - 0.4 * math.sqrt(0.5), 0.2, 0.2]),
    ],
)
def test_learning_rate_of_each_update(schedule: str, factors: list[float]) -> None:
    learner = make_learner(
        tiny_policy(lr_schedule=schedule, learning_rate=0.01, lr_decay_iters=4, lr_final_factor=0.2)
    )
    used = []
    for _ in factors:
        assert learner.learning_rate == pytest.approx(0.01 * factors[learner.train_iter])
        learner.update(random_batch(1))
        used.append(learner.optimizer.param_groups[0]["lr"])
    assert used == pytest.approx([0.01 * factor for factor in factors])


def test_learning_rate_is_what_moves_the_weights() -> None:
    moved = []
    for rate in (0.1, 0.2):
        policy = tiny_policy(optim_type="SGD", momentum=0.0, weight_decay=0.0, learning_rate=rate)
        learner = make_learner(policy)
        before = weights(learner)
        learner.update(random_batch(1))
        moved.append(torch.cat([(t - before[n]).flatten() for n, t in weights(learner).items()]))
    assert moved[0].abs().max() > 1e-3
    torch.testing.assert_close(moved[1], 2 * moved[0], rtol=1e-3, atol=1e-6)


def test_gradients_are_scaled_down_to_the_clip_value() -> None:
    policy = tiny_policy(
        optim_type="SGD", momentum=0.0, weight_decay=0.0, learning_rate=1.0, grad_clip_value=0.01
    )
    learner = make_learner(policy)
    before = weights(learner)
    assert metrics(learner, random_batch(2))["total_grad_norm_before_clip"] > 0.01
    moved = torch.cat([(t - before[n]).flatten() for n, t in weights(learner).items()])
    assert float(moved.norm()) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "SGD"])
@pytest.mark.parametrize("norm_type", NORMS)
def test_a_restored_learner_takes_the_same_next_updates(
    norm_type: str, optimizer: str, tmp_path: Path
) -> None:
    policy = tiny_policy(norm_type=norm_type, optim_type=optimizer, target_update_freq=4)
    straight = make_learner(policy)
    for number in range(3):
        straight.update(random_batch(number))
    torch.save(straight.state_dict(), tmp_path / "state.pth.tar")
    restored = make_learner(policy, seed=99)
    restored.load_state_dict(torch.load(tmp_path / "state.pth.tar"))
    assert restored.train_iter == 3
    for number in range(3, 6):
        expected = straight.update(random_batch(number))
        result = restored.update(random_batch(number))
        assert torch.equal(expected.metrics, result.metrics)
    assert_equal(weights(straight), weights(restored))
    assert_equal(straight.target_model.state_dict(), restored.target_model.state_dict())


def test_settings_of_the_optimizer_are_the_command_lines_and_not_the_checkpoints() -> None:
    old = make_learner(tiny_policy(learning_rate=0.5, weight_decay=0.5))
    old.update(random_batch(0))
    new = make_learner(tiny_policy(learning_rate=0.001, weight_decay=0.25))
    new.load_state_dict(old.state_dict())
    new.update(random_batch(1))
    (group,) = new.optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.001, 0.25)


def test_learners_of_one_seed_are_equal_and_of_two_seeds_are_not() -> None:
    assert_equal(weights(make_learner(tiny_policy())), weights(make_learner(tiny_policy())))
    name = "representation_network.fc_representation.0.weight"
    other = weights(make_learner(tiny_policy(), seed=1))[name]
    assert not torch.equal(weights(make_learner(tiny_policy()))[name], other)


def value_head_of(learner: Learner, *, seed: int) -> np.ndarray:
    """Make the online value head ignore its input; return the distribution that it answers."""
    scale = learner.policy.model.value_support_scale
    bias = torch.from_numpy(np.random.default_rng(seed).normal(size=2 * scale + 1)).float()
    head = learner.model.prediction_network.fc_value_head[-1]
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(bias)
    return torch.softmax(bias, 0).double().numpy()


@pytest.mark.parametrize("norm_type", NORMS)
@pytest.mark.parametrize("bootstrap", ["target_network", "search"])
def test_value_targets_of_all_steps(bootstrap: str, norm_type: str) -> None:
    policy = tiny_policy(norm_type=norm_type, value_bootstrap=bootstrap, use_priority=True)
    learner, batch = make_learner(policy), random_batch(5)
    with torch.no_grad():
        for tensor in learner.target_model.parameters():
            tensor.normal_(generator=torch.Generator().manual_seed(tensor.numel()))
    answer = value_head_of(learner, seed=1)
    atoms = np.arange(-6, 7)
    # The second route: one observation at a time, through the target network and the formulas.
    targets = np.zeros((8, 4))
    for b, k in np.ndindex(8, 4):
        value = float(batch.bootstrap_values[b, k])
        if bootstrap == "target_network":
            observation = torch.from_numpy(batch.bootstrap_observations[b, k])[None]
            with torch.no_grad():
                latent = learner.target_model.representation_network(observation)
                logits = learner.target_model.prediction_network(latent).value_logits[0]
            y = float(torch.softmax(logits.double(), 0).numpy() @ atoms)
            root = (math.sqrt(1 + 4 * EPSILON * (abs(y) + 1 + EPSILON)) - 1) / (2 * EPSILON)
            value = math.copysign(root**2 - 1, y)
        targets[b, k] = batch.value_prefix[b, k] + batch.bootstrap_discount[b, k] * value
    cross = [[-spread(z, 6) @ np.log(answer) for z in row] for row in targets]
    result = learner.update(batch)
    measured = dict(zip(UpdateMetrics._fields, result.metrics.tolist(), strict=True))
    assert measured["target_value"] == pytest.approx(targets[:, 0].mean(), abs=1e-4)
    assert measured["value_loss"] == pytest.approx(np.mean(np.sum(cross, axis=1) / 3), abs=1e-4)
    mean_atom = float(answer @ atoms)
    predicted = (
        (math.sqrt(1 + 4 * EPSILON * (abs(mean_atom) + 1 + EPSILON)) - 1) / (2 * EPSILON)
    ) ** 2 - 1
    predicted = math.copysign(predicted, mean_atom)
    assert measured["predicted_value"] == pytest.approx(predicted, abs=1e-4)
    assert result.priorities is not None
    assert result.priorities == pytest.approx(np.abs(predicted - targets[:, 0]), abs=1e-4)
    # Every step has the same answer, so its errors are those of the targets alone.
    errors = step_errors(result.predictions, value_scale=6, reward_scale=4)
    for k, error in enumerate(np.abs(predicted - targets).mean(0)):
        assert errors[f"value_error_k{k}"] == pytest.approx(error, abs=1e-4)


def test_priorities_are_only_given_where_they_are_used() -> None:
    assert make_learner(tiny_policy()).update(random_batch(0)).priorities is None


def test_targets_outside_the_support_are_counted_where_they_are_trained() -> None:
    policy = tiny_policy(value_bootstrap="search")
    batch = random_batch(0, size=2)
    zeros = np.zeros((2, 4), np.float32)
    prefix, rewards, value_mask = zeros.copy(), zeros[:, 1:].copy(), zeros + 1
    prefix[0, 1] = 60.0  # h(60) = sqrt(61) - 1 + 0.06 = 6.870, the support ends at 6
    prefix[1, 2] = -500.0  # masked: neither counted nor measured
    value_mask[1, 2] = 0.0
    rewards[1, 0] = -40.0  # h(-40) = -(sqrt(41) - 1) - 0.04 = -5.443, the support ends at 4
    batch = batch._replace(
        value_prefix=prefix, bootstrap_discount=zeros, rewards=rewards, value_mask=value_mask
    )
    measured = metrics(make_learner(policy), batch)
    assert measured["clipped_target"] == pytest.approx(2 / (7 + 6))
    assert measured["largest_scaled_target"] == pytest.approx(math.sqrt(61) - 1 + 0.06, rel=1e-5)


def test_what_is_masked_changes_nothing() -> None:
    batch = random_batch(0)
    masks: dict[str, Any] = {}
    for name in ("value_mask", "policy_mask", "reward_mask"):
        masks[name] = getattr(batch, name).copy()
        masks[name][:, -1] = 0.0
    plain = batch._replace(**masks)
    rewards, policies = batch.rewards.copy(), batch.policies.copy()
    values = batch.value_prefix.copy()
    rewards[:, -1], policies[:, -1], values[:, -1] = 3.0, [1.0, 0.0], -3.0
    disturbed = plain._replace(rewards=rewards, policies=policies, value_prefix=values)
    learners = [make_learner(tiny_policy()), make_learner(tiny_policy())]
    learners[0].update(plain)
    learners[1].update(disturbed)
    assert_equal(weights(learners[0]), weights(learners[1]))


@pytest.mark.parametrize("factor", [0.5, 0.0])
def test_gradient_into_each_later_dynamics_step_is_scaled(factor: float) -> None:
    # Only the reward of the third step counts: its gradient enters steps 3 and 2 on its way back.
    batch = random_batch(0)
    mask = np.zeros_like(batch.reward_mask)
    mask[:, 2] = 1.0
    gradients = []
    for scale in (1.0, factor):
        policy = tiny_policy(
            dynamics_gradient_scale=scale,
            value_loss_weight=0.0,
            policy_loss_weight=0.0,
            ssl_loss_weight=0.0,
            grad_clip_value=1e9,
        )
        learner = make_learner(policy)
        with torch.no_grad():
            learner.model.dynamics_network.fc_reward_head[-1].weight.normal_(
                generator=torch.Generator().manual_seed(0)
            )
        learner.update(batch._replace(reward_mask=mask))
        gradient = learner.model.representation_network.fc_representation[0].weight.grad
        assert gradient is not None
        gradients.append(gradient.clone())
    assert gradients[0].abs().max() > 1e-4
    torch.testing.assert_close(gradients[1], gradients[0] * factor**2, rtol=1e-4, atol=1e-8)


def test_a_batch_is_the_mean_of_its_halves() -> None:
    """Joined halves give the mean gradient, which is what ranks rely on (no batch norm)."""
    batch, gradients = random_batch(0), []
    for part in (batch, part_of(batch, slice(0, 4)), part_of(batch, slice(4, 8))):
        learner = make_learner(tiny_policy(grad_clip_value=1e9))
        learner.update(part)
        gradients.append([p.grad.clone() for p in learner.model.parameters() if p.grad is not None])
    for whole, first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, (first + second) / 2, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optim_type", ["Adam", "AdamW", "SGD"])
def test_denormal_weights_become_zero_in_an_update_and_nowhere_else(optim_type: str) -> None:
    """They would slow every later update down: five times, in a run of LunarLander."""
    learner = make_learner(tiny_policy(optim_type=optim_type, norm_type="none"))
    first = learner.model.representation_network.fc_representation[0]
    tiny = torch.tensor([1e-40, -3e-39])
    with torch.no_grad():
        first.weight[:2, 0] = tiny
        first.bias[:2] = -1e3  # units that never fire
        assert torch.equal(first.weight[:2, 0], tiny)
    for seed in range(3):
        learner.update(random_batch(seed))
    weights = torch.cat([p.detach().flatten() for p in learner.model.parameters()]).abs()
    smallest = torch.finfo(torch.float32).smallest_normal
    assert not ((weights > 0) & (weights < smallest)).any()
    assert (tiny * 1.0).tolist() == tiny.tolist()
