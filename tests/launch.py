"""Starting the program in processes of its own, each under a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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


def launch(
    command: Sequence[str | Path],
    folder: Path,
    *,
    num_ranks: int | None = None,
    timeout: float = 90.0,
    variables: Mapping[str, str] | None = None,
) -> Outcome:
    """Run a Python script in `folder`.

    Args:
        command: The script and its arguments.
        folder: Working directory.
        num_ranks: Processes that torchrun starts; None: python alone.
        timeout: Seconds after which it is killed, which fails the test.
        variables: Environment variables beside the usual ones.
    """
    launcher = [sys.executable]
    if num_ranks is not None:
        launcher += ["-m", "torch.distributed.run", "--standalone"]
        launcher += [f"--nproc_per_node={num_ranks}"]
    mark = f"LIGHTZERO_TEST={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    start = time.perf_counter()
    process = subprocess.Popen(
        [*launcher, *map(str, command)],
        cwd=folder,
        env=_environment() | dict(variables or {}) | {name: value},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        for pid in _marked(mark):
            os.kill(pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"still running after {timeout} s:\n{output}") from None
    seconds = time.perf_counter() - start
    assert _marked(mark) == [], "a process outlived its launcher"
    return Outcome(process.returncode, output, seconds)


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
