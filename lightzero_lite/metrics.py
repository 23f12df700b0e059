"""What one update measures, and under which names."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lightzero_lite import transforms

# One sample in so many is decoded at every step: the means over updates lose nothing by it.
ERROR_STRIDE = 4


class UpdateMetrics(NamedTuple):
    """What one update measured: scalars, means over the batch, and vectors over unroll steps."""

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
    value_error: Tensor  # [K + 1], mean |predicted - target| at steps 0..K, in units of reward
    reward_error: Tensor  # [K], the same of rewards at steps 1..K


NUM_TABLE_METRICS = UpdateMetrics._fields.index("value_support_used")  # those of the text log


def flattened(metrics: UpdateMetrics) -> Tensor:
    """Return all numbers as one vector, on the device where they are."""
    return torch.cat([metric.reshape(-1) for metric in metrics])


def metric_names(num_unroll_steps: int) -> list[str]:
    """Return the name of each number of `flattened`."""
    return [
        *UpdateMetrics._fields[:-2],
        *(f"value_error_k{k}" for k in range(num_unroll_steps + 1)),
        *(f"reward_error_k{k}" for k in range(1, num_unroll_steps + 1)),
    ]


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
def step_errors(logits: Tensor, target: Tensor, mask: Tensor, scale: int) -> Tensor:
    """Return the mean absolute error of each unroll step, over every ERROR_STRIDE-th sample.

    Args:
        logits: `[B, K, 2 * scale + 1]`, categorical predictions.
        target: `[B, K]`, in units of reward.
        mask: `[B, K]`, 1: the target counts; 0: it does not.
        scale: The support is -scale, ..., scale.

    Returns:
        `[K]`; 0 where no target counts.
    """
    chosen = slice(None, None, ERROR_STRIDE)
    predicted = transforms.expected_value(logits[chosen], scale)
    error = (predicted - target[chosen]).abs() * mask[chosen]
    return error.sum(0) / mask[chosen].sum(0).clamp_min(1.0)
