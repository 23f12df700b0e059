"""Checkpoint files: written whole or not at all, read with torch.load's defaults.

Replay buffers have files of their own, so that old ones can go while iteration checkpoints stay. A
checkpoint names its buffers' file, which is written before it and whose name no other state has.
"""

from __future__ import annotations

import os
import pickle
import re
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from lightzero_lite.runtime.lightzero_checkpoint import completed, is_lightzero
from lightzero_lite.types import StateDict, UserError

BEST_NAME = "ckpt_best.pth.tar"
STATISTICS = "observation_statistics"  # what observations are normalised by; None: by nothing
KEYS = ("model", "target_model", "optimizer", "last_iter", "last_step", "counters")
# What torch.load raises on bytes that are no checkpoint, whole or in part.
_UNREADABLE = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    pickle.UnpicklingError,
    struct.error,
    zipfile.BadZipFile,
)


def iteration_name(train_iter: int) -> str:
    """Return the file name of the checkpoint of a training iteration."""
    return f"iteration_{train_iter}.pth.tar"


def replay_buffer_name(train_iter: int, envstep: int) -> str:
    """Return the file name of the replay buffers of a state of the run."""
    return f"replay_buffer_{train_iter}_{envstep}.pth.tar"


def save_checkpoint(state: StateDict, path: Path) -> None:
    """Write a checkpoint under a temporary name, flush it to disk, then rename it.

    Args:
        state: Plain tensors and Python values, so that torch.load needs no trust.
        path: Final name; a file that stands there is replaced in one step.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:  # torch hides what the system said in the second
        temporary.unlink(missing_ok=True)
        raise OSError(f"{path} cannot be written; the files before it are as they were") from error
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load_checkpoint(path: Path, key: str = "resume") -> StateDict:
    """Read a checkpoint of ours, or one of LightZero's completed to ours, onto the CPU.

    Args:
        path: The file.
        key: The option that named it, for messages.

    Raises:
        UserError: The file is missing, unreadable, cut short or no checkpoint.
    """
    if not path.is_file():
        raise UserError(f"{key}={path}: there is no such file")
    try:
        state = torch.load(path, map_location="cpu")
    except _UNREADABLE:
        size = path.stat().st_size
        raise UserError(
            f"{key}={path}: not a readable checkpoint ({size} bytes): name another file of ckpt/"
        ) from None
    if is_lightzero(state):
        state = completed(state)
    missing = [name for name in KEYS if not isinstance(state, dict) or name not in state]
    if missing:
        raise UserError(f"{key}={path}: no MuZero checkpoint: it lacks {', '.join(missing)}")
    return cast(StateDict, state)


def best_score(folder: Path) -> float | None:
    """Return the score of a run folder's ckpt_best; None where it is missing or not readable."""
    try:
        score = load_checkpoint(folder / "ckpt" / BEST_NAME)["counters"]["best_score"]
    except UserError:
        return None
    return None if score is None else float(score)


def newest_checkpoint(
    folder: Path, *, say: Callable[[str], None], is_exact: bool = False
) -> Path | None:
    """Return the checkpoint of a run folder that was written last and is good, None without one.

    Not the one of most updates: a run that was set back leaves those of the way that it gave up.

    Args:
        folder: The run folder.
        say: Told, in one line each, of the files that are no good.
        is_exact: Prefer any iteration checkpoint, which may have replay buffers, to ckpt_best.
    """
    best = folder / "ckpt" / BEST_NAME
    ages = {path: (path != best or not is_exact, saved_at(path)) for path in checkpoints(folder)}
    newest_first = sorted(ages, key=lambda path: ages[path], reverse=True)
    return next((path for path in newest_first if _load_or_say(path, say)), None)


def checkpoints(folder: Path) -> list[Path]:
    """Return ckpt_best and the iteration checkpoints of a run folder, in no order."""
    name = re.compile(rf"{re.escape(BEST_NAME)}|iteration_\d+\.pth\.tar")
    return [path for path in (folder / "ckpt").glob("*.pth.tar") if name.fullmatch(path.name)]


