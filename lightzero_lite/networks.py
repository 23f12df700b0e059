"""The MuZero networks for vector observations, under LightZero's module names.

`load_state_dict` of a LightZero MuZeroModelMLP checkpoint works when the options agree with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

NormType = Literal["BN", "LN", "none"]


@dataclass(frozen=True, kw_only=True)
class NetworkShape:
    """Everything that fixes the parameters of a MuZeroModelMLP."""

    observation_dim: int
    action_num: int
    latent_state_dim: int
    head_hidden_dim: int
    reward_support_scale: int
    value_support_scale: int
    norm_type: NormType
    res_connection_in_dynamics: bool
    has_projection: bool
    projection_dim: int
    prediction_hidden_dim: int
    representation_activation: Literal["relu", "gelu"] = "relu"
    representation_norm: bool = False


class Prediction(NamedTuple):
    """What the prediction network answers for latents [B, D]."""

    value_logits: Tensor  # [B, S]
    policy_logits: Tensor  # [B, A]


def _norm(norm_type: NormType, width: int) -> list[nn.Module]:
    if norm_type == "BN":
        return [nn.BatchNorm1d(width)]
    return [nn.LayerNorm(width)] if norm_type == "LN" else []


def _layer(width_in: int, width_out: int, norm_type: NormType) -> list[nn.Module]:
    """Return linear, normalisation and ReLU."""
    return [nn.Linear(width_in, width_out), *_norm(norm_type, width_out), nn.ReLU(inplace=True)]


def _head(shape: NetworkShape, outputs: int) -> nn.Sequential:
    """Return a two-layer head whose last linear starts at zero: at first it says nothing."""
    last = nn.Linear(shape.head_hidden_dim, outputs)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    hidden = _layer(shape.latent_state_dim, shape.head_hidden_dim, shape.norm_type)
    return nn.Sequential(*hidden, last)


def _two_layers(width_in: int, width: int, norm_type: NormType) -> nn.Sequential:
    return nn.Sequential(*_layer(width_in, width, norm_type), *_layer(width, width, norm_type))


class RepresentationNetworkMLP(nn.Module):
    """h: observation [B, O] -> latent [B, D]."""

    def __init__(self, shape: NetworkShape) -> None:
        """Build two linears; the options choose what stands between and behind them."""
        super().__init__()
        width = shape.latent_state_dim
        first: list[nn.Module] = [nn.Linear(shape.observation_dim, width)]
        first += _norm(shape.norm_type, width)
        is_gelu = shape.representation_activation == "gelu"
        first.append(nn.GELU(approximate="tanh") if is_gelu else nn.ReLU(inplace=True))
        self.fc_representation = nn.Sequential(*first, nn.Linear(width, width))
        self.norm = nn.LayerNorm(width) if shape.representation_norm else nn.Identity()

    def forward(self, observation: Tensor) -> Tensor:
        """Return the latent state of each observation."""
        latent: Tensor = self.norm(self.fc_representation(observation))
        return latent


class DynamicsNetworkMLP(nn.Module):
    """g: latent [B, D], action [B] -> next latent [B, D], and the reward of that step."""

    def __init__(self, shape: NetworkShape) -> None:
        """Build the residual form (two blocks) or the plain form (one)."""
        super().__init__()
        width, self.action_num = shape.latent_state_dim, shape.action_num
        self.is_residual = shape.res_connection_in_dynamics
        transition = _two_layers(width + shape.action_num, width, shape.norm_type)
        if self.is_residual:
            self.fc_dynamics_1 = transition
            self.fc_dynamics_2 = _two_layers(width, width, shape.norm_type)
        else:
            self.fc_dynamics = transition
        self.fc_reward_head = _head(shape, 2 * shape.reward_support_scale + 1)

    def forward(self, latent: Tensor, action: Tensor) -> Tensor:
        """Return the next latent state."""
        # functional.one_hot would first look for the smallest and the largest action, and wait.
        one_hot = latent.new_zeros(len(action), self.action_num).scatter_(1, action[:, None], 1.0)
        encoding = torch.cat([latent, one_hot], dim=1)
        if self.is_residual:
            next_latent: Tensor = latent + self.fc_dynamics_1(encoding)
        else:
            next_latent = self.fc_dynamics(encoding)
        return next_latent

    def reward_logits(self, next_latent: Tensor) -> Tensor:
        """Return the reward distribution [B, S] of the step that led to `next_latent`."""
        features = self.fc_dynamics_2(next_latent) if self.is_residual else next_latent
        logits: Tensor = self.fc_reward_head(features)
        return logits


class PredictionNetworkMLP(nn.Module):
    """f: latent [B, D] -> value and policy logits."""

    def __init__(self, shape: NetworkShape) -> None:
        """Build the common trunk and the two heads."""
        super().__init__()
        width = shape.latent_state_dim
        self.fc_prediction_common = _two_layers(width, width, shape.norm_type)
        self.fc_value_head = _head(shape, 2 * shape.value_support_scale + 1)
        self.fc_policy_head = _head(shape, shape.action_num)

    def forward(self, latent: Tensor) -> Prediction:
        """Return both heads' logits."""
        features = self.fc_prediction_common(latent)
        return Prediction(self.fc_value_head(features), self.fc_policy_head(features))


class MuZeroModelMLP(nn.Module):
    """Representation, dynamics, prediction and (for the consistency loss) projection networks."""

    def __init__(self, shape: NetworkShape) -> None:
        """Build the networks; `shape` is kept, since a checkpoint is compared with it."""
        super().__init__()
        self.shape = shape
        self.representation_network = RepresentationNetworkMLP(shape)
        self.dynamics_network = DynamicsNetworkMLP(shape)
        self.prediction_network = PredictionNetworkMLP(shape)
        if shape.has_projection:
            width = shape.projection_dim
            last = [nn.Linear(width, width), *_norm(shape.norm_type, width)]
            self.projection = nn.Sequential(
                *_two_layers(shape.latent_state_dim, width, shape.norm_type), *last
            )
            self.prediction_head = nn.Sequential(
                *_layer(width, shape.prediction_hidden_dim, shape.norm_type),
                nn.Linear(shape.prediction_hidden_dim, width),
            )

    def project(self, latent: Tensor, *, with_gradient: bool) -> Tensor:
        """Project latents [B, D] for the consistency loss (EfficientZero; SimSiam, Chen and He).

        With gradient, the online branch: projection, then the prediction head. Without, the
        stop-gradient branch: projection alone.
        """
        if with_gradient:
            projected: Tensor = self.prediction_head(self.projection(latent))
            return projected
        with torch.no_grad():
            target: Tensor = self.projection(latent)
            return target
