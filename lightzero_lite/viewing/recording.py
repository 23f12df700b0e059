"""A greedy episode with what the search thought at each step, to be looked at."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lightzero_lite.building import greedy_search
from lightzero_lite.config import Config, EnvConfig
from lightzero_lite.envs.rendering import Picture, RenderedEnv
from lightzero_lite.envs.rollout import Decisions, play_episodes
from lightzero_lite.envs.versus import start_options
from lightzero_lite.predictor import Predictor
from lightzero_lite.runtime.seeding import Role, integer_seed, stream
from lightzero_lite.search import TreeCache
from lightzero_lite.types import BoolArray, Float32Array, Int32Array, ResetOptions, UserError
from lightzero_lite.viewing.tree_picture import SearchTree, kept_tree


class Moment(NamedTuple):
    """One decision of an episode."""

    picture: Picture  # before the action
    action: int
    visit_counts: Int32Array  # [A]
    root_value: float
    raw_value: float  # what the network said before the search


class Recording(NamedTuple):
    """One whole episode."""

    moments: list[Moment]  # T
    last_picture: Picture
    rewards: Float32Array  # [T], the agent's; where it plays both sides, the first player's
    legal_actions: BoolArray  # [T, A]
    is_terminated: bool
    fps: float  # env steps a second, as the environment shows itself
    tree: SearchTree | None  # of the step that was asked for

    @property
    def episode_return(self) -> float:
        """Sum of all rewards."""
        return float(self.rewards.sum(dtype="float64"))


def record_episode(
    config: Config, predictor: Predictor, *, number: int = 0, tree_step: int | None = None
) -> Recording:
    """Play an episode of an evaluation: greedy, from the evaluator's seed.

    In a game of two players the opponent and the seat are the evaluator's too; without opponents
    (env.opponents=[]) the agent plays both sides.

    Args:
        config: The seed, the environment and the search.
        predictor: The networks.
        number: The episode's place in the evaluation.
        tree_step: Keep the search tree of this step.

    Raises:
        UserError: The environment cannot be drawn, or the evaluation has no such game.
    """
    options = _start_options(config.env, number)
    stage = RenderedEnv(config.env)
    trees, search_rng = TreeCache(), stream(config.seed, Role.EVALUATE_SEARCH, 0)
    search = greedy_search(config.policy, trees)
    moments: list[Moment] = []
    kept: list[SearchTree] = []

    def decide(observations: Float32Array, invalid: BoolArray | None) -> Decisions:
        root = predictor.initial(observations)
        output = search(root, predictor.recurrent_fn, rng=search_rng, invalid_actions=invalid)
        if len(moments) == tree_step:
            kept.append(kept_tree(trees, output, config.policy.discount_factor))
        moments.append(
            Moment(
                picture=stage.picture(),
                action=int(output.action[0]),
                visit_counts=output.visit_counts[0],
                root_value=float(output.root_value[0]),
                raw_value=float(root.value[0]),
            )
        )
        return Decisions(output.action, output.root_value, root.value, output.action_weights)

    try:
        seeds = [integer_seed(config.seed, Role.EVALUATE_ENV, number)]
        ((_, _, episode),) = play_episodes(stage.envs, seeds, decide, options)
        last_picture = stage.picture()
    finally:
        stage.close()
    return Recording(
        moments=moments,
        last_picture=last_picture,
        rewards=_first_players(episode.rewards, config, stage.envs.shape.num_players),
        legal_actions=episode.legal_actions[:-1],
        is_terminated=episode.is_terminated,
        fps=stage.fps,
        tree=kept[0] if kept else None,
    )


def _start_options(env: EnvConfig, number: int) -> list[ResetOptions] | None:
    """Return the opponent and the seat of a game of an evaluation; None where there are none."""
    games, num_opponents = env.n_evaluator_episode, len(env.opponents)
    if not num_opponents:
        return None
    if number >= games * num_opponents:
        raise UserError(
            f"episode={number}: an evaluation has {games * num_opponents} games here, "
            f"{games} against each opponent: name one from 0 on"
        )
    return [start_options(number, games)]


def _first_players(rewards: Float32Array, config: Config, num_players: int) -> Float32Array:
    """Return rewards as one player sees them: in self-play every other one is the opponent's."""
    if num_players == 1 or config.env.opponents:
        return rewards
    signs = np.where(np.arange(len(rewards)) % 2 == 0, 1, -1)
    return (rewards * signs).astype(np.float32)