def saved_at(path: Path) -> float:
    """Return when a checkpoint was written, in seconds since 1970; the file's date if it is mute.

    A copied file keeps what is written in it, while its date may be new.
    """
    try:
        return float(torch.load(path, map_location="cpu", mmap=True)["saved_at"])
    except _UNREADABLE:
        return path.stat().st_mtime


def _load_or_say(path: Path, say: Callable[[str], None]) -> StateDict | None:
    """Read a checkpoint; say why it cannot be read."""
    try:
        return load_checkpoint(path)
    except UserError as error:
        reason = str(error).removeprefix(f"resume={path}: ").partition(": name another")[0]
        say(f"resume=auto: passing over {path}: {reason}")
        return None


def save_replay_buffers(states: Sequence[StateDict], path: Path) -> None:
    """Write the states of all ranks' replay buffers, in rank order, as a checkpoint is written."""
    save_checkpoint({"replay_buffers": [_convert(state, _tensor) for state in states]}, path)


def load_replay_buffer(path: Path, rank: int, num_ranks: int) -> StateDict | None:
    """Return a rank's state; None where the file is not readable or of another number of ranks."""
    try:
        _check_sums(path)
        # Mapped: a rank reads its own part only.
        states = torch.load(path, map_location="cpu", mmap=True)["replay_buffers"]
    except _UNREADABLE:
        return None
    return None if len(states) != num_ranks else cast(StateDict, _convert(states[rank], _array))


def prune_replay_buffers(folder: Path, kept: str) -> None:
    """Delete all files of replay buffers but one."""
    for path in folder.glob("replay_buffer_*.pth.tar"):
        if path.name != kept:
            path.unlink()


def _convert(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Apply a function to what nested dictionaries hold."""
    if isinstance(value, dict):
        return {key: _convert(one, leaf) for key, one in value.items()}
    return leaf(value)


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _array(value: Any) -> Any:
    return value.numpy() if isinstance(value, torch.Tensor) else value


def _check_sums(path: Path) -> None:
    """Raise ValueError where the bytes are not those that were written; torch does not look."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as file:
            if damaged := file.testzip():
                raise ValueError(damaged)


def check_same_shapes(
    model: dict[str, torch.Tensor], path: Path, state: StateDict, key: str = "resume"
) -> None:
    """Check that a checkpoint fits a network.

    Args:
        model: The network's state dict.
        path: The checkpoint's file, for messages.
        state: The checkpoint.
        key: The option that named it, for messages.

    Raises:
        UserError: A parameter is missing, unknown or of another shape; the line names the first.
    """
    saved = state["model"]
    for name in sorted(model.keys() | saved.keys()):
        ours, theirs = model.get(name), saved.get(name)
        if ours is None or theirs is None or ours.shape != theirs.shape:
            sizes = " against ".join(
                "nothing" if tensor is None else "x".join(map(str, tensor.shape)) or "a scalar"
                for tensor in (theirs, ours)
            )
            raise UserError(
                f"{key}={path}: the checkpoint is of another network: {name} is {sizes} here: "
                "give the env and policy.model options that it was trained with"
            )


def check_same_normalization(
    is_enabled: bool, path: Path, state: StateDict, key: str = "resume"
) -> None:
    """Check that a checkpoint's networks saw observations as they are seen now.

    Args:
        is_enabled: The option env.normalize_observation.
        path: The checkpoint's file, for messages.
        state: The checkpoint.
        key: The option that named it, for messages.

    Raises:
        UserError: They were normalised and are not now, or the reverse.
    """
    was_enabled = state.get(STATISTICS) is not None
    if was_enabled != is_enabled:
        wanted = str(was_enabled).lower()
        raise UserError(
            f"{key}={path}: its networks saw {'' if was_enabled else 'no '}normalised "
            f"observations: set env.normalize_observation={wanted}"
        )
