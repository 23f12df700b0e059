"""Checkpoint files: written whole or not at all, read with torch.load's defaults."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path
from typing import cast

import torch

from lightzero_lite.runtime.lightzero_checkpoint import completed, is_lightzero
from lightzero_lite.types import StateDict, UserError

BEST_NAME = "ckpt_best.pth.tar"
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
)


def iteration_name(train_iter: int) -> str:
    """Return the file name of the checkpoint of a training iteration."""
    return f"iteration_{train_iter}.pth.tar"


def save_checkpoint(state: StateDict, path: Path) -> None:
    """Write a checkpoint under a temporary name, flush it to disk, then rename it.

    Args:
        state: Plain tensors and Python values, so that torch.load needs no trust.
        path: Final name; a file that stands there is replaced in one step.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
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
