"""Playing a phase's episodes on all ranks, each its share, to the end or not at all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from lightzero_lite.envs.rollout import (
    Decide,
    Decisions,
    Environments,
    FinishedEpisode,
    play_episodes,
)
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.signals import StopRequest, StopRequestedError
from lightzero_lite.types import (
    BoolArray,
    Episode,
    EpisodeSummary,
    Float32Array,
    ResetOptions,
)


class Played(NamedTuple):
    """What a phase brought."""

    episodes: list[Episode]  # this rank's own, in the order of their seeds
    summaries: list[EpisodeSummary]  # of all ranks, in the order of their seeds
    seconds: float  # of the slowest rank


def play_jointly(
    envs: Environments,
    seeds: Sequence[int],
    decide: Decide,
    *,
    first_number: int,
    first_env: int,
    ranks: Ranks,
    stop: StopRequest,
    options: Sequence[ResetOptions] | None = None,
) -> Played | None:
    """Play this rank's episodes and wait for those of the others.

    Args:
        envs: This rank's environments.
        seeds: Reset seeds of this rank's episodes.
        decide: Answers for the environments in play; its actions are legal.
        first_number: Episodes of the phase that the ranks before this one play.
        first_env: Environments of the ranks before this one.
        ranks: The processes of the run.
        stop: Looked at before every decision.
        options: Options of each episode's reset; None: none.

    Returns:
        None, on all ranks, where one of them was asked to end and gave its episodes up.
    """

    def decide_or_stop(observations: Float32Array, invalid: BoolArray | None) -> Decisions:
        stop.check()
        return decide(observations, invalid)

    start = time.perf_counter()
    is_whole = True
    finished: list[FinishedEpisode] = []
    try:
        played = play_episodes(envs, seeds, decide_or_stop, options)
        finished = sorted(played, key=lambda one: one.number)
    except StopRequestedError:
        is_whole = False
    own = [one.summary(first_number=first_number, first_env=first_env) for one in finished]
    seconds = time.perf_counter() - start
    everyone = ranks.gather_late((is_whole, own, seconds), is_leaving=stop.look)
    if not all(whole for whole, _, _ in everyone):
        return None
    return Played(
        episodes=[one.episode for one in finished],
        summaries=[summary for _, summaries, _ in everyone for summary in summaries],
        seconds=max(seconds for _, _, seconds in everyone),
    )
