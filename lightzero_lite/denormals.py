"""Numbers below 1.2e-38, on which a CPU computes up to a hundred times slower, taken as zero.

Weights of units that never fire get there: their gradient is the weight decay alone, and Adam makes
of it steps of full size until the weight is as good as zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def denormals_are_zero() -> Iterator[None]:
    """Let this thread read and write denormal numbers as 0 meanwhile, where its CPU can.

    Not for the whole process: an environment's arithmetic is none of our business.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
