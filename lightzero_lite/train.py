"""The program: `torchrun --standalone --nproc_per_node=N train.py env=cartpole`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from lightzero_lite.config import check_shares, load_config
from lightzero_lite.runtime.distributed import Ranks, choose_device, joined_ranks
from lightzero_lite.runtime.run_folder import check_run_folder, run_folder
from lightzero_lite.trainer import Trainer
from lightzero_lite.types import UserError

USER_ERROR_EXIT = 2


def main() -> None:
    """Train as the command line says; exit 2 on every rank where it cannot be done."""
    with joined_ranks() as ranks:
        try:
            trainer = build_trainer(sys.argv[1:], ranks)
        except UserError as error:
            if ranks.is_main:
                print(f"error: {error}", file=sys.stderr, flush=True)
            # No rank leaves before the line is out: torchrun ends all when the first one goes.
            ranks.barrier()
            sys.exit(USER_ERROR_EXIT)
        trainer.run()


def build_trainer(overrides: Sequence[str], ranks: Ranks) -> Trainer:
    """Read the command line and build every part, without writing anything.

    Raises:
        UserError: On all ranks, with the first failing rank's line.
    """

    def build() -> Trainer:
        config = load_config(overrides)
        check_shares(config, ranks.num_ranks)
        device = choose_device(config.device, ranks)
        folder = run_folder(config)
        check_run_folder(folder, config.resume)
        config = replace(config, exp_name=str(folder))
        return Trainer(config, folder=folder, ranks=ranks, device=device)

    return ranks.agreed(build)
