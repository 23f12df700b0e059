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
    """Time limit in env steps; null: the environment's own, or 10,000 where it has none."""
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
class ModelConfig:
    """The networks (LightZero's MuZeroModelMLP)."""

    latent_state_dim: int = number(64, at_least=1)
    """Width of the latent state and of the hidden layers of the trunk."""
    head_hidden_dim: int = number(32, at_least=1)
    """Width of the hidden layer of the value, policy and reward heads."""
    norm_type: Literal["BN", "LN", "none"] = "LN"
    """Normalisation after each hidden linear: batch norm, layer norm or none."""
    res_connection_in_dynamics: bool = True
    """Add the latent state to what the dynamics network computes from it."""
    reward_support_scale: int = number(10, at_least=1)
    """Rewards are categorical on the integers -scale..scale of the transformed space h."""
    value_support_scale: int = number(20, at_least=1)
    """Values are categorical on the integers -scale..scale of the transformed space h."""
    projection_dim: int = number(64, at_least=1)
    """Width of the projection network of the consistency loss."""
    prediction_hidden_dim: int = number(32, at_least=1)
    """Width of the hidden layer of the consistency loss's prediction head."""
    representation_activation: Literal["relu", "gelu"] = "relu"
    """Activation between the two linears of the representation network."""
    representation_norm: bool = False
    """End the representation network in a layer norm."""


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """The algorithm: search, collection, replay, learning."""

    type: Literal["muzero", "gumbel_muzero"] = "muzero"
    """Which search chooses the actions and makes the policy targets."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The networks."""

    num_simulations: int = number(25, at_least=1)
    """Simulations of one search."""
    q_transform: Literal["tree_min_max", "parent_and_siblings"] = "tree_min_max"
    """How action values are brought to [0, 1] inside PUCT (policy.type=muzero)."""
    pb_c_init: float = number(1.25, at_least=0)
    """PUCT's c1."""
    pb_c_base: float = number(19652.0, above=0)
    """PUCT's c2, in visits."""
    value_delta_max: float = number(0.01, above=0)
    """A range of action values smaller than this is not stretched to [0, 1] inside PUCT."""
    root_dirichlet_alpha: float = number(0.3, above=0)
    """Concentration of the root noise while collecting."""
    root_noise_weight: float = number(0.25, at_least=0, at_most=1)
    """Share of the root noise in the root's prior while collecting."""
    max_num_considered_actions: int = number(16, at_least=1)
    """Actions that sequential halving starts with (policy.type=gumbel_muzero)."""
    gumbel_scale: float = number(1.0, at_least=0)
    """Scale of the root's Gumbel noise while collecting (policy.type=gumbel_muzero)."""

    n_episode: int = number(8, at_least=1)
    """Whole episodes of one collect phase, over all ranks."""
    random_collect_episode_num: int = number(0, at_least=0)
    """Episodes of uniformly random actions before the first collect phase, over all ranks."""
    temperature: float = number(0.25, at_least=0)
    """Actions are drawn from visit_counts^(1/temperature) while collecting; 0: the most visited."""
    initial_temperature: float | None = number(None, at_least=0)
    """Temperature at train_iter 0, falling linearly to policy.temperature; null: constant."""
    temperature_decay_iters: int = number(1000, at_least=1)
    """Training iterations over which the temperature falls."""
    eps: float = number(0.0, at_least=0, at_most=1)
    """Probability of a uniformly random legal action while collecting."""

    replay_buffer_size: int = number(1_000_000, at_least=1)
    """Transitions kept, over all ranks; the oldest episodes go first."""
    train_start_after_envsteps: int = number(0, at_least=0)
    """No update before this many transitions went into the replay buffers, over all ranks."""
    update_per_collect: int | None = number(None, at_least=1)
    """Updates after one collect phase; null: policy.replay_ratio decides."""
    replay_ratio: float = number(0.1, above=0)
    """Updates for each env step collected (policy.update_per_collect=null)."""
    min_update_per_collect: int = number(1, at_least=1)
    """Least updates after one collect phase (policy.update_per_collect=null)."""
    use_priority: bool = False
    """Sample positions by priority instead of uniformly."""
    priority_prob_alpha: float = number(0.6, at_least=0, at_most=1)
    """Exponent of the priorities (policy.use_priority)."""
    priority_prob_beta: float = number(0.4, at_least=0, at_most=1)
    """Exponent of the importance weights at the start (policy.use_priority)."""
    priority_beta_anneal_iters: int = number(100_000, at_least=1)
    """Training iterations over which that exponent rises to 1."""

    batch_size: int = number(256, at_least=1)
    """Positions of one update, over all ranks."""
    num_unroll_steps: int = number(5, at_least=1)
    """Model steps K that the loss is unrolled for."""
    reanalyze_ratio: float = number(0.0, at_least=0, at_most=1)
    """Share of each batch whose targets are searched again with the target network."""
    td_steps: int = number(5, at_least=1)
    """Rewards summed in a value target before it bootstraps."""
    discount_factor: float = number(0.997, at_least=-1, at_most=1)
    """Discount of one env step; negative for two players who alternate."""
    value_bootstrap: Literal["target_network", "search"] = "target_network"
    """Where bootstrap values come from: the target network now, or the search at the time."""
    target_update_freq: int = number(100, at_least=1)
    """Updates between two copies of the model to the target network."""

    optim_type: Literal["Adam", "AdamW", "SGD"] = "Adam"
    """Optimizer."""
    learning_rate: float = number(0.003, above=0)
    """Learning rate of the first update."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate moves to lr_final_factor * learning_rate."""
    lr_decay_iters: int = number(10_000, at_least=1)
    """Training iterations over which the learning rate moves."""
    lr_final_factor: float = number(0.1, at_least=0, at_most=1)
    """Factor of the learning rate at the end of the schedule."""
    weight_decay: float = number(1e-4, at_least=0)
    """L2 penalty (Adam, SGD) or decoupled weight decay (AdamW)."""
    momentum: float = number(0.9, at_least=0, at_most=1)
    """Momentum (policy.optim_type=SGD)."""
    grad_clip_value: float = number(10.0, above=0)
    """Gradients are scaled down to this total norm."""
    value_loss_weight: float = number(0.25, at_least=0)
    """Weight of the value loss."""
    reward_loss_weight: float = number(1.0, at_least=0)
    """Weight of the reward loss."""
    policy_loss_weight: float = number(1.0, at_least=0)
    """Weight of the policy loss."""
    ssl_loss_weight: float = number(2.0, at_least=0)
    """Weight of the consistency loss; 0 builds no projection networks."""
    unroll_loss_scale: Literal["recurrent", "whole"] = "whole"
    """Where the factor 1/K applies: to the loss of steps k >= 1, or to all."""
    dynamics_gradient_scale: float = number(1.0, at_least=0, at_most=1)
    """Factor of the gradient that enters each dynamics step; MuZero's appendix G has 0.5."""

    eval_freq: int = number(200, at_least=1)
    """Training iterations between two evaluations."""


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
