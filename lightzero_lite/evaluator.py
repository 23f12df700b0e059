"""The evaluator: greedy episodes without noise, on seeds of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lightzero_lite.config import Config
from lightzero_lite.envs.rollout import Decisions
from lightzero_lite.envs.vector import VectorEnv
from lightzero_lite.envs.versus import start_options
from lightzero_lite.joint_play import play_jointly
from lightzero_lite.matches import check_players, outcome_fields
from lightzero_lite.predictor import Predictor
from lightzero_lite.runtime.checkpoint import iteration_name
from lightzero_lite.runtime.distributed import Ranks, share, share_offset
from lightzero_lite.runtime.logging import Fields
from lightzero_lite.runtime.seeding import Role, integer_seed, stream
from lightzero_lite.runtime.signals import StopRequest
from lightzero_lite.types import BoolArray, EpisodeSummary, Float32Array, SearchFn


class Evaluation(NamedTuple):
    """What an evaluation found."""

    summaries: list[EpisodeSummary]  # of all ranks, in the order of their seeds
    seconds: float  # of the slowest rank
    opponents: Sequence[str] = ()  # of a game of two players, equally many episodes each

    @property
    def returns(self) -> list[float]:
        """The return of each episode that decides: all, or those against the first opponent."""
        count = len(self.summaries) // max(1, len(self.opponents))
        return [summary.episode_return for summary in self.summaries[:count]]

    @property
    def mean_return(self) -> float:
        """Mean of these returns: what ckpt_best and env.stop_value go by."""
        return float(np.mean(self.returns))


class Evaluator:
    """Plays this rank's share of env.n_evaluator_episode; every evaluation has the same seeds."""

    def __init__(
        self, config: Config, predictor: Predictor, ranks: Ranks, stop: StopRequest | None = None
    ) -> None:
        """Construct this rank's share of the environments: no more than it has episodes."""
        self.config, self.predictor, self.ranks = config, predictor, ranks
        self.stop = stop or StopRequest()
        episodes = config.env.n_evaluator_episode * max(1, len(config.env.opponents))
        self.count = share(episodes, ranks.rank, ranks.num_ranks)
        self.offset = share_offset(episodes, ranks.rank, ranks.num_ranks)
        num_envs = min(config.env.evaluator_env_num, episodes)
        # A rank with an episode needs an environment, even where there are fewer than ranks.
        counts = [max(1, share(num_envs, rank, ranks.num_ranks)) for rank in range(ranks.num_ranks)]
        self.first_env = sum(counts[: ranks.rank])
        num_own = min(counts[ranks.rank], self.count)
        self.envs = VectorEnv(config.env, num_own)
        if num_own > 0:
            check_players(config, self.envs.shape.num_players)

    def evaluate(self, search: SearchFn) -> Evaluation | None:
        """Play the episodes with the predictor's weights and gather them on all ranks.

        Args:
            search: A greedy search: no noise, temperature 0.

        Returns:
            None, on all ranks, where one of them was asked to end and gave its episodes up.
        """
        seed, episodes = self.config.seed, range(self.offset, self.offset + self.count)
        seeds = [integer_seed(seed, Role.EVALUATE_ENV, episode) for episode in episodes]
        opponents, games = self.config.env.opponents, self.config.env.n_evaluator_episode
        rng = stream(seed, Role.EVALUATE_SEARCH, self.ranks.rank)

        def decide(observations: Float32Array, invalid: BoolArray | None) -> Decisions:
            root = self.predictor.initial(observations)
            output = search(root, self.predictor.recurrent_fn, rng=rng, invalid_actions=invalid)
            return Decisions(output.action, output.root_value, root.value, output.action_weights)

        played = play_jointly(
            self.envs,
            seeds,
            decide,
            first_number=self.offset,
            first_env=self.first_env,
            ranks=self.ranks,
            stop=self.stop,
            options=[start_options(one, games) for one in episodes] if opponents else None,
        )
        return None if played is None else Evaluation(played.summaries, played.seconds, opponents)

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()


def episode_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield the line of each finished episode, as LightZero writes it."""
    for summary in evaluation.summaries:
        yield (
            f"[EVALUATOR]env {summary.env} completes an episode, "
            f"final reward: {summary.episode_return}, current episode: {summary.number + 1}"
        )


def evaluator_fields(evaluation: Evaluation, train_iter: int) -> Fields:
    """Return the fields of evaluator_logger.txt."""
    returns = evaluation.returns
    steps = sum(summary.num_steps for summary in evaluation.summaries)
    count, seconds = len(evaluation.summaries), max(evaluation.seconds, 1e-9)
    return {
        "train_iter": train_iter,
        "ckpt_name": iteration_name(train_iter),
        "episode_count": count,
        "envstep_count": steps,
        "evaluate_time": seconds,
        "avg_envstep_per_episode": steps / count,
        "avg_envstep_per_sec": steps / seconds,
        "avg_time_per_episode": seconds / count,
        "reward_mean": evaluation.mean_return,
        "reward_std": float(np.std(returns)),
        "each_reward": returns,
        "reward_max": max(returns),
        "reward_min": min(returns),
        **outcome_fields(evaluation.summaries, evaluation.opponents),
    }
