"""The unrolled MuZero loss (MuZero, equation 1; EfficientZero, equation 3 for consistency)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class UnrolledOutput(NamedTuple):
    """The network's answers along K model steps from B observations."""

    value_logits: Tensor  # [B, K + 1, S]
    reward_logits: Tensor  # [B, K, S]
    policy_logits: Tensor  # [B, K + 1, A]
    projection: Tensor | None  # [B, K, P], online branch of latents 1..K; None: no consistency
    target_projection: Tensor | None  # [B, K, P], stop-gradient branch of observations t+1..t+K


class LossTargets(NamedTuple):
    """What the answers are compared with; masks are 1 where a term counts and 0 where not."""

    value: Tensor  # [B, K + 1, S], two-hot
    reward: Tensor  # [B, K, S], two-hot
    policy: Tensor  # [B, K + 1, A]
    value_mask: Tensor  # [B, K + 1]
    reward_mask: Tensor  # [B, K]
    policy_mask: Tensor  # [B, K + 1]
    consistency_mask: Tensor  # [B, K]
    importance_weights: Tensor  # [B]


class LossTerms(NamedTuple):
    """Scalars, each a mean over the batch; `total` alone is differentiated."""

    total: Tensor  # []
    value: Tensor  # []
    reward: Tensor  # []
    policy: Tensor  # []
    consistency: Tensor  # []
    policy_entropy: Tensor  # []


@dataclass(frozen=True, kw_only=True)
class LossWeights:
    """How the terms are added up."""

    value: float
    reward: float
    policy: float
    consistency: float
    unroll_scale: Literal["recurrent", "whole"]  # where 1/K applies: to steps k >= 1, or to all


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Return -sum_a target(a) log softmax(logits)(a), shape [...] from [..., A]."""
    return -(target * functional.log_softmax(logits, dim=-1)).sum(dim=-1)


def negative_cosine(online: Tensor, target: Tensor) -> Tensor:
    """Return minus the cosine of the angle between vectors, shape [...] from [..., P]."""
    # functional.cosine_similarity divides whole vectors by their norms: twice the time of this.
    target = target.detach()
    online_norm, target_norm = (_length(x).clamp_min(1e-5) for x in (online, target))
    return -(online * target).sum(dim=-1) / (online_norm * target_norm)


def _length(x: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return length


def step_scale(num_unroll_steps: int, unroll_scale: str, device: torch.device) -> Tensor:
    """Return the factor [K + 1] of each unroll step's loss (MuZero, appendix G)."""
    scale = torch.full((num_unroll_steps + 1,), 1.0 / num_unroll_steps, device=device)
    if unroll_scale == "recurrent":
        scale[0] = 1.0
    return scale


def scale_gradient(x: Tensor, factor: float) -> Tensor:
    """Return x, whose gradient is multiplied by `factor` on the way back."""
    return x if factor == 1.0 else x * factor + x.detach() * (1.0 - factor)


def unrolled_loss(output: UnrolledOutput, targets: LossTargets, weights: LossWeights) -> LossTerms:
    """Add up value, reward, policy and consistency losses over the unroll.

    Each sample's sum over k is multiplied by its importance weight, then averaged over the batch.

    Args:
        output: The network's answers.
        targets: What they should be, with masks.
        weights: Factors of the terms and where 1/K applies.
    """
    num_unroll_steps = output.reward_logits.shape[1]
    scale = step_scale(num_unroll_steps, weights.unroll_scale, output.value_logits.device)
    value = cross_entropy(output.value_logits, targets.value) * targets.value_mask
    policy = cross_entropy(output.policy_logits, targets.policy) * targets.policy_mask
    reward = cross_entropy(output.reward_logits, targets.reward) * targets.reward_mask
    value, policy, reward = value @ scale, policy @ scale, reward @ scale[1:]
    consistency = torch.zeros_like(value)
    if output.projection is not None and output.target_projection is not None:
        cosine = negative_cosine(output.projection, output.target_projection)
        consistency = (cosine * targets.consistency_mask) @ scale[1:]
    sample_loss = (
        weights.value * value
        + weights.reward * reward
        + weights.policy * policy
        + weights.consistency * consistency
    )
    with torch.no_grad():
        first = functional.log_softmax(output.policy_logits[:, 0], dim=-1)
        entropy = -(first.exp() * first).sum(dim=-1).mean()
    return LossTerms(
        total=(sample_loss * targets.importance_weights).mean(),
        value=value.detach().mean(),
        reward=reward.detach().mean(),
        policy=policy.detach().mean(),
        consistency=consistency.detach().mean(),
        policy_entropy=entropy,
    )
