"""One vector of all gradients, against torch's own functions on single parameters."""

import pytest
import torch
from torch import nn

from lightzero_lite.gradients import clip_norm, flat_gradients


def networks(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.ReLU(), nn.Linear(5, 2))


def test_a_backward_fills_the_vector_in_the_order_of_the_parameters():
    model, other, inputs = networks(), networks(), torch.randn(7, 3)
    vector = flat_gradients(model)
    assert vector.tolist() == [0.0] * sum(p.numel() for p in model.parameters())
    model(inputs).square().sum().backward()
    other(inputs).square().sum().backward()
    assert vector.tolist() == [x for p in other.parameters() for x in p.grad.flatten().tolist()]
    vector.zero_()
    assert all(p.grad.count_nonzero() == 0 for p in model.parameters())


@pytest.mark.parametrize("largest", [0.5, 2.0, 1e6])
def test_clipping_is_that_of_torch(largest):
    model, other, inputs = networks(), networks(), torch.randn(7, 3)
    vector = flat_gradients(model)
    model(inputs).square().sum().backward()
    other(inputs).square().sum().backward()
    norm = clip_norm(vector, largest)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(other.parameters(), largest))
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_clipping_by_hand_and_a_short_vector_stays_bit_for_bit():
    vector = torch.tensor([3.0, 4.0])
    assert clip_norm(vector, 1.0).item() == 5.0
    assert vector.tolist() == pytest.approx([0.6, 0.8], rel=1e-5)
    before = vector.tolist()
    clip_norm(vector, 1.1)
    assert vector.tolist() == before
