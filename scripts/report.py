"""Write one self-contained HTML page about a run.

    python scripts/report.py cartpole_muzero_seed0
    python scripts/report.py cartpole_muzero_seed0 --out report.html

The page holds the options (what differs from the defaults first), the curves, the last table of
each log, an episode of the best checkpoint, versions and files, and where to look next. It loads
nothing from elsewhere, and is readable on dark and light screens. A run that is going on, was
resumed, or lacks a part can be reported too. The episode needs an environment that draws itself
(extra viz).
"""

from __future__ import annotations

import argparse
import base64
import re
from collections.abc import Iterator
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from lightzero_lite.config import Config, config_to_dict
from lightzero_lite.loading import load_subject
from lightzero_lite.runtime.checkpoint import (
    BEST_NAME,
    best_score,
    load_checkpoint,
    newest_checkpoint,
)
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.run_reader import (
    PANELS,
    Run,
    flat,
    last_table,
    read_run,
    run_folders,
)
from lightzero_lite.runtime.user_errors import one_line_errors
from lightzero_lite.types import StateDict, UserError
from lightzero_lite.viewing.film import write_gif
from lightzero_lite.viewing.line_chart import line_chart
from lightzero_lite.viewing.page import card, document, table
from lightzero_lite.viewing.recording import record_episode


class Story(NamedTuple):
    """What a run folder tells."""

    run: Run
    checkpoint: Path | None  # the best one, else the newest; None: none can be read
    state: StateDict  # of that checkpoint; empty without one
    num_starts: int  # of the program: one more than resumes

    def last(self, tag: str) -> float | None:
        """Return the last value of a curve; None where there is no such curve."""
        curve = self.run.curves.get(tag)
        return None if curve is None else float(curve.values[-1])


def read_story(folder: Path) -> Story:
    """Read a run folder.

    Raises:
        UserError: It is none, or holds several, or what it holds cannot be read.
    """
    folders = run_folders([folder])
    if folders != [folder]:
        raise UserError(f"{folder} holds run folders: name one of them, for example {folders[0]}")
    run = read_run(folder)
    if not run.curves:
        raise UserError(f"{folder}: nothing to report: its events files hold no scalars")
    path: Path | None = folder / "ckpt" / BEST_NAME
    if best_score(folder) is None:
        path = newest_checkpoint(folder, say=lambda _: None)
    state = {} if path is None else load_checkpoint(path, "ckpt")
    return Story(run, path, state, len(list((folder / "log" / "serial").glob("events.out.*"))))


def page(story: Story, episode: str) -> str:
    """Return the page.

    Args:
        story: The run.
        episode: HTML of the best episode, or of why there is none.
    """
    options = story.run.options
    name = story.run.folder.resolve().name
    kind = (
        f"{env_name(options)}, {options.get('policy.type', '?')}, seed {options.get('seed', '?')}"
    )
    body = [
        f"<h1>{escape(name)}</h1>",
        f'<p class="soft">{escape(kind)}</p>',
        facts(story),
        f"<h2>Options</h2>{option_tables(options)}",
        f'<h2>Curves</h2><div class="row">{"".join(curves(story))}</div>',
        f'<h2>Last tables</h2><div class="columns">{"".join(tables(story.run.folder))}</div>',
        f"<h2>An episode of the best checkpoint</h2>{episode}",
        f"<h2>Versions and files</h2>{versions(story)}",
        f"<h2>Where to look next</h2>{''.join(next_steps(story))}",
    ]
    return document(name, "".join(body))


def env_name(options: dict[str, Any]) -> str:
    """Return the name of the environment."""
    return str(options.get("env.entry_point") or options.get("env.env_id", "?"))


def facts(story: Story) -> str:
    """Return the few numbers that say how the run went."""
    curves = story.run.curves.values()
    seconds = max(float(curve.seconds[-1]) for curve in curves)
    counters = story.state.get("counters", {})
    found = {
        "last mean return": _number(story.last("evaluator_step/reward_mean")),
        "best mean return": _number(counters.get("best_score")),
        "env steps": f"{max(float(curve.envsteps[-1]) for curve in curves):,.0f}",
        "updates": _number(story.last("evaluator_step/train_iter")),
        "minutes of training": f"{seconds / 60:.1f}",
        "ranks": str(story.state.get("num_ranks", "?")),
        "starts of the program": str(story.num_starts),
    }
    cards = [
        card(f'<div class="fact">{escape(value)}</div>{escape(name)}')
        for name, value in found.items()
    ]
    return f'<div class="row facts">{"".join(cards)}</div>'


def option_tables(options: dict[str, Any]) -> str:
    """Return the options of a run: those that are not the defaults first."""
    defaults = dict(flat(config_to_dict(Config())))
    differing = [
        (key, _option(value), _option(defaults[key]) if key in defaults else "-")
        for key, value in options.items()
        if key not in defaults or defaults[key] != value
    ]
    everything = [(key, _option(value)) for key, value in options.items()]
    return (
        f"<h3>{len(differing)} differ from the defaults</h3>"
        f"{table(('option', 'this run', 'default'), differing)}"
        f"<details><summary>All {len(everything)} options</summary>"
        f"{table(('option', 'this run'), everything)}</details>"
    )


