"""scripts/watch.py: the episode it plays, the film and the tree that it draws."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from lightzero_lite.building import greedy_search, network_shape
from lightzero_lite.config import Config, EnvConfig, config_to_dict
from lightzero_lite.envs.factory import env_shape, make_env
from lightzero_lite.envs.games.tic_tac_toe import TicTacToe
from lightzero_lite.evaluator import Evaluator
from lightzero_lite.loading import Subject, load_subject
from lightzero_lite.networks import MuZeroModelMLP
from lightzero_lite.runtime.checkpoint import save_checkpoint
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.seeding import Role, integer_seed
from lightzero_lite.search import TreeCache
from lightzero_lite.search.tree import NO_PARENT, NODE
from lightzero_lite.types import UserError
from lightzero_lite.viewing import film, tree_picture
from lightzero_lite.viewing.recording import Recording, record_episode
from tests.absent import make_absent
from tests.builders import tiny_policy
from tests.drawn_envs import NUM_STEPS
from tests.fake_envs import mask_of
from tests.launch import ROOT

DRAWN = "drawn_envs:Drawn-v0"
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "watch.py"))
ORANGE = np.array([0xD5, 0x5E, 0x00])


def write_checkpoint(path: Path, env_id: str = f"tests.{DRAWN}", **changes: Any) -> Path:
    """Save random networks that have something to say, and a configuration."""
    env_config = EnvConfig(env_id=env_id, n_evaluator_episode=1)
    config = Config(seed=3, env=env_config, policy=tiny_policy(num_simulations=6, **changes))
    env = make_env(config.env)
    torch.manual_seed(6)
    model = MuZeroModelMLP(network_shape(config.policy, env_shape(env)))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    weights = model.state_dict()
    numbers = {"last_iter": 1, "last_step": 2, "counters": {}, "config": config_to_dict(config)}
    save_checkpoint({"model": weights, "target_model": weights, "optimizer": {}, **numbers}, path)
    return path


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    path = write_checkpoint(tmp_path_factory.mktemp("watch") / "ckpt.pth.tar")
    return load_subject([f"ckpt={path}"], Ranks())


@pytest.fixture(scope="module")
def recording(subject: Subject) -> Recording:
    return record_episode(subject.config, subject.predictor, tree_step=4)


def test_the_episode_is_the_evaluators_first(subject: Subject, recording: Recording) -> None:
    evaluator = Evaluator(subject.config, subject.predictor, Ranks())
    evaluation = evaluator.evaluate(greedy_search(subject.config.policy, TreeCache()))
    assert evaluation is not None
    assert recording.episode_return == evaluation.summaries[0].episode_return
    actions = [moment.action for moment in recording.moments]
    assert recording.rewards.tolist() == actions  # this counter pays the action
    assert len(set(actions)) > 1
    assert all(one.action == one.visit_counts.argmax() for one in recording.moments)
    assert (recording.is_terminated, recording.fps) == (True, 10)


def test_each_picture_shows_the_state_of_its_decision(recording: Recording) -> None:
    pictures = [*(moment.picture for moment in recording.moments), recording.last_picture]
    assert [picture.shape for picture in pictures] == [(270, 360, 3)] * (NUM_STEPS + 1)
    assert [int(picture[0, 0, 0]) for picture in pictures] == [20 * i for i in range(12)]


def test_the_tree_is_that_of_the_step(recording: Recording) -> None:
    tree, moment = recording.tree, recording.moments[4]
    assert tree is not None
    assert tree.action == moment.action
    below_root = tree.nodes[tree.nodes["parent"] == 0]
    visits = np.zeros(3, int)
    visits[below_root["action"]] = below_root["visits"]
    assert visits.tolist() == moment.visit_counts.tolist()
    assert float(tree.nodes[0]["value"]) == pytest.approx(moment.root_value)


@pytest.mark.parametrize("kind", ["muzero", "gumbel_muzero"])
def test_masks_are_honoured_and_shown(kind: str, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "ckpt.pth.tar", "tests.drawn_envs:DrawnMasked-v0", type=kind)
    subject = load_subject([f"ckpt={path}"], Ranks())
    recording = record_episode(subject.config, subject.predictor, tree_step=NUM_STEPS - 1)
    visits = np.stack([moment.visit_counts for moment in recording.moments])
    assert visits[~recording.legal_actions].sum() == 0
    seed = integer_seed(3, Role.EVALUATE_ENV, 0) % 1000 / 1000
    masks = [mask_of(np.array([seed, count / 10])) for count in range(NUM_STEPS)]
    assert recording.legal_actions.tolist() == np.array(masks, bool).tolist()
    assert recording.tree is not None
    assert int(recording.tree.nodes[0]["visits"]) == 7  # 6 simulations and its own evaluation
    # What is illegal has no bar but a word, which is there once for each illegal action.
    step = int(recording.legal_actions.sum(1).argmin())
    frame = list(film.frames(recording, 1))[step]
    ends = [frame.crop((550, 64 + 17 * row, 600, 81 + 17 * row)) for row in (1, 2, 3)]
    words = [int((np.asarray(end.convert("L")) < 200).sum()) for end in ends]
    assert [word > 40 for word in words] == (~recording.legal_actions[step]).tolist()


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("watch") / "player.pth.tar"
    return write_checkpoint(path, "TicTacToe-v0", discount_factor=-1.0)


@pytest.mark.parametrize("number", [0, 1])
def test_the_agent_has_the_seat_of_the_evaluators_game(number: int, player: Path) -> None:
    games = ["env.opponents=[random]", "env.n_evaluator_episode=2"]
    subject = load_subject([f"ckpt={player}", *games], Ranks())
    recording = record_episode(subject.config, subject.predictor, number=number)
    # In the second game the opponent has moved before the agent sees the board.
    assert recording.legal_actions[0].sum() == 9 - number
    evaluator = Evaluator(subject.config, subject.predictor, Ranks())
    evaluation = evaluator.evaluate(greedy_search(subject.config.policy, TreeCache()))
    assert evaluation is not None
    assert recording.episode_return == evaluation.summaries[number].episode_return
    with pytest.raises(UserError, match="episode=2: an evaluation has 2 games here"):
        record_episode(subject.config, subject.predictor, number=2)


def test_in_self_play_the_return_is_the_first_players(player: Path) -> None:
    subject = load_subject([f"ckpt={player}", "env.opponents=[]"], Ranks())
    returns = set()
    for seed in range(12):
        torch.manual_seed(seed)
        for parameter in subject.predictor.model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        subject.predictor.load(subject.predictor.model)
        recording = record_episode(subject.config, subject.predictor)
        game = TicTacToe()
        game.reset()
        *_, last = [game.step(moment.action) for moment in recording.moments]
        who = 1 if len(recording.moments) % 2 else -1  # moved last
        assert recording.episode_return == who * last[1]
        returns.add(recording.episode_return)
    assert returns >= {1, -1}


def orange(row: Image.Image) -> int:
    """Count the pixels of the colour of what was chosen."""
    return int((np.abs(np.asarray(row.convert("RGB"), int) - ORANGE).max(-1) < 24).sum())


@pytest.mark.parametrize(("every", "steps"), [(None, range(11)), (3, (0, 3, 6, 9))])
def test_a_gif_holds_each_step_and_the_end(
    every: int | None, steps: range, recording: Recording, tmp_path: Path
) -> None:
    film.write_film(recording, tmp_path / "new" / "e.gif", every)
    with Image.open(tmp_path / "new" / "e.gif") as gif:
        assert gif.n_frames == len(steps) + 1
        assert gif.size == (360 + film.PANEL, 270)
        assert gif.info["loop"] == 0
        for i, step in enumerate([*steps, NUM_STEPS]):
            gif.seek(i)
            is_end = step == NUM_STEPS
            assert gif.info["duration"] == (1500 if is_end else 100 * (every or 1))
            red = gif.convert("RGB").getpixel((5, 5))[0]
            assert abs(red - 20 * step) <= 10
            # The bar of the chosen action is the longest, and its number stands in its row.
            rows = [gif.crop((370, 64 + 17 * a, 600, 81 + 17 * a)) for a in (1, 2, 3)]
            counts = [orange(row) for row in rows]
            if is_end:
                assert sum(counts) == 0
            else:
                assert int(np.argmax(counts)) == recording.moments[step].action


def test_a_long_episode_is_thinned_out(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(film, "GIF_FRAMES", 5)
    film.write_gif(recording, tmp_path / "long.gif")
    with Image.open(tmp_path / "long.gif") as gif:
        assert gif.n_frames == 5  # steps 0, 3, 6, 9 and the end
        assert gif.info["duration"] == 300


def test_an_mp4_shows_every_step(recording: Recording, tmp_path: Path) -> None:
    reader = pytest.importorskip("imageio_ffmpeg")
    film.write_film(recording, tmp_path / "e.mp4")
    count, seconds = reader.count_frames_and_secs(str(tmp_path / "e.mp4"))
    assert count == NUM_STEPS + 1 + 15  # the last one stays for 1.5 s of 10 a second
    assert seconds == pytest.approx(count / 10, abs=0.11)


def nodes_of(*rows: tuple[int, int, int, float]) -> np.ndarray:
    """Return nodes of (parent, action, visits, value)."""
    nodes = np.zeros(len(rows), NODE)
    for node, (parent, action, visits, value) in zip(nodes, rows, strict=True):
        node["parent"], node["action"], node["visits"], node["value"] = (
            parent, action, visits, value
        )  # fmt: skip
    return nodes


# The root has children 1 (by action 1) and 2 (by action 0); 3 and 4 hang below 1.
NODES = nodes_of(
    (NO_PARENT, NO_PARENT, 6, 5), (0, 1, 3, 2), (0, 0, 2, 7), (1, 0, 1, 4), (1, 2, 1, 3)
)


def test_places_by_hand() -> None:
    tree = tree_picture.SearchTree(NODES, action=1, discount=0.9)
    where = tree_picture.places(tree, [0, 1, 2, 3, 4])
    assert {node: (place.x, place.depth) for node, place in where.items()} == {
        2: (0, 1), 3: (1, 2), 4: (2, 2), 1: (1.5, 1), 0: (0.75, 0)
    }  # fmt: skip
    assert tree_picture.values(tree, where) == {0: 5, 1: 2, 2: 7, 3: 4, 4: 3}


def test_values_of_the_other_players_nodes_change_their_sign() -> None:
    tree = tree_picture.SearchTree(NODES, action=1, discount=-1.0)
    where = tree_picture.places(tree, [0, 1, 3])
    assert tree_picture.values(tree, where) == {0: 5, 1: -2, 3: 4}


@pytest.mark.parametrize(
    ("most", "shown"), [(1, [0]), (2, [0, 1]), (4, [0, 1, 2, 3]), (9, [0, 1, 2, 3, 4])]
)
def test_the_most_visited_nodes_are_drawn(most: int, shown: list[int]) -> None:
    tree = tree_picture.SearchTree(NODES, action=1, discount=0.9)
    assert tree_picture.shown_nodes(tree, most) == shown


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that runs the script."""

    def run(*arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", ["watch.py", *map(str, arguments)])
        SCRIPT["main"]()

    return run


def test_the_script_writes_film_and_tree_and_says_so(
    watch: Callable[..., None],
    subject: Subject,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")  # letters instead of outlines
    monkeypatch.chdir(tmp_path)
    watch(f"ckpt={subject.path}", "step=2", "tree=two.svg", "seed=4", "policy.num_simulations=5")
    first, *written = capsys.readouterr().out.splitlines()
    assert first.endswith(f" in {NUM_STEPS} steps, terminated")
    assert [line.partition(" (")[0] for line in written] == ["episode.gif", "two.svg"]
    assert {path.name for path in tmp_path.iterdir()} == {"episode.gif", "two.svg"}
    text = (tmp_path / "two.svg").read_text()
    assert "tests.drawn_envs:Drawn-v0, step 2: value " in text
    assert "after 5 simulations" in text


REFUSALS = [
    ([], None, "name one checkpoint: ckpt=run_folder/ckpt/ckpt_best.pth.tar"),
    (["out=film.avi"], DRAWN, "out=film.avi: name a file that ends in .gif or .mp4"),
    (["every=0"], DRAWN, "every=0 is not an integer of at least 1"),
    (["step=one"], DRAWN, "step=one is not an integer of at least 0"),
    (["step=11"], DRAWN, "step=11: the episode has steps 0 to 10"),
    (["stp=11"], DRAWN, "unknown key stp"),
    ([], "fake_envs:Counter-v0", "it renders nothing, not rgb_array"),
    (
        [],
        "drawn_envs:DrawnWithout-v0",
        "painter is not installed; or pip install 'lightzero-lite[viz]'",
    ),
    ([], "drawn_envs:DrawnFlat-v0", "a picture has shape (30, 40) and type uint8"),
]


@pytest.mark.parametrize(("arguments", "env_id", "line"), REFUSALS)
def test_a_mistake_is_one_line_and_nothing_is_written(
    arguments: list[str],
    env_id: str | None,
    line: str,
    watch: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    if env_id is not None:
        path = write_checkpoint(tmp_path / "c.pth.tar", f"tests.{env_id}")
        arguments = [f"ckpt={path}", *arguments]
        if env_id != DRAWN:
            line = f"env.env_id=tests.{env_id} cannot be watched: {line}"
    with pytest.raises(SystemExit) as end:
        watch(*arguments)
    assert end.value.code == 2
    assert capsys.readouterr().err == f"error: {line}\n"
    assert list((tmp_path / "empty").iterdir()) == []


def test_without_the_extra_viz_there_is_a_line(
    recording: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("imageio_ffmpeg", "matplotlib"):
        make_absent(package, monkeypatch)
    with pytest.raises(UserError, match=r"imageio-ffmpeg is not installed: .*, or name a \.gif"):
        film.write_film(recording, tmp_path / "e.mp4")
    assert recording.tree is not None
    with pytest.raises(UserError, match="matplotlib is not installed: pip install"):
        tree_picture.draw_tree(recording.tree, tmp_path / "t.png", "")
    assert list(tmp_path.iterdir()) == []
