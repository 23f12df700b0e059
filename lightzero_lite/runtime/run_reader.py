"""Reading a run folder back: its options, its curves, the last table of each text log."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lightzero_lite.types import UserError

FloatArray = NDArray[np.float64]
NOT_OPTIONS = ("seed", "exp_name", "resume", "device")  # what runs of one curve may differ in


class Panel(NamedTuple):
    """One small picture."""

    title: str
    tag: str  # of TensorBoard, over env steps
    unit: str  # of the vertical axis
    is_over_seconds: bool = False


PANELS = (
    Panel("Return of the greedy agent", "evaluator_step/reward_mean", "mean return"),
    Panel("Return over time", "evaluator_step/reward_mean", "mean return", True),
    Panel("Return while collecting", "collector_step/reward_mean", "mean return"),
    Panel("Value loss", "learner_step/value_loss_avg", "nats"),
    Panel("Policy loss", "learner_step/policy_loss_avg", "nats"),
    Panel("Reward loss", "learner_step/reward_loss_avg", "nats"),
    Panel("Consistency loss", "learner_step/consistency_loss_avg", "- cosine, summed"),
    Panel("Replay buffers", "buffer_step/current_have", "transitions"),
    Panel("Collecting speed", "collector_step/avg_envstep_per_sec", "env steps / s"),
)


class Curve(NamedTuple):
    """A scalar of one run; both counters rise."""

    envsteps: FloatArray  # [N]
    seconds: FloatArray  # [N], time spent training, over all resumes
    values: FloatArray  # [N]


@dataclass(frozen=True)
class Run:
    """One run folder."""

    folder: Path
    options: dict[str, Any]  # full key -> value
    curves: dict[str, Curve]  # tag -> curve

    @property
    def recipe(self) -> tuple[tuple[str, str], ...]:
        """The options that runs of one curve share."""
        return tuple((k, repr(v)) for k, v in self.options.items() if k not in NOT_OPTIONS)


def run_folders(paths: Sequence[Path]) -> list[Path]:
    """Return the run folders among paths and below them.

    Raises:
        UserError: A path holds none.
    """
    folders = []
    for path in paths:
        found = sorted({events.parents[2] for events in path.rglob("log/serial/events.out.*")})
        if not found:
            raise UserError(f"{path}: no run folder: there is no log/serial/events.out.tfevents.*")
        folders += found
    return list(dict.fromkeys(folders))


def read_run(folder: Path) -> Run:
    """Read a run folder: its options, and the scalars over env steps from its events files."""
    points: dict[str, list[tuple[float, float, float]]] = {}
    before = 0.0  # seconds of the program starts before this one; the pauses between do not count
    for path in sorted((folder / "log" / "serial").glob("events.out.tfevents.*")):
        reader = EventAccumulator(str(path), size_guidance={"scalars": 0})
        reader.Reload()
        latest = before
        for tag in reader.Tags()["scalars"]:
            start = reader.FirstEventTimestamp()
            for event in reader.Scalars(tag) if tag.partition("/")[0].endswith("_step") else ():
                seconds = before + event.wall_time - start
                points.setdefault(tag, []).append((event.step, seconds, event.value))
                latest = max(latest, seconds)
        before = latest
    curves = {tag: Curve(*np.array(rows, np.float64).T) for tag, rows in points.items()}
    return Run(folder, read_options(folder), curves)


def read_options(folder: Path) -> dict[str, Any]:
    """Return the options of total_config.py under their full keys; none where it is missing.

    Raises:
        UserError: The file is not what a run writes.
    """
    path = folder / "total_config.py"
    text = path.read_text(encoding="utf-8") if path.is_file() else "exp_config = {}"
    try:
        return dict(flat(ast.literal_eval(text.partition("=")[2].strip())))
    except (SyntaxError, ValueError, AttributeError):
        raise UserError(f"{path}: cannot be read: it is not as a run wrote it") from None


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what nested dictionaries hold under full keys, for example policy.batch_size."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def last_table(folder: Path, channel: str) -> list[tuple[str, str]]:
    """Return the fields and values of a text log's last table; nothing where it has none.

    Args:
        folder: The run folder.
        channel: buffer, collector, evaluator or learner.
    """
    path = folder / "log" / channel / f"{channel}_logger.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    while lines and not _is_row(lines[-1]):  # the log may end in the middle of a line
        lines.pop()
    rows = [row[1:-1].split("|") for row in takewhile(_is_row, reversed(lines))][::-1]
    cells = [[cell.strip() for cell in row] for row in rows]
    if len(cells) < 3:  # names, a rule, and values
        return []
    if cells[0] == ["Name", "Value"]:  # a field a row
        return [(row[0], row[1]) for row in cells[2:] if len(row) == 2]
    return list(zip(cells[0][1:], cells[-1][1:], strict=False))  # a field a column


def _is_row(line: str) -> bool:
    return line.startswith("|") and line.endswith("|")
