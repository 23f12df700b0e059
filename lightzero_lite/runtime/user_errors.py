"""How a program ends after a user's mistake: one line, the same exit status on every rank."""

from __future__ import annotations

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
