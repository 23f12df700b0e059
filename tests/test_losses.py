"""The unrolled loss against hand-worked numbers and against a slow plain version."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lightzero_lite.losses import (
    LossTargets,
    LossWeights,
    UnrolledOutput,
    cross_entropy,
    negative_cosine,
    scale_gradient,
    step_scale,
    unrolled_loss,
)

B, K, A, S, P = 3, 4, 2, 5, 6
CPU = torch.device("cpu")


def loss_weights(**changes: Any) -> LossWeights:
    settings = {"value": 0.25, "reward": 1.0, "policy": 0.5, "consistency": 2.0}
    return LossWeights(**({**settings, "unroll_scale": "whole"} | changes))


def random_output(seed: int) -> UnrolledOutput:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, requires_grad=True)

    return UnrolledOutput(
        value_logits=normal(B, K + 1, S),
        reward_logits=normal(B, K, S),
        policy_logits=normal(B, K + 1, A),
        projection=normal(B, K, P),
        target_projection=normal(B, K, P),
    )


def random_targets(seed: int) -> LossTargets:
    """Draw distributions, masks of about two thirds ones, and importance weights."""
    generator = torch.Generator().manual_seed(seed)

    def distribution(*shape: int) -> Tensor:
        drawn = torch.rand(shape, generator=generator)
        return drawn / drawn.sum(-1, keepdim=True)

    def mask(*shape: int) -> Tensor:
        return (torch.rand(shape, generator=generator) < 0.67).float()

    return LossTargets(
        value=distribution(B, K + 1, S),
        reward=distribution(B, K, S),
        policy=distribution(B, K + 1, A),
        value_mask=mask(B, K + 1),
        reward_mask=mask(B, K),
        policy_mask=mask(B, K + 1),
        consistency_mask=mask(B, K),
        importance_weights=torch.rand(B, generator=generator) + 0.5,
    )


def test_cross_entropy_by_hand() -> None:
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]])  # probabilities 1/4, 3/4 and 1/2, 1/2
    target = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    expected = [-0.5 * math.log(1 / 4) - 0.5 * math.log(3 / 4), math.log(2)]
    assert cross_entropy(logits, target).tolist() == pytest.approx(expected, abs=1e-6)


def test_negative_cosine_by_hand_and_only_the_online_branch_learns() -> None:
    online = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 2.0]], requires_grad=True)
    target = torch.tensor([[4.0, 3.0], [-5.0, 0.0], [7.0, 0.0]], requires_grad=True)
    result = negative_cosine(online, target)
    assert result.tolist() == pytest.approx([-24 / 25, 1.0, 0.0])
    result.sum().backward()
    assert target.grad is None
    assert online.grad is not None


@pytest.mark.parametrize(
    ("kind", "expected"), [("whole", [0.25] * 5), ("recurrent", [1.0, 0.25, 0.25, 0.25, 0.25])]
)
def test_step_scale(kind: str, expected: list[float]) -> None:
    assert step_scale(4, kind, CPU).tolist() == expected


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0])
def test_scale_gradient_changes_the_gradient_alone(factor: float) -> None:
    x = torch.tensor([2.0, -3.0], requires_grad=True)
    y = scale_gradient(x, factor)
    assert y.tolist() == [2.0, -3.0]
    y.square().sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == pytest.approx([4 * factor, -6 * factor])


def test_loss_of_a_network_that_knows_nothing_by_hand() -> None:
    # Zero logits: every cross entropy is the logarithm of the number of classes.
    output = UnrolledOutput(
        value_logits=torch.zeros(1, 3, 7),
        reward_logits=torch.zeros(1, 2, 5),
        policy_logits=torch.zeros(1, 3, 2),
        projection=torch.ones(1, 2, 4),
        target_projection=torch.ones(1, 2, 4),
    )
    targets = LossTargets(
        value=torch.eye(7)[[1, 2, 3]][None],
        reward=torch.eye(5)[[0, 4]][None],
        policy=torch.eye(2)[[0, 1, 0]][None],
        value_mask=torch.ones(1, 3),
        reward_mask=torch.ones(1, 2),
        policy_mask=torch.tensor([[1.0, 1.0, 0.0]]),
        consistency_mask=torch.tensor([[1.0, 0.0]]),
        importance_weights=torch.tensor([3.0]),
    )
    terms = unrolled_loss(output, targets, loss_weights(unroll_scale="recurrent"))
    value = math.log(7) * (1 + 1 / 2 + 1 / 2)
    reward = math.log(5) * (1 / 2 + 1 / 2)
    policy = math.log(2) * (1 + 1 / 2)
    consistency = -1 / 2
    assert float(terms.value) == pytest.approx(value, rel=1e-6)
    assert float(terms.reward) == pytest.approx(reward, rel=1e-6)
    assert float(terms.policy) == pytest.approx(policy, rel=1e-6)
    assert float(terms.consistency) == pytest.approx(consistency, rel=1e-6)
    assert float(terms.policy_entropy) == pytest.approx(math.log(2), rel=1e-6)
    total = 3.0 * (0.25 * value + reward + 0.5 * policy + 2 * consistency)
    assert float(terms.total.detach()) == pytest.approx(total, rel=1e-6)


def slow_loss(output: UnrolledOutput, targets: LossTargets, weights: LossWeights) -> list[float]:
    """Return total, value, reward, policy and consistency loss, one sample and step at a time."""
    o = [None if t is None else t.detach().numpy() for t in output]
    t = LossTargets(*(tensor.numpy() for tensor in targets))

    def entropy(logits: np.ndarray, target: np.ndarray) -> float:
        exponentials = [math.exp(x) for x in logits]
        logs = [math.log(x / sum(exponentials)) for x in exponentials]
        return -sum(p * log for p, log in zip(target, logs, strict=True))

    sums = np.zeros(5)
    for b in range(B):
        value = reward = policy = consistency = 0.0
        for k in range(K + 1):
            scale = 1.0 if k == 0 and weights.unroll_scale == "recurrent" else 1.0 / K
            value += scale * t.value_mask[b, k] * entropy(o[0][b, k], t.value[b, k])
            policy += scale * t.policy_mask[b, k] * entropy(o[2][b, k], t.policy[b, k])
            if k == 0:
                continue
            reward += scale * t.reward_mask[b, k - 1] * entropy(o[1][b, k - 1], t.reward[b, k - 1])
            x, y = o[3][b, k - 1], o[4][b, k - 1]
            cosine = x @ y / math.sqrt((x @ x) * (y @ y))
            consistency -= scale * t.consistency_mask[b, k - 1] * cosine
        total = weights.value * value + weights.reward * reward
        total += weights.policy * policy + weights.consistency * consistency
        sums += [total * t.importance_weights[b], value, reward, policy, consistency]
    return list(sums / B)


@pytest.mark.parametrize("kind", ["whole", "recurrent"])
@pytest.mark.parametrize("seed", range(5))
def test_loss_equals_the_slow_one(seed: int, kind: str) -> None:
    output, targets = random_output(seed), random_targets(seed + 100)
    weights = loss_weights(unroll_scale=kind)
    terms = unrolled_loss(output, targets, weights)
    fast = [terms.total, terms.value, terms.reward, terms.policy, terms.consistency]
    assert [float(x.detach()) for x in fast] == pytest.approx(
        slow_loss(output, targets, weights), rel=1e-5
    )


def test_only_the_total_is_differentiated() -> None:
    terms = unrolled_loss(random_output(0), random_targets(1), loss_weights())
    assert [name for name, x in terms._asdict().items() if x.requires_grad] == ["total"]


def test_exactly_the_masked_positions_have_no_gradient() -> None:
    output, targets = random_output(3), random_targets(4)
    unrolled_loss(output, targets, loss_weights()).total.backward()
    masks = {
        "value_logits": targets.value_mask,
        "reward_logits": targets.reward_mask,
        "policy_logits": targets.policy_mask,
        "projection": targets.consistency_mask,
    }
    for name, mask in masks.items():
        gradient = getattr(output, name).grad
        assert 0 < mask.sum() < mask.numel()
        assert torch.equal((gradient != 0).any(-1), mask.bool()), name
    assert output.target_projection is not None
    assert output.target_projection.grad is None


def test_importance_weight_scales_the_gradient_of_its_own_sample() -> None:
    plain, weighted = random_output(5), random_output(5)
    targets = random_targets(6)._replace(importance_weights=torch.ones(B).float())
    unrolled_loss(plain, targets, loss_weights()).total.backward()
    factors = torch.tensor([0.0, 1.0, 2.5]).float()
    targets = targets._replace(importance_weights=factors)
    unrolled_loss(weighted, targets, loss_weights()).total.backward()
    for name in ("value_logits", "reward_logits", "policy_logits", "projection"):
        expected = getattr(plain, name).grad * factors.view(B, 1, 1)
        torch.testing.assert_close(getattr(weighted, name).grad, expected)


def test_without_projection_there_is_no_consistency_loss() -> None:
    output, targets = random_output(7), random_targets(8)
    without = output._replace(projection=None, target_projection=None)
    terms = unrolled_loss(without, targets, loss_weights())
    assert float(terms.consistency) == 0.0
    unweighted = unrolled_loss(output, targets, loss_weights(consistency=0.0))
    assert float(terms.total.detach()) == pytest.approx(float(unweighted.total.detach()), rel=1e-6)
