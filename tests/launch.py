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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from tests.forked import Forked, Order

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
    """A started program that still runs."""

    def __init__(
        self,
        process: subprocess.Popen[bytes] | Forked,
        file: IO[bytes],
        pids: Callable[[], list[int]],
    ) -> None:
        """Take over a process, the file of its output, and what lists all that it started."""
        self.process, self.file, self.pids = process, file, pids
        self.start = time.perf_counter()

    def output(self) -> str:
        """Return what the program and its children have written so far."""
        size = os.fstat(self.file.fileno()).st_size
        return os.pread(self.file.fileno(), size, 0).decode()

    def wait_for(self, text: str, timeout: float = 90.0) -> None:
        """Wait until the output holds a text."""
        end = time.perf_counter() + timeout
        while text not in self.output():
            if self.process.poll() is not None or time.perf_counter() > end:
                self.kill()
                raise AssertionError(f"{text!r} is not in:\n{self.output()}")
            time.sleep(0.02)

    def kill(self) -> None:
        """End the program and all that it started, at once."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def finish(self, timeout: float = 90.0) -> Outcome:
        """Wait for the end; a program that takes longer than `timeout` fails the test."""
        try:
            self.process.wait(timeout)
        except (subprocess.TimeoutExpired, TimeoutError):
            self.kill()
            raise AssertionError(f"still running after {timeout} s:\n{self.output()}") from None
        seconds = time.perf_counter() - self.start
        assert self.pids() == [], "a process outlived its launcher"
        with self.file:
            assert self.process.returncode is not None
            return Outcome(self.process.returncode, self.output(), seconds)


def start(
    command: Sequence[str | Path],
    folder: Path,
    *,
    num_ranks: int | None = None,
    variables: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Running:
    """Start a Python script in `folder`, as a user does.

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
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `finish`
    mark = str(uuid.uuid4())
    process = subprocess.Popen(
        [*launcher, *map(str, command)],
        cwd=folder,
        env=_environment() | dict(variables or {}) | {"LIGHTZERO_TEST": mark},
        stdout=file,
        stderr=subprocess.STDOUT,
    )
    return Running(process, file, lambda: _marked(f"LIGHTZERO_TEST={mark}"))


def fork(
    command: Sequence[str | Path],
    folder: Path,
    *,
    num_ranks: int | None = None,
    largest_file: int | None = None,
) -> Running:
    """Start a Python script in `folder` without the seconds that imports take: `tests.forked`.

    Args:
        command: The script and its arguments.
        folder: Working directory.
        num_ranks: Ranks, which get the variables that torchrun gives; None: a process alone.
        largest_file: Bytes that a file may have; None: no limit.
    """
    file = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed in `finish`
    words = list(map(str, command))
    order = Order(words, folder, _environment(), Path(file.name), num_ranks, largest_file)
    process = Forked(order)
    return Running(process, file, process.pids)


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


def train(
    folder: Path, *overrides: str, num_ranks: int | None = None, timeout: float = 90.0
) -> Outcome:
    """Train tiny networks in `folder`, forked; the caller names the environment."""
    return fork([TRAIN, *TINY, *overrides], folder, num_ranks=num_ranks).finish(timeout)


def train_well(folder: Path, *overrides: str, num_ranks: int | None = None) -> Outcome:
    """Train as `train` does, and insist on a good end."""
    outcome = train(folder, *overrides, num_ranks=num_ranks)
    assert outcome.returncode == 0, outcome.output
    return outcome


def _marked(mark: str) -> list[int]:
    """Return the processes that have an environment variable, which their children inherit."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes()
        except OSError:  # another user's, or gone meanwhile
            continue
        if mark.encode() in variables.split(b"\0"):
            pids.append(int(path.parent.name))
    return pids


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
