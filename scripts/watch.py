"""Watch a checkpoint play one greedy episode, and look into its search.

    python scripts/watch.py ckpt=cartpole_muzero_seed0/ckpt/ckpt_best.pth.tar
    python scripts/watch.py ckpt=PATH out=episode.mp4 seed=3
    python scripts/watch.py ckpt=PATH step=40 tree=tree.png
    python scripts/watch.py ckpt=tictactoe_muzero_seed0/ckpt/ckpt_best.pth.tar episode=1

Writes a GIF or an MP4: the environment, and beside it the root value, the visits of each action
and the action chosen (in orange). With step=N or tree=FILE also draws the search tree of step N (0
unless named): visits as width, values as colour. every=K shows every K-th step only.

The episode is one of scripts/evaluate.py with the same seed and overrides: the first, or episode=N.
In a game of two players the agent moves first in the even ones; with env.opponents=[] it plays both
sides. Needs the extra viz.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lightzero_lite.loading import Subject, load_subject
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.user_errors import one_line_errors
from lightzero_lite.types import UserError
from lightzero_lite.viewing.film import FORMATS, write_film
from lightzero_lite.viewing.recording import Recording, record_episode
from lightzero_lite.viewing.tree_picture import draw_tree

OWN = ("out", "step", "tree", "every", "episode")


class Options(NamedTuple):
    """What the command line says beside ckpt= and the overrides."""

    out: Path
    tree: Path | None  # None: no tree is drawn
    step: int
    every: int | None  # None: as many as a film of its kind takes
    episode: int  # its place in an evaluation


def read_options(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """Split a command line into the script's own options and the rest.

    Raises:
        UserError: An option is none.
    """
    own, rest = {}, []
    for text in arguments:
        key, _, value = text.partition("=")
        if key in OWN:
            own[key] = value
        else:
            rest.append(text)
    out = Path(own.get("out", "episode.gif"))
    if out.suffix not in FORMATS:
        raise UserError(f"out={out}: name a file that ends in {' or '.join(FORMATS)}")
    has_tree = "tree" in own or "step" in own
    tree = Path(own.get("tree") or "tree.png") if has_tree else None
    every = _count("every", own["every"], 1) if "every" in own else None
    step, episode = (_count(key, own.get(key, "0"), 0) for key in ("step", "episode"))
    return Options(out, tree, step, every, episode), rest


def _count(key: str, text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise UserError(f"{key}={text} is not an integer of at least {least}")
    return int(text)


def watch(options: Options, subject: Subject) -> Recording:
    """Play an episode and write what was asked for.

    Raises:
        UserError: The environment cannot be drawn, or the episode has no such step.
    """
    config = subject.config
    step = None if options.tree is None else options.step
    number = options.episode
    recording = record_episode(config, subject.predictor, number=number, tree_step=step)
    num_steps = len(recording.moments)
    if options.tree is not None:
        if recording.tree is None:
            raise UserError(f"step={step}: the episode has steps 0 to {num_steps - 1}")
        moment = recording.moments[options.step]
        title = (
            f"{config.env.name}, step {step}: value {moment.root_value:.3g} after "
            f"{config.policy.num_simulations} simulations, action {moment.action} chosen"
        )
        draw_tree(recording.tree, options.tree, title)
    write_film(recording, options.out, options.every)
    return recording


def main() -> None:
    """Watch as the command line says; exit 2 where it cannot be done."""
    with one_line_errors(Ranks()):
        options, rest = read_options(sys.argv[1:])
        subject = load_subject(rest, Ranks())
        recording = watch(options, subject)
    end = "terminated" if recording.is_terminated else "cut by the time limit"
    print(f"return {recording.episode_return:g} in {len(recording.moments)} steps, {end}")
    for path in (options.out, options.tree):
        if path is not None:
            print(f"{path} ({path.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
