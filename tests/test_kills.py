"""kill -9 at random times, again and again, while every iteration is saved: nothing is lost.

`KILLS=20 pytest -n 0 -s tests/test_kills.py` kills more often and shows each kill.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
import zipfile
from pathlib import Path

import pytest
import torch

from tests.launch import COUNTER, TINY, TRAIN, fork, train_well
from tests.test_resume import assert_same_run, iterations

pytestmark = pytest.mark.distributed

KILLS = int(os.environ.get("KILLS", "3"))
RUN = (
    f"env.env_id={COUNTER}",
    "checkpoint.save_freq=1",
    "checkpoint.replay_buffer=true",
    "policy.use_priority=true",
    "policy.update_per_collect=1",
    "policy.n_episode=2",
    "policy.num_simulations=2",
    "policy.replay_buffer_size=2000",
    "policy.eval_freq=10",
    "log.learner_freq=1",
    "resume=auto",
)


def check_files() -> int:
    """Load every file under a final name, and return how many there are."""
    paths = [path for path in Path("killed/ckpt").iterdir() if not path.name.startswith(".")]
    for path in paths:
        torch.load(path)
        with zipfile.ZipFile(path) as file:  # torch does not compare checksums
            assert file.testzip() is None, path
    return len(paths)


def kill_once(num_ranks: int, rng: random.Random) -> str:
    """Start the run, kill a rank or everything, and return what was seen."""
    before = len(iterations("killed"))
    command = [TRAIN, *TINY, *RUN, "exp_name=killed", "max_env_step=1_000_000_000"]
    running = fork(command, Path(), num_ranks=num_ranks)
    running.wait_for("run folder: ")
    went_on = re.findall(r"resume=auto: (.*)", running.output())[-1]
    end = time.monotonic() + 60
    while len(iterations("killed")) == before and time.monotonic() < end:
        time.sleep(0.002)
    delay = rng.uniform(0, 0.5)
    time.sleep(delay)
    launcher, *ranks = running.pids()
    victim = rng.choice([*ranks, None])
    for pid in [launcher, *ranks] if victim is None else [victim]:
        os.kill(pid, signal.SIGKILL)
    while running.pids():
        assert time.monotonic() < end + 30, "a rank outlived the others"
        time.sleep(0.01)
    assert running.finish(30).returncode != 0
    who = "all" if victim is None else f"rank {ranks.index(victim)}"
    left = list(Path("killed/ckpt").glob(".*"))
    torn = f", {left[0].name} was half-written" if left else ""
    return f"start: {went_on}; {who} killed after {delay:.2f} s; {check_files()} files load{torn}"


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_run_killed_again_and_again_is_the_undisturbed_one(
    num_ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(num_ranks)
    for number in range(1, KILLS + 1):
        before = len(iterations("killed"))
        seen = kill_once(num_ranks, rng)
        print(f"kill {number:2} of {num_ranks} ranks: {seen}", flush=True)
        assert len(iterations("killed")) > before
        assert seen.startswith(
            f"start: killed/ckpt/iteration_{before - 1}." if before else "start: "
        )
    end = torch.load(iterations("killed")[-1])["last_step"] + 100
    for name in ("killed", "whole"):
        run = (*RUN, f"exp_name={name}", f"max_env_step={end}")
        train_well(tmp_path, *run, num_ranks=num_ranks)
    assert_same_run("whole", "killed")
