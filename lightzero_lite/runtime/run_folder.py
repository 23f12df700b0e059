"""Where a run writes: its name, and the rule that no two runs share a folder."""

from __future__ import annotations

import re
from pathlib import Path

from lightzero_lite.config import Config
from lightzero_lite.types import UserError

AUTO = "auto"  # resume=auto: the newest good checkpoint of the folder, if there is one
_OWN_NAMES = ("ckpt", "log", "total_config.py", "formatted_total_config.py")


def run_folder(config: Config) -> Path:
    """Return the run folder: exp_name, else the resumed run's, else one named by the run."""
    if config.exp_name is not None:
        return Path(config.exp_name)
    if config.resume not in (None, AUTO):
        path = Path(config.resume)
        if path.resolve().parent.name == "ckpt":
            return path.parent.parent
    env = re.sub(r"(-v\d+)?$", "", config.env.name, count=1)
    slug = re.sub(r"\W+", "_", env.lower()).strip("_")
    return Path(f"{slug}_{config.policy.type}_seed{config.seed}")


def check_run_folder(folder: Path, resume: str | None) -> None:
    """Check, before anything is written, that the folder is free or is the resumed run's own.

    Raises:
        UserError: The folder holds another run, or its name is taken by a file.
    """
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise UserError(f"exp_name={folder}: {path} is a file: choose another name")
    if resume == AUTO:  # the folder may hold a run that ended before its first checkpoint
        return
    if resume is not None and Path(resume).resolve().parent.parent == folder.resolve():
        return
    taken = [name for name in _OWN_NAMES if (folder / name).exists()]
    if taken:
        raise UserError(
            f"exp_name={folder} already holds a run: choose another exp_name, "
            f"or continue it with resume={folder}/ckpt/ckpt_best.pth.tar"
        )


def make_run_folder(folder: Path) -> None:
    """Make the folder and its ckpt/, and clear what a killed run left half-written."""
    checkpoints = folder / "ckpt"
    checkpoints.mkdir(parents=True, exist_ok=True)
    for leftover in checkpoints.glob(".*.tmp"):
        leftover.unlink()
