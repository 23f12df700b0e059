"""From a configuration to the parts that it describes."""

from __future__ import annotations

from functools import partial

from lightzero_lite.config import PolicyConfig
from lightzero_lite.envs.factory import EnvShape
from lightzero_lite.networks import NetworkShape
from lightzero_lite.replay import ReplayBuffer
from lightzero_lite.runtime.distributed import Ranks, share
from lightzero_lite.runtime.schedules import linear
from lightzero_lite.search import TreeCache, gumbel_muzero_policy, muzero_policy
from lightzero_lite.types import SearchFn


def network_shape(policy: PolicyConfig, env: EnvShape) -> NetworkShape:
    """Return the options of the networks for an environment."""
    model = policy.model
    return NetworkShape(
        observation_dim=env.observation_dim,
        action_num=env.action_num,
        latent_state_dim=model.latent_state_dim,
        head_hidden_dim=model.head_hidden_dim,
        reward_support_scale=model.reward_support_scale,
        value_support_scale=model.value_support_scale,
        norm_type=model.norm_type,
        res_connection_in_dynamics=model.res_connection_in_dynamics,
        has_projection=policy.ssl_loss_weight > 0,
        projection_dim=model.projection_dim,
        prediction_hidden_dim=model.prediction_hidden_dim,
        representation_activation=model.representation_activation,
        representation_norm=model.representation_norm,
    )


def replay_buffer(policy: PolicyConfig, shape: NetworkShape, ranks: Ranks) -> ReplayBuffer:
    """Return this rank's share of the replay buffer, empty."""
    return ReplayBuffer(
        size=share(policy.replay_buffer_size, ranks.rank, ranks.num_ranks),
        observation_shape=(shape.observation_dim,),
        num_actions=shape.action_num,
        td_steps=policy.td_steps,
        num_unroll_steps=policy.num_unroll_steps,
        discount=policy.discount_factor,
        use_priority=policy.use_priority,
        priority_alpha=policy.priority_prob_alpha,
    )


def collect_search(policy: PolicyConfig, train_iter: int, trees: TreeCache) -> SearchFn:
    """Return the search that explores, with the temperature of a training iteration."""
    start = policy.temperature if policy.initial_temperature is None else policy.initial_temperature
    progress = train_iter / policy.temperature_decay_iters
    return _search(
        policy,
        trees,
        temperature=linear(start, policy.temperature, progress),
        dirichlet_fraction=policy.root_noise_weight,
        gumbel_scale=policy.gumbel_scale,
    )


def greedy_search(policy: PolicyConfig, trees: TreeCache) -> SearchFn:
    """Return the search that plays the best known action, without noise."""
    return _search(policy, trees, temperature=0.0, dirichlet_fraction=0.0, gumbel_scale=0.0)


def _search(
    policy: PolicyConfig,
    trees: TreeCache,
    *,
    temperature: float,
    dirichlet_fraction: float,
    gumbel_scale: float,
) -> SearchFn:
    if policy.type == "gumbel_muzero":
        return partial(
            gumbel_muzero_policy,
            num_simulations=policy.num_simulations,
            discount=policy.discount_factor,
            max_num_considered_actions=policy.max_num_considered_actions,
            gumbel_scale=gumbel_scale,
            trees=trees,
        )
    return partial(
        muzero_policy,
        num_simulations=policy.num_simulations,
        discount=policy.discount_factor,
        q_transform=policy.q_transform,
        pb_c_init=policy.pb_c_init,
        pb_c_base=policy.pb_c_base,
        value_delta_max=policy.value_delta_max,
        dirichlet_alpha=policy.root_dirichlet_alpha,
        dirichlet_fraction=dirichlet_fraction,
        temperature=temperature,
        trees=trees,
    )
