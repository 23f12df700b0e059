"""Several runs from one command line: `-m seed=0,1,2`, in Hydra's syntax for sweeps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from lightzero_lite.config import load_config
from lightzero_lite.runtime.run_folder import check_run_folder, run_folder
from lightzero_lite.types import UserError

FLAGS = ("-m", "--multirun")


def expanded(arguments: Sequence[str]) -> list[list[str]]:
    """Return the overrides of each run: one run, or with -m every combination of values.

    The runs of a sweep have folders of their own, named by the values that set them apart.

    Raises:
        UserError: An override cannot be used; no run of the sweep has started then.
    """
    if not set(FLAGS) & set(arguments):
        return [list(arguments)]
    texts = [text for text in arguments if text not in FLAGS]
    try:
        overrides = OverridesParser.create().parse_overrides(texts)
        choices = [_choices(override) for override in overrides]
    except HydraException as error:
        raise UserError(" ".join(str(error).split())) from None
    runs = [_named(list(run), overrides) for run in product(*choices)]
    configs = [load_config(run) for run in runs]
    if len({config.exp_name for config in configs}) < len(configs):
        raise UserError("two runs of the sweep are the same: give each value once")
    for config in configs:
        check_run_folder(run_folder(config), config.resume)
    return runs


def _choices(override: Override) -> list[str]:
    """Return an override for each of its values."""
    if not override.is_sweep_override():
        assert override.input_line is not None
        return [override.input_line]
    if not override.is_discrete_sweep():
        raise UserError(f"{override.input_line}: give the values, for example 0,1,2")
    return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]


def _named(run: list[str], overrides: Sequence[Override]) -> list[str]:
    """Append the values that were swept to the name of a run's folder, where it lacks them."""
    config = load_config(run)
    # Environment, policy and seed are in the name that a run without exp_name has.
    known = {"exp_name"} | ({"env", "policy", "seed"} if config.exp_name is None else set())
    swept = [
        text.partition("=")
        for text, override in zip(run, overrides, strict=True)
        if override.is_sweep_override() and override.key_or_group not in known
    ]
    marks = [f"_{key.rpartition('.')[2]}_{_slug(value)}" for key, _, value in swept]
    others = [text for text in run if not text.startswith("exp_name=")]
    return [*others, f"exp_name={run_folder(config)}{''.join(marks)}"]


def _slug(value: str) -> str:
    return re.sub(r"[^\w.-]+", "-", value).strip("-")
