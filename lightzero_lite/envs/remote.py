"""Environments in processes of their own: the rank's side of `envs/worker.py`.

One fresh interpreter forks a worker for each environment. It has nothing of the rank's: no sockets
of the process group, no CUDA context, no handlers. A worker ends when its connection closes, or at
once when the rank is gone, however it went.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

from lightzero_lite.config import EnvConfig
from lightzero_lite.types import UserError

_PATIENCE = 3.0  # seconds that workers get to close their environments
_BOOT = "import sys; sys.path[:] = {}; from lightzero_lite.envs.worker import main; main()"


class Failure(NamedTuple):
    """What went wrong in a worker."""

    text: str
    is_users: bool  # True: a UserError, whose text is its whole line
    traceback: str


class WorkerError(RuntimeError):
    """An environment raised in its process, or its process is gone."""


class WorkerStart(NamedTuple):
    """What the workers' first process must know."""

    config: EnvConfig
    handles: list[int]  # file descriptors of the workers' ends of their connections
    lifeline: int  # a pipe that ends with the rank


class Workers:
    """The processes of a rank's environments; closed with the object, and with the rank."""

    def __init__(self, config: EnvConfig, count: int) -> None:
        """Start them; each constructs its environment and then answers with its shape."""
        pipes = [Pipe() for _ in range(count)]
        lifeline_end, lifeline = os.pipe()
        handles = [theirs.fileno() for _, theirs in pipes]
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT.format(sys.path)],
            stdin=subprocess.PIPE,
            pass_fds=[*handles, lifeline_end],
            env={"OMP_NUM_THREADS": "1", **os.environ},
        )
        connections = [ours for ours, _ in pipes]
        self.close = weakref.finalize(self, _close, process, connections, lifeline)
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(pickle.dumps(WorkerStart(config, handles, lifeline_end)))
        for _, theirs in pipes:
            theirs.close()
        os.close(lifeline_end)
        self.process, self.connections = process, connections

    def shapes(self) -> list[Any]:
        """Wait until all environments are constructed and return their EnvShapes.

        Raises:
            UserError: One cannot be made or does not fit.
            WorkerError: A process is gone.
        """
        return [self._receive(index) for index in range(len(self.connections))]

    def ask(
        self, command: Literal["reset", "step"], indices: Sequence[int], arguments: Sequence[Any]
    ) -> list[Any]:
        """Let environments reset or step at the same time and return what each returned.

        Args:
            command: Which of the two.
            indices: The environments.
            arguments: The seed and the options, or the action, of each.

        Raises:
            WorkerError: An environment raised, or its process is gone.
        """
        for index, argument in zip(indices, arguments, strict=True):
            # A worker that is gone shows when its answer is waited for.
            with contextlib.suppress(OSError):
                self.connections[index].send((command, argument))
        return [self._receive(index) for index in indices]

    def _receive(self, index: int) -> Any:
        """Wait for an environment's answer; after a failure none is waited for any more."""
        try:
            answer = self.connections[index].recv()
        except (EOFError, OSError):
            answer = Failure("its process ended unexpectedly", False, "")
        if not isinstance(answer, Failure):
            return answer
        self.close()
        if answer.is_users:
            raise UserError(answer.text)
        raise WorkerError(f"env {index}: {answer.text}\n\n{answer.traceback}".strip())


def _close(
    process: subprocess.Popen[bytes], connections: Sequence[Connection], lifeline: int
) -> None:
    """End all workers: those that wait close their environments, the others are ended."""
    for connection in connections:
        connection.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE)
    os.close(lifeline)
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
