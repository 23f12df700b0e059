"""The serial pipeline: collect, store, learn, evaluate, save, the same on every rank."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from lightzero_lite.building import collect_search, greedy_search, network_shape
from lightzero_lite.collector import (
    Collected,
    Collector,
    CollectPhase,
    CollectTotals,
    collector_fields,
)
from lightzero_lite.config import Config, config_to_dict
from lightzero_lite.envs.factory import VectorEnv, env_shape
from lightzero_lite.evaluator import Evaluator, episode_lines, evaluator_fields
from lightzero_lite.learner import Learner, UpdateMetrics
from lightzero_lite.predictor import Predictor
from lightzero_lite.replay import ReplayBuffer
from lightzero_lite.runtime.checkpoint import (
    BEST_NAME,
    check_same_shapes,
    iteration_name,
    load_checkpoint,
    save_checkpoint,
)
from lightzero_lite.runtime.config_files import write_config_files
from lightzero_lite.runtime.distributed import Ranks, share
from lightzero_lite.runtime.logging import Fields, NullLog, RunLog
from lightzero_lite.runtime.progress import NullProgress, Progress
from lightzero_lite.runtime.run_folder import make_run_folder
from lightzero_lite.runtime.schedules import linear
from lightzero_lite.runtime.seeding import Role, integer_seed, stream
from lightzero_lite.search import TreeCache
from lightzero_lite.types import StateDict


@dataclass
class Counters:
    """Where a run is; the same on all ranks, over all resumes."""

    envstep: int = 0  # env steps collected
    episodes: int = 0  # episodes collected
    collect_phases: int = 0  # collect phases played
    untrained_envsteps: int = 0  # env steps collected since the last update
    sampled: int = 0  # positions sampled
    collect_seconds: float = 0.0  # time spent collecting
    best_score: float | None = None  # highest mean return of an evaluation
    last_return: float | None = None  # mean return of the latest evaluation
    last_eval_iter: int = -1  # train_iter of the latest evaluation
    last_save_iter: int = -1  # train_iter of the latest iteration checkpoint


class Trainer:
    """Builds the parts and runs the loop; writes nothing before `run`."""

    def __init__(self, config: Config, *, folder: Path, ranks: Ranks, device: torch.device) -> None:
        """Build every part, and restore them from config.resume where it is given.

        Raises:
            UserError: The environment or the checkpoint does not fit.
        """
        self.config, self.folder, self.ranks = config, folder, ranks
        policy = config.policy
        torch.manual_seed(integer_seed(config.seed, Role.WEIGHTS))
        envs = VectorEnv(
            config.env, share(config.env.collector_env_num, ranks.rank, ranks.num_ranks)
        )
        shape = network_shape(policy, env_shape(envs.envs[0]))
        self.learner = Learner(policy, shape, ranks=ranks, device=device)
        self.predictor = Predictor(shape, num_simulations=policy.num_simulations, device=device)
        self.collector = Collector(config, envs, self.predictor, ranks)
        self.evaluator = Evaluator(config, self.predictor, ranks)
        self.buffer = ReplayBuffer(
            size=share(policy.replay_buffer_size, ranks.rank, ranks.num_ranks),
            observation_shape=(shape.observation_dim,),
            num_actions=shape.action_num,
            td_steps=policy.td_steps,
            num_unroll_steps=policy.num_unroll_steps,
            discount=policy.discount_factor,
            use_priority=policy.use_priority,
            priority_alpha=policy.priority_prob_alpha,
        )
        self.trees = TreeCache()
        self.counters = Counters()
        self.log, self.progress = NullLog(), NullProgress()
        self.has_warned_of_clipping = False
        if config.resume is not None:
            self._restore(Path(config.resume))

    def run(self) -> None:
        """Train until a stop condition holds, then evaluate and save once more."""
        self._open_run_folder()
        self.learner.distribute()
        if self.counters.best_score is None:  # a run folder without a ckpt_best
            self._evaluate()
            self._save()
        while not self._is_finished():
            self._collect()
            self._learn()
            if self._is_due(self.config.policy.eval_freq, self.counters.last_eval_iter):
                self._evaluate()
            if self._is_due(self.config.checkpoint.save_freq, self.counters.last_save_iter):
                self._save()
        if self.counters.last_eval_iter < self.train_iter:
            self._evaluate()
        if self.counters.last_save_iter < self.train_iter:
            self._save()
        self._close()

    @property
    def train_iter(self) -> int:
        """Updates so far, over all resumes."""
        return self.learner.train_iter

    def state_dict(self) -> StateDict:
        """Return all that a resumed run needs, as plain tensors and Python values.

        Random streams and schedules are functions of the seed and of these counters.
        """
        return {
            **self.learner.state_dict(),
            "last_step": self.counters.envstep,
            "counters": asdict(self.counters),
            "config": config_to_dict(self.config),
            "num_ranks": self.ranks.num_ranks,
            "versions": {name: version(name) for name in ("torch", "numpy", "gymnasium")},
        }

    def _collect(self) -> None:
        """Play a collect phase and store this rank's episodes."""
        policy, counters = self.config.policy, self.counters
        is_warm_up = counters.episodes < policy.random_collect_episode_num
        phase = CollectPhase(
            number=counters.collect_phases,
            first_episode=counters.episodes,
            num_episodes=policy.random_collect_episode_num if is_warm_up else policy.n_episode,
            eps=1.0 if is_warm_up else policy.eps,
        )
        self.predictor.load(self.learner.model)
        search = collect_search(policy, self.train_iter, self.trees)
        collected = self.collector.collect(phase, search)
        for episode in collected.episodes:
            self.buffer.push(episode)
        steps = sum(summary.num_steps for summary in collected.summaries)
        counters.collect_phases += 1
        counters.episodes += len(collected.summaries)
        counters.envstep += steps
        counters.untrained_envsteps += steps
        counters.collect_seconds += collected.seconds
        self._report_collected(collected)

    def _learn(self) -> None:
        """Update as often as the collected env steps are worth, and report the means."""
        policy, counters = self.config.policy, self.counters
        (stored,) = self.ranks.sum([self.buffer.num_transitions])
        fewest = min(self.ranks.gather(self.buffer.num_transitions))
        if stored < max(policy.train_start_after_envsteps, 1) or fewest == 0:
            return
        count = policy.update_per_collect
        if count is None:
            count = max(1, int(policy.replay_ratio * counters.untrained_envsteps))
        count = min(count, self.config.max_train_iter - self.train_iter)
        first_iter, rate = self.train_iter, self.learner.learning_rate
        rows = [self._update() for _ in range(count)]
        counters.untrained_envsteps = 0
        counters.sampled += count * policy.batch_size
        self._report_learned(torch.stack(rows), first_iter, rate)

    def _update(self) -> torch.Tensor:
        """Sample, update, and hand new priorities back; return the update's metrics."""
        policy, ranks = self.config.policy, self.ranks
        rng = stream(self.config.seed, Role.SAMPLE, ranks.rank, self.train_iter)
        progress = self.train_iter / policy.priority_beta_anneal_iters
        beta = linear(policy.priority_prob_beta, 1.0, progress)
        size = policy.batch_size // ranks.num_ranks
        batch = self.buffer.sample(size, rng, priority_beta=beta)
        result = self.learner.update(batch)
        if result.priorities is not None:
            self.buffer.update_priorities(batch.episode_ids, batch.positions, result.priorities)
        return result.metrics

    def _evaluate(self) -> None:
        """Play greedy episodes; a strictly better mean return replaces ckpt_best."""
        counters, policy = self.counters, self.config.policy
        self.predictor.load(self.learner.model)
        evaluation = self.evaluator.evaluate(greedy_search(policy, self.trees))
        counters.last_return, counters.last_eval_iter = evaluation.mean_return, self.train_iter
        for line in episode_lines(evaluation):
            self.log.line("evaluator", line)
        self._write("evaluator", evaluator_fields(evaluation, self.train_iter))
        self.progress.say(
            f"evaluation at train_iter {self.train_iter}, envstep {counters.envstep}: "
            f"mean return {evaluation.mean_return:.2f}"
        )
        if counters.best_score is None or evaluation.mean_return > counters.best_score:
            counters.best_score = evaluation.mean_return
            self._write_checkpoint(BEST_NAME)

    def _save(self) -> None:
        """Write the iteration checkpoint."""
        self.counters.last_save_iter = self.train_iter
        self._write_checkpoint(iteration_name(self.train_iter))

    def _is_finished(self) -> bool:
        """Decide from values that are equal on all ranks."""
        counters, stop_value = self.counters, self.config.env.stop_value
        is_solved = (
            stop_value is not None
            and counters.last_return is not None
            and counters.last_return >= stop_value
        )
        return (
            is_solved
            or counters.envstep >= self.config.max_env_step
            or self.train_iter >= self.config.max_train_iter
        )

    def _is_due(self, every: int, last_iter: int) -> bool:
        """Return whether train_iter has passed a multiple of `every` since last_iter."""
        return self.train_iter // every > max(last_iter, 0) // every

    def _open_run_folder(self) -> None:
        """Make the run folder and start the logs, on rank 0."""
        if not self.ranks.is_main:
            return
        make_run_folder(self.folder)
        write_config_files(config_to_dict(self.config), self.folder)
        self.log = RunLog(self.folder, train_iter=self.train_iter, envstep=self.counters.envstep)
        self.log.line("learner", f"Policy neural network architecture:\n{self.learner.model}")
        self.progress = Progress(self.config.max_env_step, self.counters.envstep)
        self.progress.say(f"run folder: {self.folder}")

    def _close(self) -> None:
        """Say how the run ended and close everything."""
        counters = self.counters
        self.progress.say(
            f"finished at envstep {counters.envstep}, train_iter {self.train_iter}: "
            f"mean return {counters.last_return:.2f}, best {counters.best_score:.2f}"
        )
        self.progress.close()
        self.log.close()
        self.collector.close()
        self.evaluator.close()
        self.ranks.barrier()

    def _write_checkpoint(self, name: str) -> None:
        if self.ranks.is_main:
            save_checkpoint(self.state_dict(), self.folder / "ckpt" / name)

    def _restore(self, path: Path) -> None:
        """Continue from a checkpoint; the score to beat is that of the run folder's ckpt_best."""
        state = load_checkpoint(path)
        check_same_shapes(self.learner.model.state_dict(), path, state)
        self.learner.load_state_dict(state)
        self.counters = Counters(**state["counters"])
        best = self.folder / "ckpt" / BEST_NAME
        is_there = best.is_file()
        self.counters.best_score = (
            load_checkpoint(best)["counters"]["best_score"] if is_there else None
        )

    def _write(self, channel: str, fields: Fields) -> None:
        """Write fields to a channel's text file and to TensorBoard."""
        self.log.table(channel, fields)
        self._write_scalars(channel, fields)

    def _write_scalars(self, channel: str, fields: Fields) -> None:
        envstep = self.counters.envstep
        self.log.scalars(channel, fields, train_iter=self.train_iter, envstep=envstep)

    def _report_collected(self, collected: Collected) -> None:
        """Log a collect phase and the buffers of all ranks."""
        counters, buffer = self.counters, self.buffer
        totals = CollectTotals(counters.envstep, counters.episodes, counters.collect_seconds)
        self._write("collector", collector_fields(collected, totals))
        names = ("current_have", "episode_count", "pushed_in", "removed", "memory_megabytes")
        own = (
            buffer.num_transitions,
            buffer.num_episodes,
            buffer.num_pushed_transitions,
            buffer.num_evicted_transitions,
            buffer.memory_bytes / 1e6,
        )
        fields = dict(zip(names, self.ranks.sum(own), strict=True))
        self._write("buffer", {**fields, "sampled_out": counters.sampled})
        self.progress.show(
            envstep=counters.envstep,
            train_iter=self.train_iter,
            last_return=counters.last_return,
        )

    def _report_learned(self, rows: torch.Tensor, first_iter: int, rate: float) -> None:
        """Average the updates' metrics [U, M] over ranks, stop where one is not finite, and log.

        Raises:
            FloatingPointError: A metric is not finite; the line names it and the iteration.
        """
        total = np.array(self.ranks.sum(rows.double().flatten().tolist()))
        means = total.reshape(rows.shape) / self.ranks.num_ranks
        if not np.isfinite(means).all():
            update, metric = np.argwhere(~np.isfinite(means))[0]
            name = UpdateMetrics._fields[metric]
            raise FloatingPointError(f"{name} is not finite at train_iter {first_iter + update}")
        averages = dict(
            zip((f"{name}_avg" for name in UpdateMetrics._fields), means.mean(0), strict=True)
        )
        self._warn_of_clipping(means)
        freq = self.config.log.learner_freq
        if self.train_iter // freq > first_iter // freq or first_iter == 0:
            fields = {"cur_lr_avg": rate, **{name: float(v) for name, v in averages.items()}}
            self.log.grid("learner", fields)
            self._write_scalars("learner", fields)

    def _warn_of_clipping(self, means: np.ndarray) -> None:
        """Say once that targets lie outside the support, and which support they need."""
        clipped = means[:, UpdateMetrics._fields.index("clipped_target")].max()
        if clipped == 0.0 or self.has_warned_of_clipping:
            return
        self.has_warned_of_clipping = True
        needed = int(np.ceil(means[:, UpdateMetrics._fields.index("largest_scaled_target")].max()))
        text = (
            f"warning: {clipped:.1%} of the targets lie outside the support: set "
            f"policy.model.value_support_scale or reward_support_scale to {needed} or more"
        )
        self.log.line("learner", text)
        self.progress.say(text)
