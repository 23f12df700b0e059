"""Environments in processes of their own: the same data, their failures, and their ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightzero_lite.config import EnvConfig
from lightzero_lite.envs import remote
from lightzero_lite.envs.remote import WorkerError
from lightzero_lite.envs.rollout import Decisions, play_episodes
from lightzero_lite.envs.vector import VectorEnv
from lightzero_lite.types import BoolArray, Float32Array, UserError
from tests.fake_envs import Counter
from tests.launch import ROOT, TINY, TRAIN, fork, train_well
from tests.test_runs import assert_same_learning, assert_same_tensors, newest, state_of

COUNTER = "tests.fake_envs:Counter"


def workers(num_envs: int, entry_point: str = COUNTER, **kwargs: Any) -> VectorEnv:
    config = EnvConfig(entry_point=entry_point, kwargs=kwargs, vectorization="async")
    return VectorEnv(config, num_envs)


def pids_of(envs: VectorEnv) -> list[int]:
    """Return the processes of the environments, after the one that forked them."""
    assert envs.workers is not None
    first = envs.workers.process.pid
    forked = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    return [first, *map(int, forked)]


def wait_until_gone(pids: list[int], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end, "a process is still there"
        time.sleep(0.01)


@pytest.fixture
def three() -> Iterator[VectorEnv]:
    envs = workers(3, min_length=100, max_length=100)
    envs.reset_all(range(3), range(3))
    yield envs
    envs.close()


def first_legal(observations: Float32Array, invalid: BoolArray | None) -> Decisions:
    """Play the first legal action, or one that the observation names where all are legal."""
    count = len(observations)
    by_observation = (observations[:, 0] * 1000).astype(np.int32) % 3
    action = by_observation if invalid is None else (~invalid).argmax(axis=1).astype(np.int32)
    zeros = np.zeros(count, np.float32)
    return Decisions(action, zeros, zeros, np.zeros((count, 3), np.float32))


@pytest.mark.parametrize("name", ["BothEndsCounter-v0", "MaskedObservation-v0"])
def test_async_brings_the_data_of_sync_bit_by_bit(name: str) -> None:
    seeds = [11 * i for i in range(7)]
    runs = []
    for vectorization in ("sync", "async"):
        config = EnvConfig(env_id=f"tests.fake_envs:{name}", vectorization=vectorization)  # type: ignore[arg-type]
        envs = VectorEnv(config, 3)
        assert envs.shape[:2] == (2, 3)
        runs.append(list(play_episodes(envs, seeds, first_legal)))
        envs.close()
    for one, other in zip(*runs, strict=True):
        assert (one.number, one.env) == (other.number, other.env)
        for field, same in zip(one.episode, other.episode, strict=True):
            assert np.array_equal(field, same)
            assert np.asarray(field).dtype == np.asarray(same).dtype


def test_environments_step_at_the_same_time() -> None:
    envs = workers(4, seconds=0.75)
    envs.reset_all(range(4), range(4))
    start = time.perf_counter()
    results = envs.step_all(range(4), np.array([0, 1, 2, 0], np.int32))
    assert time.perf_counter() - start < 2.5  # one after the other takes three seconds
    assert [round(float(r.observation[0]) * 1000) for r in results] == [0, 1, 2, 3]
    envs.close()


def test_only_the_environments_in_play_are_stepped(three: VectorEnv) -> None:
    for _ in range(2):
        three.step_all([0, 2], np.zeros(2, np.int32))
    results = three.step_all([2, 1], np.zeros(2, np.int32))
    assert [round(float(r.observation[1]) * 10) for r in results] == [3, 1]


def test_a_worker_that_raises_is_reported_with_its_message_and_traceback() -> None:
    envs = workers(2, fail_step=2)
    pids = pids_of(envs)
    envs.reset_all([0, 1], [0, 1])
    envs.step_all([1], np.zeros(1, np.int32))
    message = r"env 1: RuntimeError: the counter was told to fail\n\nTraceback .*fake_envs.py"
    with pytest.raises(WorkerError, match=f"(?s){message}"):
        envs.step_all([0, 1], np.zeros(2, np.int32))
    wait_until_gone(pids)


def test_a_worker_that_dies_is_reported(three: VectorEnv) -> None:
    os.kill(pids_of(three)[2], signal.SIGKILL)
    with pytest.raises(WorkerError, match="env 1: its process ended unexpectedly"):
        three.step_all([0, 1, 2], np.zeros(3, np.int32))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"entry_point": "tests.fake_envs:Nothing"}, "tests.fake_envs has no class or function N"),
        ({"env_id": "Pendulum-v1"}, "env.env_id=Pendulum-v1: the action space is Box"),
    ],
)
def test_what_is_refused_is_refused_with_the_same_line(options: dict[str, Any], line: str) -> None:
    lines = []
    for vectorization in ("sync", "async"):
        with pytest.raises(UserError, match=line) as refused:
            VectorEnv(EnvConfig(**options, vectorization=vectorization), 2)
        lines.append(str(refused.value))
    assert lines[0] == lines[1]


def test_signals_to_all_processes_are_for_the_rank_to_act_on(three: VectorEnv) -> None:
    for pid in pids_of(three):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            os.kill(pid, number)
    time.sleep(0.1)
    assert len(three.step_all([0, 1, 2], np.zeros(3, np.int32))) == 3


def test_closing_ends_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_PATIENCE", 60.0)
    envs = workers(2)
    pids = pids_of(envs)
    start = time.perf_counter()
    envs.close()
    assert time.perf_counter() - start < 50  # of their own accord: nobody was ended
    wait_until_gone(pids)


ABANDONED = """
import sys, time
from lightzero_lite.config import EnvConfig
from lightzero_lite.envs.vector import VectorEnv
kwargs = {"seconds": 300.0}
envs = VectorEnv(EnvConfig(entry_point=%r, kwargs=kwargs, vectorization="async"), 2)
first = envs.workers.process.pid
print(first, open(f"/proc/{first}/task/{first}/children").read(), flush=True)
envs.reset_all([0, 1], [0, 1])
envs.workers.connections[0].send(("step", 0))
if sys.argv[1] == "raise":
    raise RuntimeError("the rank fails")
