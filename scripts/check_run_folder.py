"""Check that a finished run left the folder that docs/run_folder.md describes.

    python scripts/check_run_folder.py cartpole_muzero_seed0 --solved 475

Prints one line a problem and exits 1, or says what was checked. A run that was resumed may have
several events files, need not begin at iteration 0, and may owe its best score to evaluations that
its logs no longer hold. It reads the folder as a stranger would: nothing here comes from
lightzero_lite.
"""

from __future__ import annotations

import argparse
import ast
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

COLLECTOR_FIELDS = (
    "episode_count",
    "envstep_count",
    "train_sample_count",
    "avg_envstep_per_episode",
    "avg_sample_per_episode",
    "avg_envstep_per_sec",
    "avg_train_sample_per_sec",
    "avg_episode_per_sec",
    "collect_time",
    "reward_mean",
    "reward_std",
    "each_reward",
    "reward_max",
    "reward_min",
    "total_envstep_count",
    "total_train_sample_count",
    "total_episode_count",
    "total_duration",
)
EVALUATOR_FIELDS = (
    "train_iter",
    "ckpt_name",
    "episode_count",
    "envstep_count",
    "evaluate_time",
    "avg_envstep_per_episode",
    "avg_envstep_per_sec",
    "avg_time_per_episode",
    "reward_mean",
    "reward_std",
    "each_reward",
    "reward_max",
    "reward_min",
)
BUFFER_FIELDS = ("current_have", "episode_count", "pushed_in", "removed", "sampled_out")
LEARNER_FIELDS = ("cur_lr_avg", "total_loss_avg")
CHECKPOINT_KEYS = ("model", "target_model", "optimizer", "last_iter", "last_step", "saved_at")
BEST = "ckpt_best.pth.tar"
HPARAMS_START = "_hparams_/session_start_info"
CHANNELS = ("buffer", "collector", "evaluator", "learner")
EPISODE_LINE = re.compile(
    r"\[INFO\]: \[EVALUATOR\]env \d+ completes an episode, "
    r"final reward: [-+.\deinf]+, current episode: \d+$",
    re.M,
)


def problems(folder: Path, *, solved: float | None = None) -> Iterator[str]:
    """Yield one line for each way in which a run folder is not as documented.

    Args:
        folder: A run that has ended.
        solved: The mean return that an evaluation must have reached; None: any.
    """
    configs, unreadable = _configs(folder)
    yield from unreadable
    is_resumed = any(config["resume"] is not None for config in configs)
    yield from _tree_problems(folder, is_resumed=is_resumed)
    paths = {name: folder / "log" / name / f"{name}_logger.txt" for name in CHANNELS}
    texts = {name: path.read_text() for name, path in paths.items() if path.is_file()}
    for name, fields in (
        ("buffer", BUFFER_FIELDS),
        ("collector", COLLECTOR_FIELDS),
        ("evaluator", EVALUATOR_FIELDS),
    ):
        yield from _table_problems(name, row_tables(texts.get(name, "")), fields)
    learner = texts.get("learner", "")
    yield from _table_problems("learner", grid_tables(learner), LEARNER_FIELDS)
    if "MuZeroModelMLP(\n  (representation_network)" not in learner:
        yield "learner: the network is not printed"
    if not EPISODE_LINE.search(texts.get("evaluator", "")):
        yield "evaluator: no line of a finished episode"
    yield from _event_problems(folder)
    tables = row_tables(texts.get("evaluator", ""))
    scores = [float(table["reward_mean"]) for table in tables if "reward_mean" in table]
    states, broken = _checkpoints(folder)
    yield from broken
    if states and scores:
        yield from _score_problems(states, max(scores), solved, is_resumed=is_resumed)


def row_tables(text: str) -> list[dict[str, str]]:
    """Return the tables of a log that have one field a row."""
    blocks = re.findall(r"^\| Name +\| Value +\|\n\|[-|]+\|\n((?:\|.*\|\n)+)", text, re.M)
    return [dict(map(_cells, block.splitlines())) for block in blocks]


def grid_tables(text: str) -> list[dict[str, str]]:
    """Return the tables of a log that have one field a column."""
    blocks = re.findall(r"Grid table:\n(\|.*)\n\|[-|]+\|\n(\|.*)\n", text, re.M)
    return [
        dict(zip(_cells(names)[1:], _cells(values)[1:], strict=True)) for names, values in blocks
    ]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _tree_problems(folder: Path, *, is_resumed: bool) -> Iterator[str]:
    """Compare the files, and the folders, with the documented tree."""
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    folders = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_dir()}
    first = "ckpt/iteration_0.pth.tar"
    wanted = {"ckpt/ckpt_best.pth.tar", "total_config.py", "formatted_total_config.py"}
    wanted |= set() if is_resumed else {first}
    wanted |= {f"log/{name}/{name}_logger.txt" for name in CHANNELS}
    iterations = {name for name in found if re.fullmatch(r"ckpt/iteration_\d+\.pth\.tar", name)}
    buffers = {n for n in found if re.fullmatch(r"ckpt/replay_buffer_\d+_\d+\.pth\.tar", n)}
    events = {name for name in found if re.fullmatch(r"log/serial/events\.out\.tfevents\..+", name)}
    yield from (f"missing: {name}" for name in sorted(wanted - found))
    traces = {n for n in found if re.fullmatch(r"log/profile/rank\d+\.pt\.trace\.json\.gz", n)}
    known = wanted | iterations | buffers | events | traces
    yield from (f"unexpected: {name}" for name in sorted(found - known))
    usual = {"ckpt", "log", "log/serial", *(f"log/{name}" for name in CHANNELS)}
    extra = folders - usual - ({"log/profile"} if traces else set())
    yield from (f"unexpected folder: {name}" for name in sorted(extra))
    if not events or (len(events) > 1 and not is_resumed):
        yield f"log/serial holds {len(events)} events files instead of one"


