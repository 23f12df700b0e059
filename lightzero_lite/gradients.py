"""The gradients of all parameters as one vector: one call clears, measures or scales them all."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def flat_gradients(model: nn.Module) -> Tensor:
    """Return a vector of zeros whose parts are, from now on, the gradients of the parameters.

    A backward adds to them, so whoever calls it sets the vector to zero first. Nobody may set a
    gradient to None, as optimizers do in `zero_grad`: it would leave the vector for good.

    Args:
        model: Networks whose parameters have no gradients yet.
    """
    parameters = list(model.parameters())
    vector = torch.zeros_like(nn.utils.parameters_to_vector(parameters).detach())
    parts = torch.split_with_sizes(vector, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)
    return vector


def clip_norm(gradients: Tensor, largest: float) -> Tensor:
    """Scale gradients down to a Euclidean norm of at most `largest`, in place.

    Args:
        gradients: All of them as one vector.
        largest: Longest length that is left alone.

    Returns:
        The norm before, []. Nobody waits for it, so that a GPU's queue does not run dry.
    """
    norm: Tensor = torch.linalg.vector_norm(gradients)
    gradients.mul_((largest / (norm + 1e-6)).clamp_max(1.0))
    return norm
