"""What one update measures, and under which names."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lightzero_lite import transforms


class UpdateMetrics(NamedTuple):
    """What one update measured: scalars, means over the batch."""

    total_loss: Tensor
    value_loss: Tensor
    reward_loss: Tensor
    policy_loss: Tensor
    consistency_loss: Tensor
    policy_entropy: Tensor
    total_grad_norm_before_clip: Tensor
    target_value: Tensor
    predicted_value: Tensor
    clipped_target: Tensor  # share of value and reward targets that lie outside the support
    largest_scaled_target: Tensor  # in the space of h: the support that would be needed
    value_support_used: Tensor  # largest absolute scaled value target / value_support_scale
    reward_support_used: Tensor  # the same of rewards


NUM_TABLE_METRICS = UpdateMetrics._fields.index("value_support_used")  # those of the text log


class Predictions(NamedTuple):
    """What the networks said along the unroll, and what they should have said."""

    value_logits: Tensor  # [B, K + 1, S]
    reward_logits: Tensor  # [B, K, S]
    value_target: Tensor  # [B, K + 1], in units of reward
    reward_target: Tensor  # [B, K]
    value_mask: Tensor  # [B, K + 1], 1: the target counts; 0: it does not
    reward_mask: Tensor  # [B, K], the same


class SupportUse(NamedTuple):
    """How the targets of a batch fill the categorical supports."""

    clipped: Tensor  # [], share of value and reward targets outside
    largest_value: Tensor  # [], absolute, in the space of h
    largest_reward: Tensor  # []


def support_use(
    value: Tensor,
    reward: Tensor,
    value_mask: Tensor,
    reward_mask: Tensor,
    *,
    value_scale: int,
    reward_scale: int,
) -> SupportUse:
    """Compare scaled targets with the supports.

    Args:
        value: `[B, K + 1]`, in the space of h.
        reward: `[B, K]`, in the space of h.
        value_mask: `[B, K + 1]`, 1: the target counts; 0: it does not.
        reward_mask: `[B, K]`, the same.
        value_scale: The support is -value_scale, ..., value_scale.
        reward_scale: The same of rewards.
    """
    is_outside_value = transforms.is_clipped(value, value_scale) * value_mask
    is_outside_reward = transforms.is_clipped(reward, reward_scale) * reward_mask
    num_targets = (value_mask.sum() + reward_mask.sum()).clamp_min(1.0)
    return SupportUse(
        clipped=(is_outside_value.sum() + is_outside_reward.sum()) / num_targets,
        largest_value=(value * value_mask).abs().max(),
        largest_reward=(reward * reward_mask).abs().max(),
    )


@torch.no_grad()
def step_errors(
    predictions: Predictions, *, value_scale: int, reward_scale: int
) -> dict[str, float]:
    """Return how far values and rewards are from their targets after each number of model steps.

    Args:
        predictions: Of one batch.
        value_scale: The support of values is -value_scale, ..., value_scale.
        reward_scale: The same of rewards.

    Returns:
        The mean absolute errors in units of reward, value_error_k0 to value_error_kK and
        reward_error_k1 to reward_error_kK; 0 where no target counts.
    """
    value_logits, reward_logits, value, reward, value_mask, reward_mask = predictions
    values = _mean_errors(value_logits, value, value_mask, value_scale)
    rewards = _mean_errors(reward_logits, reward, reward_mask, reward_scale)
    errors = {f"value_error_k{k}": error for k, error in enumerate(values)}
    return errors | {f"reward_error_k{k}": error for k, error in enumerate(rewards, start=1)}


def _mean_errors(logits: Tensor, target: Tensor, mask: Tensor, scale: int) -> list[float]:
    """Return the mean over the samples that count of each column."""
    error = (transforms.expected_value(logits, scale) - target).abs() * mask
    means: list[float] = (error.sum(0) / mask.sum(0).clamp_min(1.0)).tolist()
    return means