def curves(story: Story) -> Iterator[str]:
    """Yield a card for each curve that the run has."""
    goal = story.run.options.get("env.stop_value")
    for panel in PANELS:
        if panel.tag in story.run.curves:
            curve = story.run.curves[panel.tag]
            chart = line_chart(
                curve.seconds if panel.is_over_seconds else curve.envsteps,
                curve.values,
                title=panel.title,
                x_label="seconds" if panel.is_over_seconds else "env steps",
                y_label=panel.unit,
                goal=goal if panel.tag == "evaluator_step/reward_mean" else None,
            )
            yield card(chart)


def tables(folder: Path) -> Iterator[str]:
    """Yield a card for the last table of each text log."""
    for channel in ("evaluator", "collector", "learner", "buffer"):
        rows = [(name, _shortened(value)) for name, value in last_table(folder, channel)]
        text = table(("field", "value"), rows) if rows else "<p>no table yet</p>"
        yield card(f"<h3>{channel}</h3>{text}")


def episode_film(story: Story) -> str:
    """Play an episode with the checkpoint and return it as HTML, or say why there is none."""
    if story.checkpoint is None:
        return "<p>None: no checkpoint in ckpt/ can be read.</p>"
    try:
        subject = load_subject([f"ckpt={story.checkpoint}", "device=auto"], Ranks())
        recording = record_episode(subject.config, subject.predictor)
    except UserError as reason:
        return f"<p>None: {escape(str(reason))}</p>"
    film = BytesIO()
    write_gif(recording, film)
    data = base64.b64encode(film.getvalue()).decode()
    text = (
        f"{story.checkpoint.name}: return {recording.episode_return:g} in "
        f"{len(recording.moments)} steps. Beside the environment: the root value, what the network "
        "said before the search, and the visits of each action; the action chosen is orange."
    )
    return f'<p>{escape(text)}</p><img alt="an episode" src="data:image/gif;base64,{data}" />'


def versions(story: Story) -> str:
    """Return the versions that the checkpoint names, and the files of ckpt/."""
    found = [(name, str(value)) for name, value in story.state.get("versions", {}).items()]
    checkpoints = sorted((story.run.folder / "ckpt").glob("*.pth.tar"))
    files = [(path.name, f"{path.stat().st_size / 1e6:.2f} MB") for path in checkpoints]
    cards = card(table(("package", "version"), found)), card(table(("checkpoint", "size"), files))
    return f'<div class="row">{"".join(cards)}</div>'


def next_steps(story: Story) -> Iterator[str]:
    """Yield what the numbers say, and the commands that look deeper."""
    yield f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in findings(story))}</ul>"
    folder, path = story.run.folder, story.checkpoint
    commands = [f"tensorboard --logdir {folder}", f"python scripts/plot.py {folder}"]
    if path is not None:
        commands += [
            f"python scripts/evaluate.py ckpt={path} env.n_evaluator_episode=100 seed=1",
            f"python scripts/watch.py ckpt={path} step=0 tree=tree.png",
        ]
    yield f"<pre>{escape(chr(10).join(commands))}</pre>"
    yield "<p>docs/run_folder.md explains every field, docs/algorithm.md every formula.</p>"


def findings(story: Story) -> Iterator[str]:
    """Yield what stands out in the numbers."""
    goal, last = story.run.options.get("env.stop_value"), story.last("evaluator_step/reward_mean")
    best = story.state.get("counters", {}).get("best_score")
    if goal is not None and last is not None:
        verdict = "was reached" if last >= goal else "was not reached by the last evaluation"
        yield f"The goal env.stop_value={goal:g} {verdict}."
    if best is not None and last is not None and best - last > 0.1 * abs(best):
        yield (
            f"The last evaluation ({last:g}) is well below the best ({best:g}): use ckpt_best, and "
            "train other seeds (-m seed=0,1,2) before changing options."
        )
    clipped = story.last("learner_step/clipped_target_avg")
    if clipped:
        yield (
            f"{clipped:.1%} of the last targets lay outside their support: raise "
            "policy.model.value_support_scale (or reward_support_scale)."
        )
    if story.num_starts > 1:
        yield f"The run was resumed: {story.num_starts} starts; times count training only."


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.4g}" if value % 1 else f"{value:,.0f}"


def _shortened(text: str) -> str:
    """Return a table's number with at most six digits, and other texts as they are."""
    return f"{float(text):.6g}" if re.fullmatch(r"-?\d+\.\d+", text) else text


def _option(value: object) -> str:
    return "null" if value is None else str(value)


def main() -> None:
    """Report the run that the command line names; exit 2 where it cannot be done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a run folder")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="(report.html)")
    arguments = parser.parse_args()
    with one_line_errors(Ranks()):
        story = read_story(arguments.folder)
        text = page(story, episode_film(story))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text, encoding="utf-8")
    print(f"{arguments.out} ({len(text) / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
