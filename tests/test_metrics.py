"""What an update measures, by hand."""

from __future__ import annotations

import pytest
import torch

from lightzero_lite.metrics import Predictions, step_errors, support_use
from lightzero_lite.transforms import scale_value, two_hot


def logits_of(said: torch.Tensor, scale: int) -> torch.Tensor:
    """Return logits that decode to given numbers: the logarithm of a two-hot distribution."""
    return two_hot(scale_value(said), scale).clamp_min(1e-30).log()


def test_the_error_of_each_step_by_hand() -> None:
    value, reward = torch.tensor([[1.0, 2.0], [5.0, -6.0]]), torch.tensor([[3.0], [0.5]])
    errors = step_errors(
        Predictions(
            value_logits=logits_of(value, 5),
            reward_logits=logits_of(reward, 3),
            value_target=torch.tensor([[0.0, 0.0], [2.0, 0.0]]),
            reward_target=torch.zeros(2, 1),
            value_mask=torch.tensor([[1.0, 1.0], [1.0, 0.0]]),
            reward_mask=torch.zeros(2, 1),
        ),
        value_scale=5,
        reward_scale=3,
    )
    assert list(errors) == ["value_error_k0", "value_error_k1", "reward_error_k1"]
    # (|1 - 0| + |5 - 2|) / 2; |2 - 0|, the -6 does not count; no reward counts.
    assert [*errors.values()] == pytest.approx([2.0, 2.0, 0.0], abs=1e-4)


def test_the_use_of_the_supports_by_hand() -> None:
    value = torch.tensor([[1.0, -5.0], [9.0, 2.0]])
    reward = torch.tensor([[0.5], [-3.0]])
    mask = torch.tensor([[1.0, 1.0], [0.0, 1.0]])  # the 9 does not count
    use = support_use(value, reward, mask, torch.ones(2, 1), value_scale=4, reward_scale=2)
    assert use.largest_value == 5
    assert use.largest_reward == 3
    assert use.clipped == pytest.approx(2 / 5)  # -5 and -3 of the five that count
