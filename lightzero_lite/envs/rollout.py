"""Playing whole episodes in a few environments at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from lightzero_lite.types import (
    BoolArray,
    Episode,
    EpisodeSummary,
    Float32Array,
    Int32Array,
    ResetOptions,
    ResetResult,
    StepResult,
)


class Environments(Protocol):
    """What is played in (`envs.vector.VectorEnv`)."""

    def __len__(self) -> int:
        """Return the number of environments."""

    def reset_all(
        self,
        indices: Sequence[int],
        seeds: Sequence[int],
        options: Sequence[ResetOptions] | None = None,
    ) -> list[ResetResult]:
        """Start an episode in each of these environments, from its seed and with its options."""

    def step_all(self, indices: Sequence[int], actions: Int32Array) -> list[StepResult]:
        """Take an action in each of these environments."""


class Decisions(NamedTuple):
    """What was decided for the n environments in play."""

    action: Int32Array  # [n]
    root_value: Float32Array  # [n], search value
    raw_value: Float32Array  # [n], network value
    policy: Float32Array  # [n, A], policy target


# From observations [n, O] and what is illegal there [n, A] (None: nothing is) to what to play.
Decide = Callable[[Float32Array, BoolArray | None], Decisions]


class FinishedEpisode(NamedTuple):
    """An episode and where it was played."""

    number: int  # its place in the given seeds
    env: int  # the environment that played it
    episode: Episode

    def summary(self, *, first_number: int, first_env: int) -> EpisodeSummary:
        """Return what the logs need, numbered over all ranks from this rank's first."""
        return EpisodeSummary(
            number=first_number + self.number,
            env=first_env + self.env,
            episode_return=float(self.episode.rewards.sum(dtype=np.float64)),
            num_steps=len(self.episode.actions),
        )


class _Recorder:
    """The steps so far of the episode that one environment is playing."""

    def __init__(self, number: int, env: int, start: ResetResult) -> None:
        self.number, self.env = number, env
        self.observations, self.legal_actions = [start.observation], [start.legal_actions]
        self.actions: list[int] = []
        self.rewards: list[float] = []
        self.root_values: list[float] = []
        self.raw_values: list[float] = []
        self.policies: list[Float32Array] = []
        self.is_terminated = self.is_over = False

    def add(self, row: int, decisions: Decisions, result: StepResult) -> None:
        """Record one step: a row of the decisions, and what came of it."""
        self.observations.append(result.observation)
        self.legal_actions.append(result.legal_actions)
        self.actions.append(int(decisions.action[row]))
        self.rewards.append(result.reward)
        self.root_values.append(float(decisions.root_value[row]))
        self.raw_values.append(float(decisions.raw_value[row]))
        self.policies.append(decisions.policy[row])
        self.is_terminated = result.is_terminated
        self.is_over = result.is_terminated or result.is_truncated

    def finish(self) -> FinishedEpisode:
        episode = Episode(
            observations=np.array(self.observations),
            legal_actions=np.array(self.legal_actions),
            actions=np.array(self.actions, dtype=np.int32),
            rewards=np.array(self.rewards, dtype=np.float32),
            root_values=np.array(self.root_values, dtype=np.float32),
            raw_values=np.array(self.raw_values, dtype=np.float32),
            policies=np.array(self.policies),
            is_terminated=self.is_terminated,
        )
        return FinishedEpisode(self.number, self.env, episode)


def play_episodes(
    envs: Environments,
    seeds: Sequence[int],
    decide: Decide,
    options: Sequence[ResetOptions] | None = None,
) -> Iterator[FinishedEpisode]:
    """Play one whole episode from each seed, and yield each as it ends.

    An environment that finishes starts the next seed at once until all are started; then the batch
    shrinks. Row i of a batch belongs to the i-th environment in play, whichever finished first.

    Args:
        envs: Where to play; nothing of an environment outlives the call.
        seeds: Reset seed of each episode.
        decide: Answers for the environments in play; its actions are legal.
        options: Options of each episode's reset; None: none.
    """

    def start(indices: Sequence[int], first: int) -> list[_Recorder]:
        episodes = slice(first, first + len(indices))
        chosen = None if options is None else options[episodes]
        starts = envs.reset_all(indices, seeds[episodes], chosen)
        pairs = enumerate(zip(indices, starts, strict=True), first)
        return [_Recorder(number, env, one) for number, (env, one) in pairs]

    playing = start(range(min(len(envs), len(seeds))), first=0)
    num_started = len(playing)
    while playing:
        decisions = decide(*_states(playing))
        results = envs.step_all([recorder.env for recorder in playing], decisions.action)
        for row, (recorder, result) in enumerate(zip(playing, results, strict=True)):
            recorder.add(row, decisions, result)
        finished = [recorder for recorder in playing if recorder.is_over]
        if not finished:
            continue
        yield from (recorder.finish() for recorder in finished)
        free = [recorder.env for recorder in finished[: len(seeds) - num_started]]
        started = {one.env: one for one in start(free, first=num_started)}
        num_started += len(started)
        playing = [started.get(one.env, one) for one in playing]
        playing = [one for one in playing if not one.is_over]


def _states(playing: Sequence[_Recorder]) -> tuple[Float32Array, BoolArray | None]:
    """Return the observations [n, O] to decide for and what is illegal there, [n, A] or None."""
    # np.array of a few small arrays takes a fifth of np.stack's time.
    observations = np.array([recorder.observations[-1] for recorder in playing])
    legal = np.array([recorder.legal_actions[-1] for recorder in playing])
    return observations, None if legal.all() else ~legal
