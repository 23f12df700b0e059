"""What the process that tests fork runs from has ready: all imports, and the compiled kernels.

Imported by Python's fork server alone. Nothing here computes a gradient, since a process that did
cannot be forked and go on learning.
"""

from __future__ import annotations

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

import numpy as np
import torch

from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.train import build_trainer
from tests import distributed_worker  # noqa: F401 - a script of which runs are forked
from tests.launch import COUNTER, TINY

torch.set_num_threads(1)
_trainer = build_trainer(
    [*TINY, f"env.env_id={COUNTER}", "policy.use_priority=true", "policy.n_episode=1"], Ranks()
)
_trainer._collect()
_trainer.buffer.sample(8, np.random.default_rng(0))
_trainer.learner.state_dict()  # makes the optimizer, which imports a second's worth