time.sleep(300)
"""


@pytest.mark.parametrize("end", ["kill", "raise"])
def test_no_process_survives_its_rank_while_one_is_stuck(end: str) -> None:
    rank = subprocess.Popen(
        [sys.executable, "-c", ABANDONED % COUNTER, end],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert rank.stdout is not None
    pids = [int(word) for word in rank.stdout.readline().split()]
    assert len(pids) == 3
    if end == "kill":
        rank.kill()
    assert rank.wait(60) == (-signal.SIGKILL if end == "kill" else 1)
    wait_until_gone(pids)


def test_environments_of_this_process_are_its_own() -> None:
    envs = VectorEnv(EnvConfig(entry_point=COUNTER), 2)
    assert all(isinstance(env.unwrapped, Counter) for env in envs.envs)
    assert envs.workers is None


@pytest.mark.distributed
def test_two_ranks_learn_the_same_with_either(tmp_path: Path) -> None:
    # Episodes of one step to nine; what is observed does not depend on what is played.
    # A module of the current folder is found by ranks and workers.
    (tmp_path / "own_counter.py").write_text("from tests.fake_envs import Counter as Own\n")
    lengths = ("env.kwargs.min_length=1", "env.kwargs.max_length=9")
    options = ("env.entry_point=own_counter:Own", *lengths, "env.normalize_observation=true")
    for kind, num_ranks in (("sync", 2), ("async", 2), ("async", None)):
        name = f"{kind}{num_ranks}"
        more = (f"env.vectorization={kind}", "max_env_step=300", f"exp_name={name}")
        train_well(tmp_path, *options, *more, num_ranks=num_ranks)
    assert_same_learning(tmp_path / "sync2", tmp_path / "async2")
    two, one = (state_of(newest(tmp_path / name)) for name in ("sync2", "asyncNone"))
    assert_same_tensors(two["observation_statistics"], one["observation_statistics"])
    assert two["observation_statistics"]["number"] > 300


@pytest.mark.distributed
def test_a_signal_to_all_processes_saves_and_leaves_none(tmp_path: Path) -> None:
    options = (f"env.entry_point={COUNTER}", "env.kwargs.seconds=0.02", "env.vectorization=async")
    command = [TRAIN, *TINY, *options, "max_env_step=1_000_000", "exp_name=run"]
    running = fork(command, tmp_path, num_ranks=2)
    running.wait_for("evaluation at train_iter 0")
    for pid in running.pids()[1:]:  # the first is the launcher, which is no part of a run
        os.kill(pid, signal.SIGTERM)
    outcome = running.finish(20)  # which looks for survivors
    assert outcome.returncode == 0, outcome.output
    assert "stopped by SIGTERM at envstep" in outcome.output
    assert list((tmp_path / "run" / "ckpt").glob("iteration_*"))
