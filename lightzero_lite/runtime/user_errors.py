"""How a program ends after a user's mistake, or when nobody reads on: without a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.types import UserError

USER_ERROR_EXIT = 2


@contextmanager
def one_line_errors(ranks: Ranks) -> Iterator[None]:
    """Turn a UserError, which must come on all ranks, into one line and the exit status 2."""
    try:
        yield
    except UserError as error:
        if ranks.is_main:
            print(f"error: {error}", file=sys.stderr, flush=True)
        # No rank leaves before the line is out: torchrun ends all when the first one goes.
        ranks.barrier()
        sys.exit(USER_ERROR_EXIT)


@contextmanager
def quiet_broken_pipe() -> Iterator[None]:
    """Let a reader of standard output who has seen enough (`| head`) leave; all else goes on."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered would fail once more when Python flushes it at the end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
