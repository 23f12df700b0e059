"""The files of a run: its folder with the logs, its checkpoints, and how it goes on from them."""

from __future__ import annotations

import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from lightzero_lite.config import Config, config_to_dict
from lightzero_lite.counters import Counters
from lightzero_lite.learner import Learner
from lightzero_lite.normalization import ObservationNormalizer
from lightzero_lite.replay import ReplayBuffer
from lightzero_lite.runtime.checkpoint import (
    BEST_NAME,
    STATISTICS,
    best_score,
    check_same_normalization,
    check_same_shapes,
    checkpoints,
    iteration_name,
    load_checkpoint,
    load_replay_buffer,
    prune_replay_buffers,
    replay_buffer_name,
    save_checkpoint,
    save_replay_buffers,
    saved_at,
)
from lightzero_lite.runtime.clock import Part
from lightzero_lite.runtime.config_files import write_config_files
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.logging import CHANNELS, NullLog, RunLog
from lightzero_lite.runtime.progress import NullProgress, Progress
from lightzero_lite.runtime.run_folder import make_run_folder
from lightzero_lite.runtime.versions import versions
from lightzero_lite.types import StateDict


class RunFiles:
    """Writes a run folder, on rank 0, and reads a run back, on all ranks."""

    def __init__(
        self,
        config: Config,
        *,
        folder: Path,
        ranks: Ranks,
        learner: Learner,
        buffer: ReplayBuffer,
        normalizer: ObservationNormalizer,
    ) -> None:
        """Take the parts whose state is saved and restored; write nothing yet."""
        self.config, self.folder, self.ranks = config, folder, ranks
        self.learner, self.buffer, self.normalizer = learner, buffer, normalizer
        self.log, self.progress = NullLog(), NullProgress()
        self.log_sizes: dict[str, int] = {}  # bytes of the text logs at the resumed checkpoint
        self.saved_at = 0.0  # seconds since 1970 at the newest checkpoint of this way of the run

    def open(self, counters: Counters) -> None:
        """Make the run folder and start the logs, on rank 0."""
        if not self.ranks.is_main:
            return
        make_run_folder(self.folder)
        write_config_files(config_to_dict(self.config), self.folder)
        train_iter, envstep, sizes = self.learner.train_iter, counters.envstep, self.log_sizes
        if self.config.resume is None:  # of a run that left no checkpoint, nothing is kept
            train_iter, envstep, sizes = -1, -1, dict.fromkeys(CHANNELS, 0)
        self.log = log = RunLog(self.folder, train_iter=train_iter, envstep=envstep, sizes=sizes)
        if not self.log.sizes()["learner"]:
            self.log.line("learner", f"Policy neural network architecture:\n{self.learner.model}")
        log.start(
            config_to_dict(self.config),
            versions() | {"num_ranks": str(self.ranks.num_ranks)},
            envstep=counters.envstep,
        )
        self.progress = Progress(self.config.max_env_step, counters.envstep)
        self.progress.say(f"run folder: {self.folder}")

    def close(self) -> None:
        """Close the logs and leave the terminal as it was."""
        self.progress.close()
        self.log.close()

    def save(self, counters: Counters) -> None:
        """Write the iteration checkpoint, and before it the replay buffers if they are wanted."""
        counters.last_save_iter = self.learner.train_iter
        with self.ranks.clock.counting(Part.SAVE):
            self._save(counters)

    def _save(self, counters: Counters) -> None:
        name, folder = None, self.folder / "ckpt"
        if self.config.checkpoint.replay_buffer:
            name = replay_buffer_name(self.learner.train_iter, counters.envstep)
            states = self.ranks.gather_on_main(self.buffer.state_dict())
            if self.ranks.is_main:
                save_replay_buffers(states, folder / name)
        self._write(iteration_name(self.learner.train_iter), counters, replay_buffer=name)
        if name is not None and self.ranks.is_main:
            prune_replay_buffers(folder, kept=name)

    def take_over(self, counters: Counters) -> None:
        """Save a resumed run again where checkpoints stand that are newer than what it resumed.

        They are of a way that was given up: resume=auto must not go on with it.
        """
        is_resumed = self.ranks.is_main and self.config.resume is not None
        if self.ranks.any(
            is_resumed and any(saved_at(path) > self.saved_at for path in checkpoints(self.folder))
        ):
            self.save(counters)

    def save_best(self, counters: Counters) -> None:
        """Replace ckpt_best."""
        with self.ranks.clock.counting(Part.SAVE):
            self._write(BEST_NAME, counters, replay_buffer=None)

    def restore(self, path: Path) -> Counters:
        """Continue from a checkpoint; the score to beat is that of the run folder's ckpt_best.

        Returns:
            Where the run is.

        Raises:
            UserError: The checkpoint does not fit.
        """
        state = load_checkpoint(path)
        check_same_shapes(self.learner.model.state_dict(), path, state)
        check_same_normalization(self.normalizer.is_enabled, path, state)
        self.normalizer.load_state_dict(state.get(STATISTICS))
        has_optimizer = self.learner.load_state_dict(state)
        if self.ranks.is_main and self.learner.train_iter > 0 and not has_optimizer:
            kind = self.config.policy.optim_type
            print(f"resume={path}: no optimizer state for {kind}: it starts afresh")
        counters = Counters(**state["counters"])
        counters.best_score = best_score(self.folder)
        self.log_sizes = state.get("log_sizes", {})
        self.saved_at = state.get("saved_at", 0.0)
        buffers = path.with_name(state.get("replay_buffer") or "none")
        stored = load_replay_buffer(buffers, self.ranks.rank, self.ranks.num_ranks)
        if stored is not None:
            self.buffer.load_state_dict(stored)
        return counters

    def check_buffer(self, counters: Counters) -> None:
        """Say where a resumed run starts without replay buffers."""
        is_missing = self.buffer.num_transitions == 0
        if counters.envstep > 0 and self.ranks.any(is_missing):
            counters.pending_updates = 0
            self.progress.say(
                f"no readable replay buffer is stored for {self.ranks.num_ranks} ranks: it fills "
                "again with the restored policy before the first update"
            )

    def _write(self, name: str, counters: Counters, *, replay_buffer: str | None) -> None:
        """Write a checkpoint file, which names that of its replay buffers."""
        if self.ranks.is_main:
            # Later than what it goes on from, whatever the clocks of two hosts say.
            self.saved_at = max(time.time(), self.saved_at + 0.001)
            files = {"replay_buffer": replay_buffer, "log_sizes": self.log.sizes()}
            state = self._state_dict(counters) | files | {"saved_at": self.saved_at}
            save_checkpoint(state, self.folder / "ckpt" / name)

    def _state_dict(self, counters: Counters) -> StateDict:
        """Return all that a resumed run needs, as plain tensors and Python values.

        Random streams and schedules are functions of the seed and of these counters.
        """
        return {
            **self.learner.state_dict(),
            STATISTICS: self.normalizer.state_dict(),
            "last_step": counters.envstep,
            "counters": asdict(counters),
            "config": config_to_dict(self.config),
            "num_ranks": self.ranks.num_ranks,
            "versions": {name: version(name) for name in ("torch", "numpy", "gymnasium")},
        }
