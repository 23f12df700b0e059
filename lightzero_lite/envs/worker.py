"""The process of one environment: constructs it, then resets and steps it as it is told.

`main` runs in a fresh interpreter that `envs/remote.py` starts, and forks a worker a connection.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

from lightzero_lite.config import EnvConfig
from lightzero_lite.envs.adapter import EnvAdapter
from lightzero_lite.envs.remote import Failure, WorkerStart
from lightzero_lite.types import UserError


def main() -> None:
    """Fork the workers and wait for their ends."""
    start: WorkerStart = pickle.load(sys.stdin.buffer)
    # What a terminal or a scheduler sends to all processes is for the rank to act on.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    for index, handle in enumerate(start.handles):
        if os.fork() == 0:
            # A connection ends only when no process but its own holds it.
            for other in start.handles:
                if other != handle:
                    os.close(other)
            threading.Thread(target=_end_with, args=(start.lifeline,), daemon=True).start()
            _serve(Connection(handle), start.config, index)
            os._exit(0)
    for handle in start.handles:
        os.close(handle)
    for _ in start.handles:
        os.wait()


def _end_with(lifeline: int) -> None:
    """End this process, whatever it is doing, when the rank is gone."""
    os.read(lifeline, 1)
    os._exit(1)


def _serve(connection: Connection, config: EnvConfig, index: int) -> None:
    """Answer until the connection closes or the environment raises."""
    try:
        env = EnvAdapter(config, index)
        connection.send(env.shape)
        while (request := _next(connection)) is not None:
            command, argument = request
            connection.send(env.reset(*argument) if command == "reset" else env.step(argument))
        env.close()
    except Exception as error:  # whatever the environment raises is for the rank to report
        is_users = isinstance(error, UserError)
        text = str(error) if is_users else f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            connection.send(Failure(text, is_users, traceback.format_exc()))


def _next(connection: Connection) -> tuple[str, Any] | None:
    """Return what the rank wants next; None: nothing any more."""
    try:
        request: tuple[str, Any] = connection.recv()
    except (EOFError, OSError):
        return None
    return request
