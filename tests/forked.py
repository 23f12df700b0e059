"""Runs in processes forked from one that has imported everything: they start in milliseconds.

Each rank gets the variables that torchrun gives it and runs the same script; only the interpreter's
start and torchrun's agent are left out. Tests of those use `tests.launch.start`.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import runpy
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple, NoReturn

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.preloaded"])
PATIENCE = 20.0  # seconds that the other ranks have to end when one has failed


class Order(NamedTuple):
    """What to run."""

    command: list[str]  # a script and its arguments
    folder: Path  # working directory
    variables: dict[str, str]  # the whole environment
    output: Path  # file for stdout and stderr
    num_ranks: int | None  # None: no variables of torchrun's
    largest_file: int | None  # in bytes; None: as it is


class Forked:
    """A forked run, with the methods of subprocess.Popen that tests use."""

    def __init__(self, order: Order) -> None:
        """Start it."""
        self.process = SERVER.Process(target=_launch, args=(order,))
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status; negative: a signal's number; None: it still runs."""
        return self.process.exitcode

    def poll(self) -> int | None:
        """Return the exit status; None while it runs."""
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end.

        Raises:
            TimeoutError: It still runs after `timeout` seconds.
        """
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise TimeoutError

    def send_signal(self, number: int) -> None:
        """Signal the process that forked the ranks, or the one that is alone."""
        os.kill(self.pid, number)

    def pids(self) -> list[int]:
        """Return all processes of the run that live: the first, then the ranks in their order."""
        stats = [_words(path) for path in Path("/proc").glob("[0-9]*/stat")]
        # Fields by proc(5): process, state, session. The dead that nobody waited for are no life.
        pids = [int(words[0]) for words in stats if words and words[1] != "Z"]
        return sorted(pid for pid in pids if _is_in_session(pid, self.pid))


def _is_in_session(pid: int, session: int) -> bool:
    try:
        return os.getsid(pid) == session
    except ProcessLookupError:
        return False


def _words(path: Path) -> list[str]:
    """Return a process's number and state; nothing where it is gone."""
    try:
        number, _, rest = path.read_text().partition(" (")
    except OSError:
        return []
    return [number, rest.rpartition(") ")[2][0]]


def _launch(order: Order) -> None:
    """Become the launcher of ranks, or the one process."""
    os.setsid()
    os.chdir(order.folder)
    file = os.open(order.output, os.O_WRONLY | os.O_APPEND)
    for target in (1, 2):
        os.dup2(file, target)
    sys.stdout, sys.stderr = (os.fdopen(target, "w", buffering=1) for target in (1, 2))
    os.environ.clear()
    os.environ |= order.variables
    if order.largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order.largest_file, order.largest_file))
    if order.num_ranks is None:
        _run(order.command)
    os.environ |= {
        "TORCHELASTIC_RUN_ID": "forked",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": str(order.num_ranks),
        "LOCAL_WORLD_SIZE": str(order.num_ranks),
    }
    sys.exit(_wait_for({_fork(order.command, rank) for rank in range(order.num_ranks)}))


def _run(command: list[str]) -> NoReturn:
    """Run the script in this process, which ends as the script does."""
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")
    sys.exit(0)


def _fork(command: list[str], rank: int) -> int:
    """Fork a rank and return its process."""
    if pid := os.fork():
        return pid
    status = 1
    try:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        _run(command)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else ended.code is not None
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait_for(pids: set[int]) -> int:
    """Wait for ranks; where one fails end the others, as torchrun does. Return an exit status."""
    status, end = 0, float("inf")
    while pids:
        pid, ended = os.waitpid(-1, os.WNOHANG)
        pids.discard(pid)
        if pid and ended and not status:
            status, end = 1, time.monotonic() + PATIENCE
            for other in pids:
                os.kill(other, signal.SIGTERM)
        if time.monotonic() > end:
            for other in pids:
                os.kill(other, signal.SIGKILL)
        if not pid:
            time.sleep(0.005)
    return status


def _free_port() -> int:
    """Return a free port below those that the system gives to others."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError("no port is free")
