"""The log tree of a run: four text files and one TensorBoard events file, by rank 0 alone."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard.writer import FileWriter

from lightzero_lite.runtime import summaries

CHANNELS = ("buffer", "collector", "evaluator", "learner")
START_CHANNELS = ("run", "_hparams_")  # written once a start, over envstep
HPARAMS_METRICS = ("evaluator_step/reward_mean", "evaluator_step/best_reward_mean")
Fields = Mapping[str, float | int | str | list[float]]


class NullLog:
    """The log of the ranks that write nothing."""

    def line(self, channel: str, text: str) -> None:
        """Write a line to a channel's text file."""

    def table(self, channel: str, fields: Fields) -> None:
        """Write fields to a channel's text file, one a row, under their own names."""

    def grid(self, channel: str, fields: Fields) -> None:
        """Write fields to a channel's text file, one a column, as LightZero's learner does."""

    def scalars(self, channel: str, fields: Fields, *, train_iter: int, envstep: int) -> None:
        """Write the numbers among the fields to TensorBoard, over both counters."""

    def histograms(self, values: Mapping[str, np.ndarray], *, train_iter: int) -> None:
        """Write histograms to TensorBoard, under whole tags."""

    def sizes(self) -> dict[str, int]:
        """Return the size of each channel's text file in bytes."""
        return {}

    def close(self) -> None:
        """Flush and close all files."""


class RunLog(NullLog):
    """The log of rank 0.

    Channels are buffer, collector, evaluator and learner. TensorBoard tags are LightZero's:
    `<channel>_iter/<field>` over train_iter and `<channel>_step/<field>` over envstep.
    """

    def __init__(
        self,
        folder: Path,
        *,
        train_iter: int = 0,
        envstep: int = 0,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        """Open the log tree of a run folder, continuing what is there.

        Args:
            folder: The run folder.
            train_iter: Training iteration to go on from; points past it are taken out.
            envstep: The same in env steps.
            sizes: Bytes of each channel's text file to keep; a shorter file is kept whole.
        """
        for channel, size in (sizes or {}).items():
            path = _text_path(folder, channel)
            if path.exists() and path.stat().st_size > size:
                os.truncate(path, size)
        self.folder = folder
        self.texts = {channel: _text_logger(folder, channel) for channel in CHANNELS}
        serial = folder / "log" / "serial"
        serial.mkdir(parents=True, exist_ok=True)
        self.last_steps: dict[str, int] = {}
        for path in sorted(serial.glob("events.out.tfevents.*")):
            self.last_steps |= _drop_later_points(path, train_iter, envstep)
        self.writer = FileWriter(str(serial))
        self.end: Summary | None = None  # what `close` writes, at the last env step
        self.envstep = envstep

    def line(self, channel: str, text: str) -> None:
        """Write a line to a channel's text file."""
        self.texts[channel].info(text)

    def table(self, channel: str, fields: Fields) -> None:
        """Write fields to a channel's text file, one a row, under their own names."""
        self.line(channel, f"{channel} end:\n{table_text(fields)}")

    def grid(self, channel: str, fields: Fields) -> None:
        """Write fields to a channel's text file, one a column, as LightZero's learner does."""
        row = ["Value", *(f"{value:.6f}" for value in fields.values())]
        headers = ["Name", *fields]
        text = tabulate([row], headers=headers, tablefmt="github", disable_numparse=True)
        self.line(channel, f"Grid table:\n{text}")

    def scalars(self, channel: str, fields: Fields, *, train_iter: int, envstep: int) -> None:
        """Write the numbers among the fields to TensorBoard, over both counters."""
        self.envstep = envstep
        for axis, step in (("iter", train_iter), ("step", envstep)):
            points = {
                f"{channel}_{axis}/{name}": value
                for name, value in fields.items()
                if isinstance(value, int | float)
            }
            # A counter may stand still (no update between two collect phases); one point a
            # step keeps every curve a function of its counter.
            new = {tag: v for tag, v in points.items() if step > self.last_steps.get(tag, -1)}
            self.last_steps |= dict.fromkeys(new, step)
            self.writer.add_summary(summaries.scalars(new), step)

    def histograms(self, values: Mapping[str, np.ndarray], *, train_iter: int) -> None:
        """Write histograms to TensorBoard, under whole tags."""
        self.writer.add_summary(summaries.histograms(values), train_iter)

    def start(
        self, settings: Mapping[str, Any], versions: Mapping[str, str], *, envstep: int
    ) -> None:
        """Write what runs to TensorBoard.

        Args:
            settings: The options as nested dictionaries of plain Python values.
            versions: What the run runs with.
            envstep: Env steps of the run so far.
        """
        *records, self.end = summaries.hyperparameters(settings, HPARAMS_METRICS)
        records.append(summaries.table_text("run/versions", versions))
        records.append(summaries.table_text("run/config", summaries.flattened(settings)))
        for record in records:
            self.writer.add_summary(record, envstep)

    def sizes(self) -> dict[str, int]:
        """Return the size of each channel's text file in bytes."""
        return {channel: _text_path(self.folder, channel).stat().st_size for channel in CHANNELS}

    def close(self) -> None:
        """Flush and close all files."""
        if self.end is not None:
            self.writer.add_summary(self.end, self.envstep)
        self.writer.close()
        for logger in self.texts.values():
            for handler in list(logger.handlers):
                logger.removeHandler(handler)
                handler.close()


def table_text(fields: Fields) -> str:
    """Return fields as a table, one a row."""
    # Numbers as Python writes them: a table that rounds cannot be compared.
    rows = [(name, str(value)) for name, value in fields.items()]
    return tabulate(rows, headers=["Name", "Value"], tablefmt="github", disable_numparse=True)


def _text_path(folder: Path, channel: str) -> Path:
    return folder / "log" / channel / f"{channel}_logger.txt"


def _text_logger(folder: Path, channel: str) -> logging.Logger:
    """Open log/<channel>/<channel>_logger.txt for appending."""
    path = _text_path(folder, channel)
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("[%(asctime)s][%(levelname)s]: %(message)s"))
    logger = logging.Logger(f"{folder}/{channel}", logging.INFO)  # its own: no root, no console
    logger.addHandler(handler)
    return logger


def _last_kept(tag: str, train_iter: int, envstep: int) -> int:
    """Return the last step of a tag that is before a start of the program."""
    channel = tag.partition("/")[0]
    if channel in START_CHANNELS:
        return envstep - 1  # this start says anew what runs
    return train_iter if channel.endswith("_iter") else envstep


def _drop_later_points(path: Path, train_iter: int, envstep: int) -> dict[str, int]:
    """Rewrite an events file without the points past a checkpoint; return the last step a tag.

    TensorBoard's own purge_step knows one counter only, while these tags run over two.
    """
    kept: list[Event] = []
    last_steps: dict[str, int] = {}
    num_events = 0
    for event in LegacyEventFileLoader(str(path)).Load():
        num_events += 1
        tags = [value.tag for value in event.summary.value]
        if any(event.step > _last_kept(tag, train_iter, envstep) for tag in tags):
            continue
        kept.append(event)
        last_steps |= dict.fromkeys(tags, int(event.step))
    if len(kept) < num_events:
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("wb") as file:
            writer = RecordWriter(file)
            for event in kept:
                writer.write(event.SerializeToString())
            writer.flush()
        temporary.replace(path)
    return last_steps
