"""Checkpoints that LightZero wrote for its MuZeroModelMLP: what they lack, and what they imply.

They hold model, target_model, optimizer, last_iter and last_step, but no configuration: the options
of the networks are read from the names and shapes of the parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Literal

from torch import Tensor

from lightzero_lite.config import Config, ModelConfig
from lightzero_lite.types import StateDict, UserError

Parameters = Mapping[str, Tensor]
_FIRST = "representation_network.fc_representation"
_REWARD, _VALUE = "dynamics_network.fc_reward_head", "prediction_network.fc_value_head"


def is_lightzero(state: object) -> bool:
    """Return whether a checkpoint is LightZero's: networks that ours has, without our counters."""
    if not isinstance(state, dict) or "counters" in state or "config" in state:
        return False
    model = state.get("model")
    return isinstance(model, dict) and f"{_FIRST}.0.weight" in model


def completed(state: StateDict) -> StateDict:
    """Return a LightZero checkpoint with the keys of ours; counters start from its own two."""
    last_step = int(state.get("last_step", 0))
    return {
        "target_model": state["model"],
        "optimizer": {"state": {}},
        "last_iter": 0,
        **state,
        "last_step": last_step,
        "counters": {"envstep": last_step},
    }


def with_model_options(config: Config, model: Parameters) -> Config:
    """Return the configuration with the network options that a LightZero checkpoint implies.

    Without projection networks the consistency loss has nothing to train, so it is off.

    Raises:
        UserError: The networks are of a kind that is not built here.
    """
    has_projection = "projection.0.weight" in model
    weight = config.policy.ssl_loss_weight if has_projection else 0.0
    policy = replace(config.policy, model=_model_config(model), ssl_loss_weight=weight)
    return replace(config, policy=policy)


def taken_options(config: Config) -> str:
    """Return what `with_model_options` set, as options of the command line."""
    options = {f"policy.model.{name}": v for name, v in asdict(config.policy.model).items()}
    if config.policy.ssl_loss_weight == 0:
        options["policy.ssl_loss_weight"] = 0
    return " ".join(f"{name}={value}" for name, value in options.items())


def _model_config(model: Parameters) -> ModelConfig:
    """Read the options of the networks from the parameters' names and shapes."""
    defaults = ModelConfig()
    # Versions of LightZero that end the representation in a norm have a tanh-approximated GELU
    # between its linears; an activation leaves no parameter, so the norm stands for both.
    has_norm = "representation_network.norm.weight" in model
    return ModelConfig(
        latent_state_dim=_rows(model, f"{_FIRST}.0.weight", 0),
        head_hidden_dim=_rows(model, f"{_VALUE}.0.weight", 0),
        norm_type=_norm_type(model),
        res_connection_in_dynamics="dynamics_network.fc_dynamics_1.0.weight" in model,
        reward_support_scale=_support_scale(model, _REWARD),
        value_support_scale=_support_scale(model, _VALUE),
        projection_dim=_rows(model, "projection.0.weight", defaults.projection_dim),
        prediction_hidden_dim=_rows(
            model, "prediction_head.0.weight", defaults.prediction_hidden_dim
        ),
        representation_activation="gelu" if has_norm else "relu",
        representation_norm=has_norm,
    )


def _norm_type(model: Parameters) -> Literal["BN", "LN", "none"]:
    """Tell the norm behind the first linear; without one, the activation stands there."""
    if f"{_FIRST}.1.weight" not in model:
        return "none"
    return "BN" if f"{_FIRST}.1.running_mean" in model else "LN"


def _support_scale(model: Parameters, head: str) -> int:
    """Return the scale of a head's support, which has 2 * scale + 1 atoms."""
    layers = [match[1] for name in model if (match := re.match(rf"{head}\.(\d+)\.weight", name))]
    atoms = _rows(model, f"{head}.{max(layers, key=int)}.weight" if layers else head, 0)
    if atoms < 3 or atoms % 2 == 0:
        raise UserError(
            f"this LightZero checkpoint has {atoms} outputs in {head}: only categorical supports "
            "-scale..scale in steps of 1 are built here"
        )
    return (atoms - 1) // 2


def _rows(model: Parameters, name: str, default: int) -> int:
    """Return the number of outputs of a linear."""
    return len(model[name]) if name in model else default
