"""Random streams as functions of (seed, role, indices).

A stream is named, never carried along: the generator of, say, rank 2's collect phase 7 can be made
again at any time. So a resumed run draws what an undisturbed one would have drawn, and there is no
generator state to save.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Role(IntEnum):
    """What a stream is for; streams of different roles are independent."""

    WEIGHTS = 0
    COLLECT_ENV = 1
    COLLECT_SEARCH = 2
    EVALUATE_ENV = 3
    EVALUATE_SEARCH = 4
    SAMPLE = 5
    MONITOR = 6


def stream(seed: int, role: Role, *indices: int) -> np.random.Generator:
    """Return the generator of a role; distinct indices (rank, phase, ...) are independent."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(role, *indices)))


def integer_seed(seed: int, role: Role, *indices: int) -> int:
    """Return a seed in [0, 2^31) for a library that wants an integer."""
    sequence = np.random.SeedSequence(seed, spawn_key=(role, *indices))
    return int(sequence.generate_state(1)[0] >> 1)
