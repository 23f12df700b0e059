"""The collector: whole episodes played by the search, for the replay buffer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lightzero_lite.config import Config
from lightzero_lite.envs.rollout import Decisions
from lightzero_lite.envs.vector import VectorEnv
from lightzero_lite.joint_play import play_jointly
from lightzero_lite.predictor import Predictor
from lightzero_lite.replay.episode import with_scaled_rewards
from lightzero_lite.runtime.clock import Part
from lightzero_lite.runtime.distributed import Ranks, share, share_offset
from lightzero_lite.runtime.logging import Fields
from lightzero_lite.runtime.seeding import Role, integer_seed, stream
from lightzero_lite.runtime.signals import StopRequest
from lightzero_lite.types import (
    BoolArray,
    Episode,
    EpisodeSummary,
    Float32Array,
    Int32Array,
    SearchFn,
)


class CollectPhase(NamedTuple):
    """Which part of a run a collect phase is."""

    number: int  # phases before it
    first_episode: int  # episodes collected before it, over all ranks
    num_episodes: int  # episodes to play, over all ranks
    eps: float  # probability of a uniformly random legal action


class Collected(NamedTuple):
    """What a collect phase brought."""

    episodes: list[Episode]  # this rank's own, in the order of their seeds; rewards are scaled
    summaries: list[EpisodeSummary]  # of all ranks, in the order of their seeds
    seconds: float  # of the slowest rank


class CollectTotals(NamedTuple):
    """Sums over the run, resumes included."""

    envsteps: int
    episodes: int
    seconds: float


class Collector:
    """Plays this rank's share of each collect phase."""

    def __init__(
        self,
        config: Config,
        envs: VectorEnv,
        predictor: Predictor,
        ranks: Ranks,
        stop: StopRequest | None = None,
    ) -> None:
        """Take this rank's share of env.collector_env_num environments."""
        self.config, self.envs, self.ranks = config, envs, ranks
        self.stop = stop or StopRequest()
        total = config.env.collector_env_num
        self.first_env = share_offset(total, ranks.rank, ranks.num_ranks)
        timed = ranks.clock.timed
        self.initial = timed(Part.COLLECT_NETWORK, predictor.initial)
        self.recurrent_fn = timed(Part.COLLECT_NETWORK, predictor.recurrent_fn)

    def collect(self, phase: CollectPhase, search: SearchFn) -> Collected | None:
        """Play exactly phase.num_episodes whole episodes over all ranks.

        Args:
            phase: Names the seeds, so that a phase can be played again.
            search: Chooses actions and policy targets.

        Returns:
            None, on all ranks, where one of them was asked to end and gave its episodes up.
        """
        seed, rank, num_ranks = self.config.seed, self.ranks.rank, self.ranks.num_ranks
        offset = share_offset(phase.num_episodes, rank, num_ranks)
        count = share(phase.num_episodes, rank, num_ranks)
        first = phase.first_episode + offset
        seeds = [integer_seed(seed, Role.COLLECT_ENV, first + i) for i in range(count)]
        rng, clock = stream(seed, Role.COLLECT_SEARCH, rank, phase.number), self.ranks.clock

        def decide(observations: Float32Array, invalid: BoolArray | None) -> Decisions:
            with clock.counting(Part.COLLECT_TREE):
                root = self.initial(observations)
                output = search(root, self.recurrent_fn, rng=rng, invalid_actions=invalid)
            action = output.action
            if phase.eps > 0.0:
                legal = (
                    np.ones(output.visit_counts.shape, np.bool_) if invalid is None else ~invalid
                )
                action = mix_random_actions(action, legal, phase.eps, rng)
            return Decisions(action, output.root_value, root.value, output.action_weights)

        with clock.counting(Part.COLLECT_ENV):
            played = play_jointly(
                self.envs,
                seeds,
                decide,
                first_number=offset,
                first_env=self.first_env,
                ranks=self.ranks,
                stop=self.stop,
            )
        if played is None:
            return None
        scale, clip = self.config.env.reward_scale, self.config.env.reward_clip
        episodes = [with_scaled_rewards(one, scale, clip) for one in played.episodes]
        return Collected(episodes, played.summaries, played.seconds)

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()


def mix_random_actions(
    action: Int32Array, legal_actions: BoolArray, eps: float, rng: np.random.Generator
) -> Int32Array:
    """Replace each action, with probability eps, by one drawn uniformly from the legal ones.

    Args:
        action: `[n]`, what the search would play.
        legal_actions: `[n, A]`, True: legal; at least one a row.
        eps: The probability, 0 to 1.
        rng: Source of both draws.
    """
    rank = rng.integers(legal_actions.sum(axis=1), dtype=np.int32)
    # The legal action that has `rank` legal ones before it.
    random_action = (legal_actions.cumsum(axis=1) > rank[:, None]).argmax(axis=1)
    is_random = rng.random(len(action)) < eps
    return np.where(is_random, random_action, action).astype(np.int32)


def collector_fields(collected: Collected, totals: CollectTotals) -> Fields:
    """Return the fields of collector_logger.txt; every env step is one training sample."""
    returns = [summary.episode_return for summary in collected.summaries]
    steps = sum(summary.num_steps for summary in collected.summaries)
    count, seconds = len(returns), max(collected.seconds, 1e-9)
    return {
        "episode_count": count,
        "envstep_count": steps,
        "train_sample_count": steps,
        "avg_envstep_per_episode": steps / count,
        "avg_sample_per_episode": steps / count,
        "avg_envstep_per_sec": steps / seconds,
        "avg_train_sample_per_sec": steps / seconds,
        "avg_episode_per_sec": count / seconds,
        "collect_time": seconds,
        "reward_mean": float(np.mean(returns)),
        "reward_std": float(np.std(returns)),
        "each_reward": returns,
        "reward_max": max(returns),
        "reward_min": min(returns),
        "total_envstep_count": totals.envsteps,
        "total_train_sample_count": totals.envsteps,
        "total_episode_count": totals.episodes,
        "total_duration": totals.seconds,
    }
