"""What one rank does in `test_runs.py`: updates, saved for comparison. Started by torchrun."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from lightzero_lite.config import PolicyConfig
from lightzero_lite.learner import Learner
from lightzero_lite.runtime.distributed import Ranks, joined_ranks
from tests.builders import make_learner, part_of, random_batch, tiny_policy

# SGD, since Adam divides by the size of a gradient and so enlarges the rounding of a tiny one.
JOINED = tiny_policy(optim_type="SGD", learning_rate=0.1, target_update_freq=3)


def long_policy(norm_type: str) -> PolicyConfig:
    """Return the policy of the long run: Adam, priorities, a target copied every 40 updates."""
    return tiny_policy(norm_type=norm_type, target_update_freq=40, use_priority=True)


def learn_own_data(ranks: Ranks, norm_type: str) -> Learner:
    """Update 100 times on data that no other rank has."""
    learner = make_learner(long_policy(norm_type), ranks=ranks)
    learner.distribute()
    for number in range(100):
        learner.update(random_batch(1000 * ranks.rank + number))
    return learner


def learn_a_share(ranks: Ranks) -> Learner:
    """Update 5 times on this rank's share of a batch."""
    learner = make_learner(JOINED, ranks=ranks)
    learner.distribute()
    size = 16 // ranks.num_ranks
    for number in range(5):
        rows = slice(size * ranks.rank, size * (ranks.rank + 1))
        learner.update(part_of(random_batch(number, size=16), rows))
    return learner


def main(folder: Path) -> None:
    """Save every learner's state under its name and rank."""
    torch.set_num_threads(1)
    with joined_ranks() as ranks:
        learners = {norm: learn_own_data(ranks, norm) for norm in ("LN", "BN")}
        learners["share"] = learn_a_share(ranks)
        for name, learner in learners.items():
            torch.save(learner.state_dict(), folder / f"{name}_{ranks.rank}.pth.tar")
        ranks.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