def _table_problems(
    channel: str, tables: list[dict[str, str]], fields: tuple[str, ...]
) -> Iterator[str]:
    """Check that every table has every field, and that its values can be read back."""
    if not tables:
        yield f"{channel}: no table"
    for number, table in enumerate(tables, start=1):
        for name in fields:
            if name not in table:
                yield f"{channel}: table {number} lacks {name}"
            elif name != "ckpt_name" and not _is_number_or_list(table[name]):
                yield f"{channel}: table {number} has {name} = {table[name]}"


def _is_number_or_list(text: str) -> bool:
    try:
        return isinstance(ast.literal_eval(text), int | float | list)
    except (ValueError, SyntaxError):
        return False


def _event_problems(folder: Path) -> Iterator[str]:
    """Read TensorBoard's files with TensorBoard's reader: all channels, no step twice or back."""
    steps, has_hyperparameters = dict[str, list[int]](), False
    # Named by the time of their start, so that this is the order in which they were written.
    for path in sorted((folder / "log" / "serial").glob("events.out.tfevents.*")):
        reader = EventAccumulator(str(path), size_guidance={"scalars": 0})
        reader.Reload()
        has_hyperparameters |= HPARAMS_START in reader.summary_metadata
        for tag in reader.Tags()["scalars"]:
            steps.setdefault(tag, []).extend(event.step for event in reader.Scalars(tag))
    if not has_hyperparameters:
        yield "events: no hyperparameters"
    channels = (*CHANNELS, "cycle")
    for axis in (f"{name}_{counter}/" for name in channels for counter in ("iter", "step")):
        if not any(tag.startswith(axis) for tag in steps):
            yield f"events: no tag {axis}*"
    for tag, seen in steps.items():
        if seen != sorted(set(seen)):
            yield f"events: the steps of {tag} do not rise"


def _configs(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Run both configuration files without any package; return what they say, and problems."""
    configs, found = [], []
    for name in ("total_config.py", "formatted_total_config.py"):
        if not (folder / name).is_file():
            continue
        command = [sys.executable, "-I", "-S", str(folder / name)]
        if subprocess.run(command, capture_output=True, check=False, timeout=60).returncode:
            found.append(f"{name} does not run in a bare Python")
            continue
        configs.append(runpy.run_path(str(folder / name)).get("exp_config"))
    good = [config for config in configs if isinstance(config, dict) and "resume" in config]
    if len(configs) == 2 and (configs[0] != configs[1] or len(good) < 2):
        found.append("total_config.py and formatted_total_config.py differ")
    return good, found


def _checkpoints(folder: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Load every checkpoint with torch.load's defaults; return the good ones, and problems."""
    states, found = dict[str, dict[str, Any]](), list[str]()
    for path in sorted((folder / "ckpt").glob("[ci]*.pth.tar")):
        try:
            state = torch.load(path)
        except Exception as error:  # whatever a broken file raises is the finding
            found.append(f"{path.name} does not load: {type(error).__name__}")
            continue
        missing = [key for key in CHECKPOINT_KEYS if key not in state]
        if missing:
            found.append(f"{path.name} lacks {', '.join(missing)}")
            continue
        name = f"iteration_{state['last_iter']}.pth.tar"
        if path.name not in (name, BEST):
            found.append(f"{path.name} holds {name}")
        states[path.name] = state
    return states, found


def _score_problems(
    states: dict[str, dict[str, Any]], logged: float, solved: float | None, *, is_resumed: bool
) -> Iterator[str]:
    """Compare the best score of the newest checkpoint with the log and with ckpt_best."""
    newest = max(states.values(), key=lambda state: state["saved_at"])
    best = newest["counters"]["best_score"]
    if best < logged or (best > logged and not is_resumed):
        yield f"the last checkpoint's best score is {best}, but the log's is {logged}"
    if BEST in states and (own := states[BEST]["counters"]["best_score"]) != best:
        yield f"the last checkpoint's best score is {best}, but {BEST} has {own}"
    if solved is not None and best < solved:
        yield f"the best mean return is {best}, below {solved}"


def main() -> int:
    """Print the problems of the run folder that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--solved", type=float, help="mean return that must have been reached")
    arguments = parser.parse_args()
    found = list(problems(arguments.folder, solved=arguments.solved))
    for problem in found:
        print(f"{arguments.folder}: {problem}", file=sys.stderr)
    if not found:
        print(f"{arguments.folder}: tree, logs, events, configuration, checkpoints as documented")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
