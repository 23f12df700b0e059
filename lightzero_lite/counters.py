"""Where a run is: counters that are the same on all ranks and go on over resumes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counters:
    """Where a run is; the same on all ranks, over all resumes."""

    envstep: int = 0  # env steps collected
    episodes: int = 0  # episodes collected
    collect_phases: int = 0  # collect phases played
    untrained_envsteps: int = 0  # env steps collected since updates were last planned
    pending_updates: int = 0  # updates planned for the latest collect phase and not yet taken
    sampled: int = 0  # positions sampled
    collect_seconds: float = 0.0  # time spent collecting
    best_score: float | None = None  # highest mean return of an evaluation
    last_return: float | None = None  # mean return of the latest evaluation
    last_eval_iter: int = -1  # train_iter of the latest evaluation
    last_save_iter: int = -1  # train_iter of the latest iteration checkpoint
    has_warned_of_clipping: bool = False  # the learner log says which support is needed
