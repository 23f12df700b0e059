"""What one rank does in `test_shares.py`: a whole run, noting what it played and sampled."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lightzero_lite.envs.vector import VectorEnv
from lightzero_lite.runtime.distributed import joined_ranks
from lightzero_lite.train import build_trainer


def seeds_of(envs: VectorEnv) -> list[list[int]]:
    """Return the reset seeds of each environment, in order."""
    return [env.unwrapped.seeds for env in envs.envs]


def main(folder: Path, overrides: list[str]) -> None:
    """Train, and write the sizes of all batches and the seeds of all episodes."""
    with joined_ranks() as ranks:
        trainer = build_trainer(overrides, ranks)
        sizes: list[int] = []
        sample = trainer.buffer.sample

        def noted_sample(batch_size: int, *arguments: Any, **options: Any) -> Any:
            batch = sample(batch_size, *arguments, **options)
            sizes.append(len(batch.actions))
            return batch

        trainer.buffer.sample = noted_sample  # type: ignore[method-assign]
        trainer.run()
        found = {
            "sizes": sizes,
            "collected": seeds_of(trainer.collector.envs),
            "evaluated": seeds_of(trainer.evaluator.envs),
        }
        (folder / f"rank_{ranks.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
