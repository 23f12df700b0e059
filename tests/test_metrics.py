"""What an update measures, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from lightzero_lite.metrics import ERROR_STRIDE, metric_names, step_errors, support_use
from lightzero_lite.transforms import scale_value, two_hot


def test_names_follow_the_unroll() -> None:
    names = metric_names(2)
    assert names[0] == "total_loss"
    assert names[-5:] == [
        "value_error_k0",
        "value_error_k1",
        "value_error_k2",
        "reward_error_k1",
        "reward_error_k2",
    ]
    assert len(set(names)) == len(names)


def test_the_error_of_each_step_by_hand() -> None:
    # Logits that decode to known values: the logarithm of a two-hot distribution.
    said = torch.zeros(2 * ERROR_STRIDE, 3)
    said[0], said[ERROR_STRIDE] = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([5.0, -6.0, 7.0])
    logits = two_hot(scale_value(said), 5).clamp_min(1e-30).log()
    target, mask = torch.zeros_like(said), torch.ones_like(said)
    target[ERROR_STRIDE, 0], mask[ERROR_STRIDE, 1], mask[:, 2] = 2.0, 0.0, 0.0
    logits[1] = math.nan  # between two chosen samples: not decoded
    errors = step_errors(logits, target, mask, 5)
    # (|1 - 0| + |5 - 2|) / 2; |2 - 0|, the other one is masked; all are masked.
    assert errors.tolist() == pytest.approx([2.0, 2.0, 0.0], abs=1e-4)


def test_the_use_of_the_supports_by_hand() -> None:
    value = torch.tensor([[1.0, -5.0], [9.0, 2.0]])
    reward = torch.tensor([[0.5], [-3.0]])
    mask = torch.tensor([[1.0, 1.0], [0.0, 1.0]])  # the 9 does not count
    use = support_use(value, reward, mask, torch.ones(2, 1), value_scale=4, reward_scale=2)
    assert use.largest_value == 5
    assert use.largest_reward == 3
    assert use.clipped == pytest.approx(2 / 5)  # -5 and -3 of the five that count
