"""What ends a run early: signals to one process, to one rank of several, and to torchrun."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from lightzero_lite.runtime.signals import SIGNALS, StopRequest
from tests.launch import COUNTER, TINY, TRAIN, Running, fork, start

LIMIT = 20.0  # seconds from the signal to the end
FAST, SLOW, STUCK = (COUNTER.replace("Counter", f"{kind}Counter") for kind in ("", "Slow", "Stuck"))
ENDLESS = ("max_env_step=100_000_000", "exp_name=run", "log.learner_freq=100_000")


def start_training(
    folder: Path, env: str, *overrides: str, num_ranks: int | None = None
) -> Running:
    command = [TRAIN, *TINY, f"env.env_id={env}", *ENDLESS, *overrides]
    return fork(command, folder, num_ranks=num_ranks)


def newest(folder: Path) -> Path:
    paths = (folder / "run" / "ckpt").glob("iteration_*")
    return max(paths, key=lambda path: int(path.name.split("_")[1].split(".")[0]))


def test_only_what_the_program_handles_is_a_request() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with StopRequest() as stop:
        assert not stop.look()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stop.look()
        assert stop.signal_name == "SIGUSR1"
        os.kill(os.getpid(), signal.SIGTERM)  # a second one changes nothing
        assert stop.signal_name == "SIGUSR1"
    # Ignored from here on: a repeated signal must not turn the exit status into a failure.
    assert [signal.getsignal(number) for number in SIGNALS] == [signal.SIG_IGN] * 3
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


def test_without_a_signal_the_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with StopRequest():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.distributed
def test_a_signal_saves_and_ends_a_process_well(tmp_path: Path) -> None:
    running = start_training(tmp_path, FAST, "checkpoint.save_freq=1_000_000")
    running.wait_for("evaluation at train_iter 2")
    running.process.send_signal(signal.SIGINT)
    sent = time.perf_counter()
    outcome = running.finish(LIMIT)
    assert outcome.returncode == 0, outcome.output
    assert time.perf_counter() - sent < LIMIT
    assert "stopped by SIGINT at envstep" in outcome.output
    state = torch.load(newest(tmp_path))
    assert newest(tmp_path).name == f"iteration_{state['last_iter']}.pth.tar"
    assert state["last_iter"] >= 25
    assert state["counters"]["episodes"] == 8 * state["counters"]["collect_phases"]


@pytest.mark.distributed
def test_a_signal_to_one_rank_ends_both_in_the_middle_of_an_evaluation(tmp_path: Path) -> None:
    # An episode takes minutes; rank 0 has none to play and waits for rank 1, or the reverse.
    running = start_training(tmp_path, SLOW, "env.n_evaluator_episode=1", num_ranks=2)
    running.wait_for("run folder: ")
    time.sleep(2)
    os.kill(running.pids()[2], signal.SIGUSR1)  # the launcher, rank 0, rank 1
    outcome = running.finish(LIMIT)
    assert outcome.returncode == 0, outcome.output
    assert "stopped by a signal to another rank at envstep 0, train_iter 0" in outcome.output
    assert torch.load(newest(tmp_path))["counters"]["best_score"] is None


@pytest.mark.distributed
@pytest.mark.parametrize("target", ["torchrun", "ranks"])
def test_a_signal_saves_and_leaves_no_process(tmp_path: Path, target: str) -> None:
    # Most of the time is spent in saving, and most of the rest in collecting.
    saving = ("checkpoint.save_freq=1", "checkpoint.replay_buffer=true", "policy.n_episode=2")
    command = [TRAIN, *TINY, f"env.env_id={FAST}", *ENDLESS, *saving, "policy.eval_freq=4"]
    running = start(command, tmp_path, num_ranks=2)
    running.wait_for("evaluation at train_iter 4")
    pid = running.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for receiver in [pid] if target == "torchrun" else map(int, children):
        os.kill(receiver, signal.SIGTERM)
    outcome = running.finish(2 * LIMIT)  # which looks for survivors; torchrun itself takes seconds
    assert "stopped by SIGTERM at envstep" in outcome.output
    # torchrun reports its own signal, though the ranks that it passed it on to ended well.
    assert outcome.returncode == (1 if target == "torchrun" else 0)
    state = torch.load(newest(tmp_path))
    assert state["num_ranks"] == 2
    assert f"train_iter {state['last_iter']}:" in outcome.output.rpartition("stopped by")[2]
    states = torch.load(newest(tmp_path).with_name(state["replay_buffer"]))["replay_buffers"]
    assert [one["num_pushed_transitions"] > 0 for one in states] == [True, True]


@pytest.mark.distributed
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_ranks_whose_launcher_is_killed_save_and_end(tmp_path: Path, num_ranks: int) -> None:
    running = start_training(tmp_path, FAST, num_ranks=num_ranks)
    running.wait_for("evaluation at train_iter 2")
    running.process.send_signal(signal.SIGKILL)
    end = time.monotonic() + LIMIT
    while running.pids() and time.monotonic() < end:
        time.sleep(0.05)
    outcome = running.finish(LIMIT)
    assert "stopped by the end of torchrun at envstep" in outcome.output
    assert torch.load(newest(tmp_path))["last_iter"] >= 25


@pytest.mark.distributed
def test_a_second_interrupt_ends_a_process_that_is_stuck(tmp_path: Path) -> None:
    running = start_training(tmp_path, STUCK)
    running.wait_for("run folder: ")
    time.sleep(1)
    running.process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert running.process.poll() is None  # the step takes minutes
    running.process.send_signal(signal.SIGINT)
    assert running.finish(5).returncode == -signal.SIGINT
