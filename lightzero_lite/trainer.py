"""The serial pipeline: collect, store, learn, evaluate, save, the same on every rank."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import torch

from lightzero_lite.building import collect_search, greedy_search, network_shape, replay_buffer
from lightzero_lite.collector import Collector, CollectPhase, CollectTotals, collector_fields
from lightzero_lite.config import Config
from lightzero_lite.counters import Counters
from lightzero_lite.envs.vector import VectorEnv
from lightzero_lite.evaluator import Evaluator, episode_lines, evaluator_fields
from lightzero_lite.learner import Learner
from lightzero_lite.metrics import Predictions, step_errors
from lightzero_lite.monitoring import Monitor, NullMonitor
from lightzero_lite.normalization import ObservationNormalizer, moments_of
from lightzero_lite.predictor import Predictor
from lightzero_lite.reanalyzer import Reanalyzer
from lightzero_lite.reporting import Reporter
from lightzero_lite.runtime.clock import Part
from lightzero_lite.runtime.distributed import Ranks, share
from lightzero_lite.runtime.profiling import NullProfiler, Profiler
from lightzero_lite.runtime.schedules import linear
from lightzero_lite.runtime.seeding import Role, integer_seed, stream
from lightzero_lite.runtime.signals import StopRequest
from lightzero_lite.saving import RunFiles
from lightzero_lite.search import TreeCache
from lightzero_lite.types import ReplayBatch

UPDATES_A_LOOK = 8  # updates between two joint looks at the signals, each of which is a collective


class Update(NamedTuple):
    """What the log needs of an update."""

    metrics: torch.Tensor  # [len(UpdateMetrics)], on the learner's device
    batch: ReplayBatch
    predictions: Predictions


class Trainer:
    """Builds the parts and runs the loop; writes nothing before `run`."""

    def __init__(
        self,
        config: Config,
        *,
        folder: Path,
        ranks: Ranks,
        device: torch.device,
        stop: StopRequest | None = None,
    ) -> None:
        """Build every part, and restore them from config.resume where it is given.

        Raises:
            UserError: The environment or the checkpoint does not fit.
        """
        self.config, self.ranks, self.clock = config, ranks, ranks.clock
        self.stop = stop or StopRequest()
        self.is_stopping = False  # a signal ends the run; the same on all ranks
        policy = config.policy
        torch.manual_seed(integer_seed(config.seed, Role.WEIGHTS))
        num_envs = share(config.env.collector_env_num, ranks.rank, ranks.num_ranks)
        # Self-play: the collector meets no opponents.
        envs = VectorEnv(replace(config.env, opponents=[]), num_envs)
        shape = network_shape(policy, envs.shape)
        self.learner = Learner(policy, shape, ranks=ranks, device=device)
        self.normalizer = ObservationNormalizer(
            shape.observation_dim, is_enabled=config.env.normalize_observation
        )
        make_predictor = partial(
            Predictor, shape, num_simulations=policy.num_simulations, device=device
        )
        self.predictor = make_predictor(normalizer=self.normalizer)
        self.collector = Collector(config, envs, self.predictor, ranks, self.stop)
        self.evaluator = Evaluator(config, self.predictor, ranks, self.stop)
        self.buffer = replay_buffer(policy, shape, ranks)
        self.trees = TreeCache()
        # Its batches are normalised already.
        self.reanalyzer = Reanalyzer(make_predictor(), reanalyze_ratio=policy.reanalyze_ratio)
        self.monitor = self._monitor()
        self.profiler = NullProfiler()
        if config.profile:
            traces = folder / "log" / "profile"
            self.profiler = Profiler(traces, rank=ranks.rank, clock=self.clock, device=device)
        self.counters = Counters()
        self.files = RunFiles(
            config,
            folder=folder,
            ranks=ranks,
            learner=self.learner,
            buffer=self.buffer,
            normalizer=self.normalizer,
        )
        if config.resume is not None:
            self.counters = self.files.restore(Path(config.resume))
        self.report = Reporter(ranks, learner_freq=config.log.learner_freq)
        self.report.has_warned_of_clipping = self.counters.has_warned_of_clipping

    def run(self) -> None:
        """Train until a stop condition or a signal; evaluate (not then) and save once more."""
        self.clock.take()
        self.files.open(self.counters)
        self.report.log, self.report.progress = self.files.log, self.files.progress
        self.files.check_buffer(self.counters)
        self.files.take_over(self.counters)
        self.learner.distribute()
        if self.counters.best_score is None:  # a run folder without a ckpt_best
            self._evaluate()
            self.files.save(self.counters)
        self._learn()  # what a stopped run still owes
        self._evaluate_and_save_where_due()
        self.profiler.start(self.report.progress.say)
        while not (self.is_stopping or self._is_finished()):
            self._collect()
            self._learn()
            self._evaluate_and_save_where_due()
            self.report.cycled(self.clock.take())
            self.profiler.step()
        if self.counters.last_eval_iter < self.train_iter:
            self._evaluate()
        if self.is_stopping or self.counters.last_save_iter < self.train_iter:
            self.files.save(self.counters)
        self._close()

    @property
    def train_iter(self) -> int:
        """Updates so far, over all resumes."""
        return self.learner.train_iter

    def _monitor(self) -> NullMonitor:
        """Return what looks into the parts, on rank 0 and where it is wanted."""
        if not (self.config.log.histograms and self.ranks.is_main):
            return NullMonitor()
        size = self.config.policy.batch_size // self.ranks.num_ranks
        return Monitor(
            self.learner, self.buffer, self.trees, normalizer=self.normalizer, batch_size=size
        )

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
        search = self.monitor.watched(collect_search(policy, self.train_iter, self.trees))
        collected = self.collector.collect(phase, search)
        if collected is None:
            self.is_stopping = True
            return
        for episode in collected.episodes:
            self.buffer.push(episode)
        if self.normalizer.is_enabled:
            own = [moments_of(episode.observations) for episode in collected.episodes]
            self.normalizer.update(chain.from_iterable(self.ranks.gather(own)))
        steps = sum(summary.num_steps for summary in collected.summaries)
        counters.collect_phases += 1
        counters.episodes += len(collected.summaries)
        counters.envstep += steps
        counters.untrained_envsteps += steps
        counters.collect_seconds += collected.seconds
        report = self.report.at(train_iter=self.train_iter, envstep=counters.envstep)
        totals = CollectTotals(counters.envstep, counters.episodes, counters.collect_seconds)
        report.collected(collector_fields(collected, totals))
        report.stored(self.buffer, counters.sampled)
        report.progress.show(
            envstep=counters.envstep,
            train_iter=self.train_iter,
            last_return=counters.last_return,
        )
        self._plan_updates()

    def _plan_updates(self) -> None:
        """Decide how many updates the collected env steps are worth."""
        policy, counters = self.config.policy, self.counters
        # What was pushed, since how much of it full buffers still hold depends on their number.
        pushed = self.ranks.gather(self.buffer.num_pushed_transitions)
        if sum(pushed) < policy.train_start_after_envsteps or min(pushed) == 0:
            return
        count = policy.update_per_collect
        if count is None:
            owed = int(policy.replay_ratio * counters.untrained_envsteps)
            count = max(policy.min_update_per_collect, owed)
        counters.pending_updates = min(count, self.config.max_train_iter - self.train_iter)
        counters.untrained_envsteps = 0

    def _learn(self) -> None:
        """Take the planned updates and report their means."""
        counters, rows = self.counters, list[torch.Tensor]()
        first_iter, rate = self.train_iter, self.learner.learning_rate
        while counters.pending_updates > 0:
            if len(rows) % UPDATES_A_LOOK == 0 and self._agree_on_stop():
                break
            update = self._update()
            rows.append(update.metrics)
            counters.pending_updates -= 1
            counters.sampled += self.config.policy.batch_size
        if rows:
            with self.clock.counting(Part.LEARN):  # where a GPU's queue is waited for
                metrics = torch.stack(rows).cpu()
            report = self.report.at(train_iter=self.train_iter, envstep=counters.envstep)
            report.learned(metrics, first_iter, rate)
            counters.has_warned_of_clipping = report.has_warned_of_clipping
            if report.is_due(first_iter):
                self._look_closely(update)

    def _look_closely(self, update: Update) -> None:
        """Report how old its samples were and how far off its predictions; draw histograms."""
        model, batch = self.config.policy.model, update.batch
        errors = step_errors(
            update.predictions,
            value_scale=model.value_support_scale,
            reward_scale=model.reward_support_scale,
        )
        age = float(self.buffer.ages(batch.episode_ids, batch.positions).mean())
        # Ranks push alike: an age in one rank's transitions, times their number, is one in all's.
        age *= self.ranks.num_ranks
        self.report.measured({"sampled_age_envsteps": age, **errors})
        rng = stream(self.config.seed, Role.MONITOR, self.ranks.rank, self.train_iter)
        self.monitor.write(self.report.log, train_iter=self.train_iter, rng=rng)

    def _update(self) -> Update:
        """Sample, update, and hand new priorities back."""
        policy, ranks = self.config.policy, self.ranks
        rng = stream(self.config.seed, Role.SAMPLE, ranks.rank, self.train_iter)
        progress = self.train_iter / policy.priority_beta_anneal_iters
        beta = linear(policy.priority_prob_beta, 1.0, progress)
        size = policy.batch_size // ranks.num_ranks
        with self.clock.counting(Part.SAMPLE):
            stored = self.buffer.sample(size, rng, priority_beta=beta)
            batch = self.normalizer.normalize_batch(stored)
        if policy.reanalyze_ratio > 0:
            with self.clock.counting(Part.REANALYZE):
                batch = self.reanalyzer.refresh(
                    batch, self.learner.target_model, greedy_search(policy, self.trees), rng
                )
        with self.clock.counting(Part.LEARN):
            result = self.learner.update(batch)
        if result.priorities is not None:
            with self.clock.counting(Part.SAMPLE):
                self.buffer.update_priorities(batch.episode_ids, batch.positions, result.priorities)
        return Update(result.metrics, batch, result.predictions)

    def _evaluate(self) -> None:
        """Play greedy episodes; a strictly better mean return replaces ckpt_best."""
        if self.is_stopping:
            return
        counters, policy = self.counters, self.config.policy
        self.predictor.load(self.learner.model)
        with self.clock.counting(Part.EVALUATE):
            evaluation = self.evaluator.evaluate(greedy_search(policy, self.trees))
        if evaluation is None:
            self.is_stopping = True
            return
        counters.last_return, counters.last_eval_iter = evaluation.mean_return, self.train_iter
        score, before = evaluation.mean_return, counters.best_score
        best = score if before is None else max(score, before)
        report = self.report.at(train_iter=self.train_iter, envstep=counters.envstep)
        fields = evaluator_fields(evaluation, self.train_iter)
        report.evaluated(episode_lines(evaluation), fields, best_score=best)
        if best != before:
            counters.best_score = best
            self.files.save_best(counters)

    def _evaluate_and_save_where_due(self) -> None:
        """Do at the end of a cycle what the counters have passed a multiple for."""
        if self._is_due(self.config.policy.eval_freq, self.counters.last_eval_iter):
            self._evaluate()
        if self._is_due(self.config.checkpoint.save_freq, self.counters.last_save_iter):
            self.files.save(self.counters)

    def _agree_on_stop(self) -> bool:
        """Return, the same on all ranks, whether one of them was asked to end."""
        self.is_stopping = self.is_stopping or self.ranks.any(self.stop.look())
        return self.is_stopping

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

    def _close(self) -> None:
        """Say how the run ended and close everything."""
        counters, end = self.counters, "finished"
        if self.is_stopping:
            end = f"stopped by {self.stop.signal_name or 'a signal to another rank'}"
        scores = "no evaluation yet"
        if counters.last_return is not None and counters.best_score is not None:
            scores = f"mean return {counters.last_return:.2f}, best {counters.best_score:.2f}"
        self.report.progress.say(
            f"{end} at envstep {counters.envstep}, train_iter {self.train_iter}: {scores}"
        )
        self.profiler.stop()
        self.files.close()
        self.collector.close()
        self.evaluator.close()
        self.ranks.barrier()
