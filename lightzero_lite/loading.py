"""From a checkpoint to what plays it: for the scripts that evaluate, watch and report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lightzero_lite.building import network_shape
from lightzero_lite.config import Config, config_from_dict, load_config
from lightzero_lite.envs.factory import env_shape, make_env
from lightzero_lite.networks import MuZeroModelMLP
from lightzero_lite.normalization import ObservationNormalizer
from lightzero_lite.predictor import Predictor
from lightzero_lite.runtime.checkpoint import (
    STATISTICS,
    check_same_normalization,
    check_same_shapes,
    load_checkpoint,
)
from lightzero_lite.runtime.distributed import Ranks, choose_device
from lightzero_lite.runtime.lightzero_checkpoint import with_model_options
from lightzero_lite.types import StateDict, UserError


class Subject(NamedTuple):
    """A checkpoint that is ready to play."""

    path: Path
    state: StateDict  # the checkpoint, in the form of ours
    config: Config
    predictor: Predictor  # with the checkpoint's weights


def load_subject(arguments: Sequence[str], ranks: Ranks) -> Subject:
    """Read a checkpoint and build its networks.

    Our checkpoints bring their configuration, and what the command line says goes on top.
    LightZero's have none: the networks are read from the file, the rest comes as in train.py.

    Args:
        arguments: ckpt=PATH and overrides of the configuration.
        ranks: The processes that take part.

    Raises:
        UserError: The checkpoint or an override cannot be used.
    """
    paths = [text.removeprefix("ckpt=") for text in arguments if text.startswith("ckpt=")]
    if len(paths) != 1 or not paths[0]:
        raise UserError("name one checkpoint: ckpt=run_folder/ckpt/ckpt_best.pth.tar")
    path = Path(paths[0])
    overrides = [text for text in arguments if not text.startswith("ckpt=")]
    state = load_checkpoint(path, "ckpt")
    if "config" in state:
        config = load_config(overrides, config_from_dict(state["config"]))
    else:
        config = with_model_options(load_config(overrides), state["model"])
    return Subject(path, state, config, _predictor(config, path, state, ranks))


def _predictor(config: Config, path: Path, state: StateDict, ranks: Ranks) -> Predictor:
    """Build the networks for the environment and load the checkpoint's weights."""
    env = make_env(config.env)
    shape = network_shape(config.policy, env_shape(env))
    env.close()
    model = MuZeroModelMLP(shape)
    check_same_shapes(model.state_dict(), path, state, "ckpt")
    model.load_state_dict(state["model"])
    device = choose_device(config.device, ranks)
    num_simulations = config.policy.num_simulations
    is_enabled = config.env.normalize_observation
    check_same_normalization(is_enabled, path, state, "ckpt")
    normalizer = ObservationNormalizer(shape.observation_dim, is_enabled=is_enabled)
    normalizer.load_state_dict(state.get(STATISTICS))
    predictor = Predictor(
        shape, num_simulations=num_simulations, device=device, normalizer=normalizer
    )
    predictor.load(model)
    return predictor
