"""What rank 0 tells of a run: the four logs, TensorBoard and the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import torch

from lightzero_lite.metrics import NUM_TABLE_METRICS, UpdateMetrics
from lightzero_lite.replay import ReplayBuffer
from lightzero_lite.runtime.clock import Part
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.logging import Fields, NullLog
from lightzero_lite.runtime.progress import NullProgress


class Reporter:
    """Turns what the parts return into fields; where nothing is written, into nothing."""

    def __init__(self, ranks: Ranks, *, learner_freq: int) -> None:
        """Report nothing until `log` and `progress` are replaced.

        Args:
            ranks: The processes of the run: sums and means are over all of them.
            learner_freq: Training iterations between two tables of the learner.
        """
        self.ranks, self.learner_freq = ranks, learner_freq
        self.log, self.progress = NullLog(), NullProgress()
        self.train_iter, self.envstep = 0, 0  # the step of what is reported next
        self.has_warned_of_clipping = False

    def at(self, *, train_iter: int, envstep: int) -> Reporter:
        """Set the step of what is reported next."""
        self.train_iter, self.envstep = train_iter, envstep
        return self

    def collected(self, fields: Fields) -> None:
        """Report a collect phase."""
        self._write("collector", fields)

    def stored(self, buffer: ReplayBuffer, sampled: int) -> None:
        """Report the buffers of all ranks; `sampled` counts positions over the run."""
        names = ("current_have", "episode_count", "pushed_in", "removed", "memory_megabytes")
        own = (
            buffer.num_transitions,
            buffer.num_episodes,
            buffer.num_pushed_transitions,
            buffer.num_evicted_transitions,
            buffer.memory_bytes / 1e6,
        )
        fields = dict(zip(names, self.ranks.sum(own), strict=True))
        self._write("buffer", {**fields, "sampled_out": sampled})

    def evaluated(self, lines: Iterable[str], fields: Fields, *, best_score: float) -> None:
        """Report an evaluation, each episode on a line of its own, and the best one so far."""
        for line in lines:
            self.log.line("evaluator", line)
        self._write("evaluator", fields)
        self._write_scalars("evaluator", {"best_reward_mean": best_score})
        self.progress.say(
            f"evaluation at train_iter {self.train_iter}, envstep {self.envstep}: "
            f"mean return {fields['reward_mean']:.2f}"
        )

    def learned(self, rows: torch.Tensor, first_iter: int, rate: float) -> None:
        """Average the updates' metrics over ranks, stop where one is not finite, and log.

        Args:
            rows: [U, len(UpdateMetrics)], this rank's updates.
            first_iter: Training iteration before the first of them.
            rate: Learning rate of the first of them.

        Raises:
            FloatingPointError: A metric is not finite; the line names it and the iteration.
        """
        total = np.array(self.ranks.sum(rows.double().flatten().tolist()))
        means = total.reshape(rows.shape) / self.ranks.num_ranks
        if not np.isfinite(means).all():
            update, metric = np.argwhere(~np.isfinite(means))[0]
            name = UpdateMetrics._fields[metric]
            raise FloatingPointError(f"{name} is not finite at train_iter {first_iter + update}")
        self._warn_of_clipping(means)
        if self.is_due(first_iter):
            averages = [*zip(UpdateMetrics._fields, means.mean(0).tolist(), strict=True)]
            table = {f"{name}_avg": value for name, value in averages[:NUM_TABLE_METRICS]}
            fields = {"cur_lr_avg": rate, **table}
            self.log.grid("learner", fields)
            self._write_scalars("learner", {**fields, **dict(averages[NUM_TABLE_METRICS:])})

    def measured(self, fields: Mapping[str, float]) -> None:
        """Report further numbers of the latest updates, averaged over ranks, to TensorBoard."""
        totals = self.ranks.sum([*fields.values()])
        means = [total / self.ranks.num_ranks for total in totals]
        self._write_scalars("learner", dict(zip(fields, means, strict=True)))

    def is_due(self, first_iter: int) -> bool:
        """Return whether the updates since first_iter are the first or pass a multiple."""
        every = self.learner_freq
        return first_iter == 0 or self.train_iter // every > first_iter // every

    def cycled(self, seconds: list[float]) -> None:
        """Report where the time of a cycle went, averaged over ranks.

        Args:
            seconds: This rank's, of each Part.
        """
        total = sum(totals := self.ranks.sum(seconds))
        shares = {f"share_{part.name.lower()}": totals[part] / total for part in Part}
        self._write_scalars("cycle", {"seconds": total / self.ranks.num_ranks, **shares})

    def _warn_of_clipping(self, means: np.ndarray) -> None:
        """Say once a run that targets lie outside the support, and which support they need."""
        clipped = means[:, UpdateMetrics._fields.index("clipped_target")].max()
        if clipped == 0.0 or self.has_warned_of_clipping:
            return
        self.has_warned_of_clipping = True
        needed = math.ceil(means[:, UpdateMetrics._fields.index("largest_scaled_target")].max())
        text = (
            f"warning: {clipped:.1%} of the targets lie outside the support: set "
            f"policy.model.value_support_scale or reward_support_scale to {needed} or more"
        )
        self.log.line("learner", text)
        self.progress.say(text)

    def _write(self, channel: str, fields: Fields) -> None:
        """Write fields to a channel's text file and to TensorBoard."""
        self.log.table(channel, fields)
        self._write_scalars(channel, fields)

    def _write_scalars(self, channel: str, fields: Fields) -> None:
        self.log.scalars(channel, fields, train_iter=self.train_iter, envstep=self.envstep)
