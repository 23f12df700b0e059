"""The serial pipeline: collect, store, learn, evaluate, save, the same on every rank."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch

from lightzero_lite.building import collect_search, greedy_search, network_shape
from lightzero_lite.collector import Collector, CollectPhase, CollectTotals, collector_fields
from lightzero_lite.config import Config, config_to_dict
from lightzero_lite.counters import Counters
from lightzero_lite.envs.factory import VectorEnv, env_shape
from lightzero_lite.evaluator import Evaluator, episode_lines, evaluator_fields
from lightzero_lite.learner import Learner
from lightzero_lite.predictor import Predictor
from lightzero_lite.reanalyzer import Reanalyzer
from lightzero_lite.replay import ReplayBuffer
from lightzero_lite.reporting import Reporter
from lightzero_lite.runtime.checkpoint import (
    BEST_NAME,
    best_score,
    check_same_shapes,
    iteration_name,
    load_checkpoint,
    load_replay_buffer,
    prune_replay_buffers,
    replay_buffer_name,
    save_checkpoint,
    save_replay_buffers,
)
from lightzero_lite.runtime.config_files import write_config_files
from lightzero_lite.runtime.distributed import Ranks, share
from lightzero_lite.runtime.logging import CHANNELS, RunLog
from lightzero_lite.runtime.progress import Progress
from lightzero_lite.runtime.run_folder import make_run_folder
from lightzero_lite.runtime.schedules import linear
from lightzero_lite.runtime.seeding import Role, integer_seed, stream
from lightzero_lite.runtime.signals import StopRequest
from lightzero_lite.search import TreeCache
from lightzero_lite.types import StateDict

UPDATES_A_LOOK = 8  # updates between two joint looks at the signals, each of which is a collective


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
        self.config, self.folder, self.ranks = config, folder, ranks
        self.stop = stop or StopRequest()
        self.is_stopping = False  # a signal ends the run; the same on all ranks
        policy = config.policy
        torch.manual_seed(integer_seed(config.seed, Role.WEIGHTS))
        envs = VectorEnv(
            config.env, share(config.env.collector_env_num, ranks.rank, ranks.num_ranks)
        )
        shape = network_shape(policy, env_shape(envs.envs[0]))
        self.learner = Learner(policy, shape, ranks=ranks, device=device)
        self.predictor = Predictor(shape, num_simulations=policy.num_simulations, device=device)
        self.collector = Collector(config, envs, self.predictor, ranks, self.stop)
        self.evaluator = Evaluator(config, self.predictor, ranks, self.stop)
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
        self.reanalyzer = Reanalyzer(
            Predictor(shape, num_simulations=policy.num_simulations, device=device),
            reanalyze_ratio=policy.reanalyze_ratio,
        )
        self.counters = Counters()
        self.report = Reporter(ranks, learner_freq=config.log.learner_freq)
        self.log_sizes: dict[str, int] = {}  # bytes of the text logs at the resumed checkpoint
        if config.resume is not None:
            self._restore(Path(config.resume))

    def run(self) -> None:
        """Train until a stop condition or a signal; evaluate (not then) and save once more."""
        self._open_run_folder()
        self._check_buffer()
        self.learner.distribute()
        if self.counters.best_score is None:  # a run folder without a ckpt_best
            self._evaluate()
            self._save()
        self._learn()  # what a stopped run still owes
        self._evaluate_and_save_where_due()
        while not (self.is_stopping or self._is_finished()):
            self._collect()
            self._learn()
            self._evaluate_and_save_where_due()
        if self.counters.last_eval_iter < self.train_iter:
            self._evaluate()
        if self.is_stopping or self.counters.last_save_iter < self.train_iter:
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
        if collected is None:
            self.is_stopping = True
            return
        for episode in collected.episodes:
            self.buffer.push(episode)
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
        stored = self.ranks.gather(self.buffer.num_transitions)
        if sum(stored) < max(policy.train_start_after_envsteps, 1) or min(stored) == 0:
            return
        count = policy.update_per_collect
        if count is None:
            count = max(1, int(policy.replay_ratio * counters.untrained_envsteps))
        counters.pending_updates = min(count, self.config.max_train_iter - self.train_iter)
        counters.untrained_envsteps = 0

    def _learn(self) -> None:
        """Take the planned updates and report their means."""
        counters, rows = self.counters, list[torch.Tensor]()
        first_iter, rate = self.train_iter, self.learner.learning_rate
        while counters.pending_updates > 0:
            if len(rows) % UPDATES_A_LOOK == 0 and self._agree_on_stop():
                break
            rows.append(self._update())
            counters.pending_updates -= 1
            counters.sampled += self.config.policy.batch_size
        if rows:
            report = self.report.at(train_iter=self.train_iter, envstep=counters.envstep)
            report.learned(torch.stack(rows), first_iter, rate)
            counters.has_warned_of_clipping = report.has_warned_of_clipping

    def _update(self) -> torch.Tensor:
        """Sample, update, and hand new priorities back; return the update's metrics."""
        policy, ranks = self.config.policy, self.ranks
        rng = stream(self.config.seed, Role.SAMPLE, ranks.rank, self.train_iter)
        progress = self.train_iter / policy.priority_beta_anneal_iters
        beta = linear(policy.priority_prob_beta, 1.0, progress)
        size = policy.batch_size // ranks.num_ranks
        batch = self.buffer.sample(size, rng, priority_beta=beta)
        if policy.reanalyze_ratio > 0:
            batch = self.reanalyzer.refresh(
                batch, self.learner.target_model, greedy_search(policy, self.trees), rng
            )
        result = self.learner.update(batch)
        if result.priorities is not None:
            self.buffer.update_priorities(batch.episode_ids, batch.positions, result.priorities)
        return result.metrics

    def _evaluate(self) -> None:
        """Play greedy episodes; a strictly better mean return replaces ckpt_best."""
        if self.is_stopping:
            return
        counters, policy = self.counters, self.config.policy
        self.predictor.load(self.learner.model)
        evaluation = self.evaluator.evaluate(greedy_search(policy, self.trees))
        if evaluation is None:
            self.is_stopping = True
            return
        counters.last_return, counters.last_eval_iter = evaluation.mean_return, self.train_iter
        self.report.at(train_iter=self.train_iter, envstep=counters.envstep)
        fields = evaluator_fields(evaluation, self.train_iter)
        self.report.evaluated(episode_lines(evaluation), fields)
        if counters.best_score is None or evaluation.mean_return > counters.best_score:
            counters.best_score = evaluation.mean_return
            self._write_checkpoint(BEST_NAME, replay_buffer=None)

    def _evaluate_and_save_where_due(self) -> None:
        """Do at the end of a cycle what the counters have passed a multiple for."""
        if self._is_due(self.config.policy.eval_freq, self.counters.last_eval_iter):
            self._evaluate()
        if self._is_due(self.config.checkpoint.save_freq, self.counters.last_save_iter):
            self._save()

    def _agree_on_stop(self) -> bool:
        """Return, the same on all ranks, whether one of them was asked to end."""
        self.is_stopping = self.is_stopping or self.ranks.any(self.stop.look())
        return self.is_stopping

    def _save(self) -> None:
        """Write the iteration checkpoint, and before it the replay buffers if they are wanted."""
        self.counters.last_save_iter = self.train_iter
        name, folder = None, self.folder / "ckpt"
        if self.config.checkpoint.replay_buffer:
            name = replay_buffer_name(self.train_iter, self.counters.envstep)
            states = self.ranks.gather_on_main(self.buffer.state_dict())
            if self.ranks.is_main:
                save_replay_buffers(states, folder / name)
        self._write_checkpoint(iteration_name(self.train_iter), replay_buffer=name)
        if name is not None and self.ranks.is_main:
            prune_replay_buffers(folder, kept=name)

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
        report, envstep = self.report, self.counters.envstep
        if self.config.resume is None:  # of a run that left no checkpoint, nothing is kept
            report.log = RunLog(
                self.folder, train_iter=-1, envstep=-1, sizes=dict.fromkeys(CHANNELS, 0)
            )
        else:
            report.log = RunLog(
                self.folder, train_iter=self.train_iter, envstep=envstep, sizes=self.log_sizes
            )
        if not report.log.sizes()["learner"]:
            report.log.line("learner", f"Policy neural network architecture:\n{self.learner.model}")
        report.progress = Progress(self.config.max_env_step, envstep)
        report.progress.say(f"run folder: {self.folder}")

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
        self.report.progress.close()
        self.report.log.close()
        self.collector.close()
        self.evaluator.close()
        self.ranks.barrier()

    def _write_checkpoint(self, name: str, *, replay_buffer: str | None) -> None:
        """Write a checkpoint file, which names that of its replay buffers."""
        if self.ranks.is_main:
            files = {"replay_buffer": replay_buffer, "log_sizes": self.report.log.sizes()}
            save_checkpoint(self.state_dict() | files, self.folder / "ckpt" / name)

    def _check_buffer(self) -> None:
        """Say where a resumed run starts without replay buffers."""
        is_missing = self.buffer.num_transitions == 0
        if self.counters.envstep > 0 and self.ranks.any(is_missing):
            self.counters.pending_updates = 0
            self.report.progress.say(
                f"no readable replay buffer is stored for {self.ranks.num_ranks} ranks: it fills "
                "again with the restored policy before the first update"
            )

    def _restore(self, path: Path) -> None:
        """Continue from a checkpoint; the score to beat is that of the run folder's ckpt_best."""
        state = load_checkpoint(path)
        check_same_shapes(self.learner.model.state_dict(), path, state)
        has_optimizer = self.learner.load_state_dict(state)
        if self.ranks.is_main and self.train_iter > 0 and not has_optimizer:
            kind = self.config.policy.optim_type
            print(f"resume={path}: no optimizer state for {kind}: it starts afresh")
        self.counters = Counters(**state["counters"])
        self.report.has_warned_of_clipping = self.counters.has_warned_of_clipping
        self.log_sizes = state.get("log_sizes", {})
        self.counters.best_score = best_score(self.folder)
        buffers = path.with_name(state.get("replay_buffer") or "none")
        stored = load_replay_buffer(buffers, self.ranks.rank, self.ranks.num_ranks)
        if stored is not None:
            self.buffer.load_state_dict(stored)
