"""Numbers, histograms, texts and hyperparameters as TensorBoard's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from torch.utils.tensorboard import summary

NUM_BINS = 40


def scalars(points: Mapping[str, float]) -> Summary:
    """Return all points in one record, which costs as much as one point."""
    return Summary(
        value=[Summary.Value(tag=tag, simple_value=value) for tag, value in points.items()]
    )


def histograms(values: Mapping[str, np.ndarray]) -> Summary:
    """Return one histogram a tag, of finite values of any shape, all in one record."""
    return Summary(
        value=[Summary.Value(tag=tag, histo=_histogram(array)) for tag, array in values.items()]
    )


def _histogram(array: np.ndarray) -> HistogramProto:
    flat = array.astype(np.float64).ravel()
    counts, edges = np.histogram(flat, bins=NUM_BINS)
    return HistogramProto(
        min=flat.min(),
        max=flat.max(),
        num=len(flat),
        sum=flat.sum(),
        sum_squares=flat @ flat,
        bucket_limit=edges[1:].tolist(),
        bucket=counts.tolist(),
    )


def table_text(tag: str, fields: Mapping[str, Any]) -> Summary:
    """Return a text that TensorBoard shows as a table, one field a row."""
    rows = "".join(f"| {name} | {value} |\n" for name, value in fields.items())
    markdown = f"| Name | Value |\n|---|---|\n{rows}"
    made: Summary = summary.text(tag, markdown)  # type: ignore[no-untyped-call]
    return made


def hyperparameters(
    settings: Mapping[str, Any], metrics: Sequence[str]
) -> tuple[Summary, Summary, Summary]:
    """Return the records of the hparams plugin: what it compares, a run's start, a run's end.

    Args:
        settings: Options as nested dictionaries of plain Python values.
        metrics: Tags of the scalars whose last values are shown beside them.
    """
    flat = {name: _plain(value) for name, value in flattened(settings).items()}
    experiment, start, end = summary.hparams(flat, dict.fromkeys(metrics, 0.0))  # type: ignore[no-untyped-call]
    return experiment, start, end


def flattened(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested dictionaries as one, under the names of the command line."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _plain(value: Any) -> float | str:
    """Return what the plugin can show: a number, or the text of the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return value if isinstance(value, int | float | str) else str(value)
