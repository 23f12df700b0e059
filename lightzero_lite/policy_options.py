"""The options of the algorithm and of its networks: the section `policy` of the configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from lightzero_lite.sections import number


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
