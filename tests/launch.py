"""Starting the program in processes of its own, each under a time limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TRAIN = ROOT / "train.py"
COUNTER = "tests.fake_envs:Counter-v0"

# Small enough that a run of a few thousand env steps takes a second or two beside the imports.
TINY = (
    "device=cpu",
    "policy.num_simulations=4",
    "policy.batch_size=32",
    "policy.replay_ratio=0.05",
    "policy.replay_buffer_size=20_000",
    "policy.eval_freq=25",
    "policy.model.latent_state_dim=8",
    "policy.model.head_hidden_dim=8",
    "policy.model.projection_dim=8",
    "policy.model.prediction_hidden_dim=8",
    "env.n_evaluator_episode=4",
    "env.evaluator_env_num=4",
    "env.stop_value=null",
    "log.learner_freq=10",
    "checkpoint.save_freq=20",
)


class Outcome(NamedTuple):
    """How a process ended."""

    returncode: int
    output: str  # stdout and stderr, as they came
    seconds: float

    def error_lines(self) -> list[str]:
        """Return the lines in which the program names a user's mistake."""
        return [line for line in self.output.splitlines() if line.startswith("error: ")]


class Running:
    """A launched program that still runs."""

    def __init__(self, command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> None:
        """Start the command in `folder`; its output goes to a file without a name."""
        self.mark = f"LIGHTZERO_TEST={uuid.uuid4()}"
        name, _, value = self.mark.partition("=")
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `finish`
        self.start = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=_environment() | dict(variables) | {name: value},
            stdout=self.file,
            stderr=subprocess.STDOUT,
        )

    def output(self) -> str:
        """Return what the program and its children have written so far."""
        size = os.fstat(self.file.fileno()).st_size
        return os.pread(self.file.fileno(), size, 0).decode()

    def wait_for(self, text: str, timeout: float = 60.0) -> None:
        """Wait until the output holds a text."""
        end = time.perf_counter() + timeout
        while text not in self.output():
            if self.process.poll() is not None or time.perf_counter() > end:
                self.kill()
                raise AssertionError(f"{text!r} is not in:\n{self.output()}")
            time.sleep(0.02)

    def pid_of(self, rank: int) -> int:
        """Return the process of a rank that torchrun started."""
        (pid,) = _marked(self.mark, f"RANK={rank}")
        return pid

    def kill(self) -> None:
        """End the program and all that it started, at once."""
        for pid in _marked(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def finish(self, timeout: float = 90.0) -> Outcome:
        """Wait for the end; a program that takes longer than `timeout` fails the test."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {timeout} s:\n{self.output()}") from None
        seconds = time.perf_counter() - self.start
        assert _marked(self.mark) == [], "a process outlived its launcher"
        with self.file:
            return Outcome(self.process.returncode, self.output(), seconds)


def start(
    command: Sequence[str | Path],
    folder: Path,
    *,
    num_ranks: int | None = None,
    variables: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Running:
    """Start a Python script in `folder`.

    Args:
        command: The script and its arguments.
        folder: Working directory.
        num_ranks: Processes that torchrun starts; None: python alone.
        variables: Environment variables beside the usual ones.
        options: Further options of torchrun.
    """
    launcher = [sys.executable]
    if num_ranks is not None:
        launcher += ["-m", "torch.distributed.run", "--standalone"]
        launcher += [f"--nproc_per_node={num_ranks}", *options]
    return Running([*launcher, *map(str, command)], folder, variables or {})


def launch(
    command: Sequence[str | Path],
    folder: Path,
    *,
    num_ranks: int | None = None,
    timeout: float = 90.0,
    variables: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Outcome:
    """Run a Python script to its end: `start`, and at most `timeout` seconds until it has ended."""
    running = start(command, folder, num_ranks=num_ranks, variables=variables, options=options)
    return running.finish(timeout)


def _marked(*marks: str) -> list[int]:
    """Return the processes that have environment variables, which their children inherit."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes()
        except OSError:  # another user's, or gone meanwhile
            continue
        if {mark.encode() for mark in marks} <= set(variables.split(b"\0")):
            pids.append(int(path.parent.name))
    return pids


def train(
    folder: Path, *overrides: str, num_ranks: int | None = None, timeout: float = 90.0
) -> Outcome:
    """Train tiny networks in `folder`; the caller names the environment."""
    command = [TRAIN, *TINY, *overrides]
    return launch(command, folder, num_ranks=num_ranks, timeout=timeout)


def train_well(folder: Path, *overrides: str, num_ranks: int | None = None) -> Outcome:
    """Train as `train` does, and insist on a good end."""
    outcome = train(folder, *overrides, num_ranks=num_ranks)
    assert outcome.returncode == 0, outcome.output
    return outcome


def _environment() -> dict[str, str]:
    """Return the variables of a process that sees this checkout, no GPU and no other job."""
    foreign = ("TORCHELASTIC_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONUNBUFFERED": "1",
    }
