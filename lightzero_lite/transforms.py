"""Value rescaling and categorical supports (MuZero, appendix F; Pohlen et al. 2018).

A scalar x is squashed by h, then written as a two-hot distribution over the integer atoms
-scale, ..., scale. Everything here is a pure function of tensors and numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 0.001


def scale_value(x: Tensor) -> Tensor:
    """Return h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x, of any shape."""
    return torch.sign(x) * (torch.sqrt(x.abs() + 1.0) - 1.0) + EPSILON * x


def unscale_value(y: Tensor) -> Tensor:
    """Return h^-1(y), the inverse of `scale_value`, of any shape."""
    # (sqrt(1 + 4 e u) - 1) / (2 e) in the form that loses no digits in float32 near zero.
    u = y.abs() + 1.0 + EPSILON
    root = 2.0 * u / (torch.sqrt(1.0 + 4.0 * EPSILON * u) + 1.0)
    return torch.sign(y) * (root.square() - 1.0)


def atoms(scale: int, device: torch.device | None = None) -> Tensor:
    """Return the support [-scale, ..., scale], shape [2 * scale + 1]."""
    return torch.arange(-scale, scale + 1, dtype=torch.float32, device=device)


def two_hot(x: Tensor, scale: int) -> Tensor:
    """Spread scaled scalars over the two nearest integer atoms, so that the mean is x.

    Args:
        x: Scalars in the space of h, any shape [...]. Values past the support are clipped to it.
        scale: The support is -scale, ..., scale.

    Returns:
        Probabilities, shape [..., 2 * scale + 1].
    """
    x = x.clamp(-scale, scale)
    low = x.floor()
    high_weight = x - low
    index = (low + scale).long()
    probabilities = x.new_zeros((*x.shape, 2 * scale + 1))
    probabilities.scatter_(-1, index.unsqueeze(-1), (1.0 - high_weight).unsqueeze(-1))
    upper = (index + 1).clamp_max(2 * scale)
    # At the last atom high_weight is 0, so adding keeps the weight that is there.
    probabilities.scatter_add_(-1, upper.unsqueeze(-1), high_weight.unsqueeze(-1))
    return probabilities


def is_clipped(x: Tensor, scale: int) -> Tensor:
    """Return True where a scaled scalar lies outside the support and `two_hot` would clip it."""
    return x.abs() > scale


def expected_value(logits: Tensor, scale: int) -> Tensor:
    """Decode categorical logits [..., 2 * scale + 1] into scalars [...] in the space of rewards."""
    probabilities = torch.softmax(logits, dim=-1)
    return unscale_value(probabilities @ atoms(scale, logits.device))
