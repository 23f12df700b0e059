"""The configuration: one frozen dataclass a section, read from YAML and the command line by Hydra.

Defaults live here; `configs/` holds only what differs for an environment or a policy. Every count
is global: N ranks share it out (see `check_shares`).
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lightzero_lite.policy_options import ModelConfig as ModelConfig
from lightzero_lite.policy_options import PolicyConfig as PolicyConfig
from lightzero_lite.sections import build_section, known_keys, not_a_value, number, unknown_key
from lightzero_lite.types import UserError


@dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """The environment and how many of it are played."""

    env_id: str = "CartPole-v1"
    """Gymnasium id; observations must flatten to a vector, actions be Discrete."""
    entry_point: str | None = None
    """Your own environment in place of env.env_id: package.module:Class, or a function's name."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment's constructor: env.kwargs.size=5."""
    wrappers: list[str] = field(default_factory=list)
    """Gymnasium wrappers put around it, innermost first: [package.module:Class,...]."""
    max_episode_steps: int | None = number(None, at_least=1)
    """Time limit in the environment's own steps; null: its own, or 10,000 where it has none."""
    action_repeat: int = number(1, at_least=1)
    """How many of the environment's own steps an action lasts: one env step everywhere else."""
    vectorization: Literal["sync", "async"] = "sync"
    """Step the environments of a rank one after the other, or each in a process of its own."""
    normalize_observation: bool = False
    """Show the networks observations of mean 0 and deviation 1, by running statistics."""
    reward_scale: float = number(1.0, above=0)
    """Factor of the rewards that are learned from; the logs report returns without it."""
    reward_clip: float | None = number(None, above=0)
    """Scaled rewards are cut to -reward_clip..reward_clip before they are stored; null: never."""
    collector_env_num: int = number(8, at_least=1)
    """Environments that collect at the same time, over all ranks."""
    evaluator_env_num: int = number(20, at_least=1)
    """Environments that evaluate at the same time, over all ranks."""
    n_evaluator_episode: int = number(20, at_least=1)
    """Episodes of one evaluation, over all ranks."""
    stop_value: float | None = None
    """Training ends when an evaluation's mean return reaches this; null: never."""
    opponents: list[str] = field(default_factory=list)
    """Two players: whom an evaluation plays, n_evaluator_episode games each; the first decides."""

    @property
    def option(self) -> str:
        """The option that names the environment, as a user writes it."""
        if self.entry_point is None:
            return f"env.env_id={self.env_id}"
        return f"env.entry_point={self.entry_point}"

    @property
    def name(self) -> str:
        """The environment's name: its id, or where its class is."""
        return self.entry_point or self.env_id


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are written."""

    save_freq: int = number(10_000, at_least=1)
    """Training iterations between two iteration checkpoints; the last one is always written."""
    replay_buffer: bool = False
    """Store the replay buffers beside the newest of them, so that a resume is exact."""


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """How often the learner reports."""

    learner_freq: int = number(100, at_least=1)
    """Training iterations between two tables of the learner."""
    histograms: bool = False
    """Add histograms of networks, latents, priorities and searches to TensorBoard at each table."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """One training run."""

    exp_name: str | None = None
    """Run folder; null: named by environment, policy and seed."""
    seed: int = number(0, at_least=0)
    """Seed of weights, environments, search noise and sampling."""
    resume: str | None = None
    """Checkpoint to continue; auto: the run folder's newest, if any; null: a fresh start."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where networks run; auto takes a GPU a rank where there are enough."""
    max_env_step: int = number(200_000, at_least=1)
    """Training ends after this many env steps, over all ranks and resumes."""
    max_train_iter: int = number(1_000_000_000, at_least=1)
    """Training ends after this many updates, over all resumes."""
    profile: bool = False
    """Trace the second and third cycle under log/profile and print what cost most in them."""
    env: EnvConfig = field(default_factory=EnvConfig)
    """The environment."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    """The algorithm."""
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """Checkpoints."""
    log: LogConfig = field(default_factory=LogConfig)
    """Logs."""


def load_config(overrides: Sequence[str], stored: Config | None = None) -> Config:
    """Compose the configuration of a command line.

    Args:
        overrides: Hydra overrides, for example ["env=cartpole", "policy.batch_size=64"].
        stored: What the overrides change; None: the YAML files that they name.

    Raises:
        UserError: A key is unknown, a value has the wrong type or is out of range.
    """
    flags = [override for override in overrides if override.startswith("-")]
    if flags:
        raise UserError(f"{flags[0]}: options are written key=value, for example seed=1")
    names = {override.split("=", 1)[0].lstrip("+~") for override in overrides}
    hydra_keys = sorted(name for name in names if re.match(r"hydra\b", name))
    if hydra_keys:
        raise UserError(f"{hydra_keys[0]}: Hydra's own settings are not used here")
    # A bare Gymnasium id must not inherit the recipe and the stop value of another environment.
    own = {"env.env_id", "env.entry_point"} & names
    base = ["env=gymnasium"] if stored is None and own and "env" not in names else []
    # Every known key exists before YAML and overrides come, so that Hydra refuses the others.
    ConfigStore.instance().store("keys", config_to_dict(stored or Config()))
    try:
        with initialize_config_dir(str(_config_folder()), version_base="1.3"):
            name = "config" if stored is None else "keys"
            composed = compose(name, overrides=[*base, *map(_open, overrides)])
        values = OmegaConf.to_container(composed, resolve=True)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UserError(_one_line(error)) from None
    assert isinstance(values, dict)
    config = config_from_dict(typing.cast(dict[str, Any], values))
    if "env.env_id" in names and config.env.entry_point is not None:
        raise UserError(f"{config.env.option} takes the place of env.env_id: give one of the two")
    return config


def config_from_dict(values: dict[str, Any]) -> Config:
    """Build the typed configuration from nested plain dictionaries; missing keys take defaults.

    Raises:
        UserError: A key is unknown, a value has the wrong type or is out of range.
    """
    return build_section(Config, values)


def config_to_dict(config: Config) -> dict[str, Any]:
    """Return the configuration as nested dictionaries of plain Python values."""
    return dataclasses.asdict(config)


def check_shares(config: Config, num_ranks: int) -> None:
    """Check that every rank gets a share of each global count.

    Raises:
        UserError: A count cannot be shared out; the line names both numbers.
    """
    if config.policy.batch_size % num_ranks:
        raise UserError(
            f"policy.batch_size={config.policy.batch_size} cannot be shared by {num_ranks} ranks: "
            f"choose a multiple of {num_ranks}"
        )
    keys = ["env.collector_env_num", "policy.n_episode", "policy.replay_buffer_size"]
    if config.policy.random_collect_episode_num:
        keys.append("policy.random_collect_episode_num")
    for key in keys:
        section, name = key.split(".")
        count = getattr(getattr(config, section), name)
        if count < num_ranks:
            raise UserError(f"{key}={count} is fewer than {num_ranks} ranks: set at least one each")


def _config_folder() -> Path:
    """Return where the YAML files are: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def _open(override: str) -> str:
    """Let an override add to env.kwargs, the one dictionary whose keys are not known beforehand."""
    return re.sub(r"^\+{0,2}(?=env\.kwargs[.=])", "++", override)


def _one_line(error: Exception) -> str:
    """Turn a composition error into one line that says the remedy."""
    text = str(error)
    unknown = re.search(r"Could not (?:override|delete from config)[^']*'([^']+)'", text)
    if unknown:
        key, known = unknown.group(1), known_keys(Config)
        is_section = any(other.startswith(f"{key}.") for other in known)
        return not_a_value(key) if is_section else unknown_key(key, known)
    choice = re.search(
        r"Could not find '(\w+)/(\S+)'.*Available options in '\w+':(.*)\n", text, re.S
    )
    if choice:
        names = ", ".join(choice.group(3).partition("Config search path")[0].split())
        return f"{choice.group(1)}={choice.group(2)} is none of {names}"
    return " ".join(text.split())
