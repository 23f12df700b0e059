"""The program: `torchrun --standalone --nproc_per_node=N train.py env=cartpole`."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lightzero_lite.config import Config, check_shares, load_config
from lightzero_lite.reference import help_text
from lightzero_lite.runtime.checkpoint import load_checkpoint, newest_checkpoint
from lightzero_lite.runtime.distributed import Ranks, choose_device, joined_ranks
from lightzero_lite.runtime.lightzero_checkpoint import taken_options, with_model_options
from lightzero_lite.runtime.run_folder import AUTO, check_run_folder, run_folder
from lightzero_lite.runtime.signals import StopRequest
from lightzero_lite.runtime.user_errors import one_line_errors, quiet_broken_pipe
from lightzero_lite.sweep import expanded
from lightzero_lite.trainer import Trainer
from lightzero_lite.types import UserError


def main() -> None:
    """Train as the command line says; exit 2 on every rank where it cannot be done."""
    # Else Python ends by looking through all that torch made for garbage: a second, on every rank.
    atexit.register(gc.freeze)
    # Ranks that cannot meet fail alone, each with its line.
    with one_line_errors(Ranks()), joined_ranks() as ranks, StopRequest(ranks) as stop:
        if {"-h", "--help"} & set(sys.argv[1:]):
            if ranks.is_main:
                with quiet_broken_pipe():
                    print(help_text())
            return
        with one_line_errors(ranks):
            runs = ranks.agreed(lambda: _runs(sys.argv[1:], ranks))
        for overrides in runs:
            with one_line_errors(ranks):
                trainer = build_trainer(overrides, ranks, stop)
            trainer.run()
            if trainer.is_stopping:
                break


def _runs(arguments: Sequence[str], ranks: Ranks) -> list[list[str]]:
    """Return the overrides of each run to train, one after the other."""
    runs = expanded(arguments)
    if len(runs) > 1 and ranks.num_ranks > 1:
        raise UserError("-m runs in one process: start it with python train.py")
    return runs


def build_trainer(
    overrides: Sequence[str], ranks: Ranks, stop: StopRequest | None = None
) -> Trainer:
    """Read the command line and build every part, without writing anything.

    Raises:
        UserError: On all ranks, with the first failing rank's line.
    """

    def read() -> Config:
        config = load_config(overrides)
        check_shares(config, ranks.num_ranks)
        folder = run_folder(config)
        check_run_folder(folder, config.resume)
        return replace(config, exp_name=str(folder))

    def build() -> Trainer:
        device = choose_device(config.device, ranks)
        complete = _with_options_of_lightzero(config, ranks)
        return Trainer(complete, folder=folder, ranks=ranks, device=device, stop=stop)

    config = ranks.agreed(read)
    folder = Path(str(config.exp_name))
    if config.resume == AUTO:
        config = replace(config, resume=ranks.from_main(lambda: _newest(folder, config)))
    return ranks.agreed(build)


def _newest(folder: Path, config: Config) -> str | None:
    """Return the checkpoint that resume=auto continues, and say so."""

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    path = newest_checkpoint(folder, say=say, is_exact=config.checkpoint.replay_buffer)
    say(f"resume=auto: {path or f'{folder} has no good checkpoint: a fresh start'}")
    return None if path is None else str(path)


def _with_options_of_lightzero(config: Config, ranks: Ranks) -> Config:
    """Take the networks' options from the checkpoint to resume where LightZero wrote it."""
    if config.resume is None:
        return config
    state = load_checkpoint(Path(config.resume))
    if "config" in state:
        return config
    if Path(config.resume).resolve().parent.parent == Path(config.exp_name or "").resolve():
        raise UserError(f"resume={config.resume} is LightZero's: set exp_name to a new folder")
    config = with_model_options(config, state["model"])
    if ranks.is_main:
        print(f"resume={config.resume} is LightZero's; options taken: {taken_options(config)}")
    return config


if __name__ == "__main__":
    main()
