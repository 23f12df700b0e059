"""scripts/report.py: one page that tells a run, whatever the run folder lacks."""

from __future__ import annotations

import base64
import re
import runpy
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.runtime.run_reader import PANELS, last_table
from lightzero_lite.train import build_trainer
from lightzero_lite.viewing.line_chart import line_chart, short, ticks
from tests.drawn_envs import NUM_STEPS
from tests.launch import ROOT, TINY
from tests.written_runs import write_run

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "report.py"))
Report = Callable[..., ElementTree.Element]


@pytest.fixture
def report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Report:
    """Return a function that runs the script and parses its page, which is well-formed."""

    def run(folder: Path) -> ElementTree.Element:
        out = tmp_path / "new" / "page.html"
        monkeypatch.setattr(sys, "argv", ["report.py", str(folder), "--out", str(out)])
        capsys.readouterr()
        SCRIPT["main"]()
        text = out.read_text(encoding="utf-8")
        assert capsys.readouterr().out == f"{out} ({len(text) / 1000:.0f} kB)\n"
        assert text.startswith("<!DOCTYPE html>\n")
        # Nothing is loaded from elsewhere.
        assert not re.search(r"https?:|@import|url\(|<link|<script", text)
        assert not re.search(r"src=\"(?!data:image/gif;base64,)", text)
        return ElementTree.fromstring(text)

    return run


def texts(page: ElementTree.Element, path: str) -> list[str]:
    return ["".join(element.itertext()) for element in page.iterfind(path)]


def rows(page: ElementTree.Element) -> dict[str, list[str]]:
    """Return the cells behind the first cell of each table row."""
    found = [["".join(cell.itertext()) for cell in row] for row in page.iter("tr")]
    return {row[0]: row[1:] for row in reversed(found)}  # of two of one name, the first


def test_a_run_that_was_resumed_is_told_whole(tmp_path: Path, report: Report) -> None:
    folder = tmp_path / "run"
    common = [*TINY, "env.env_id=tests.drawn_envs:Drawn-v0", "seed=2", f"exp_name={folder}"]
    build_trainer([*common, "max_env_step=80", "env.stop_value=99"], Ranks()).run()
    build_trainer([*common, "max_env_step=160", "resume=auto", "env.stop_value=99"], Ranks()).run()
    page = report(folder)
    assert texts(page, ".//title") == ["run"]
    facts = dict(
        reversed(re.fullmatch(r"([\d,.]+)(.+)", card).groups())
        for card in texts(page, ".//div[@class='row facts']/div")
    )
    table = dict(last_table(folder, "collector"))
    assert facts["env steps"] == table["total_envstep_count"] == "176"
    assert (facts["ranks"], facts["starts of the program"]) == ("1", "2")
    evaluation = dict(last_table(folder, "evaluator"))
    assert facts["updates"] == evaluation["train_iter"]
    assert float(facts["last mean return"]) == float(evaluation["reward_mean"])
    cells = rows(page)
    assert cells["seed"] == ["2", "0"]
    assert cells["policy.num_simulations"] == ["4", "25"]
    assert cells["env.n_evaluator_episode"] == ["4", "20"]
    assert cells["policy.td_steps"] == ["5"]  # as by default: among all options only
    assert cells["each_reward"] == [evaluation["each_reward"]]
    assert "torch" in cells
    assert "ckpt_best.pth.tar" in cells
    assert len(list(page.iter("svg"))) == len(PANELS)
    (image,) = page.iter("img")
    data = base64.b64decode(image.attrib["src"].partition(",")[2])
    assert Image.open(BytesIO(data)).n_frames == NUM_STEPS + 1
    found = " ".join(texts(page, ".//li"))
    assert "env.stop_value=99 was not reached" in found
    assert "resumed: 2 starts" in found


def test_a_run_without_checkpoints_is_told_without_an_episode(
    tmp_path: Path, report: Report
) -> None:
    folder = write_run(tmp_path / 'a<b>&"c"', [1, 8, 10], seed=5)
    page = report(folder)
    assert texts(page, ".//h1") == ['a<b>&"c"']
    assert "None: no checkpoint in ckpt/ can be read." in texts(page, ".//p")
    assert texts(page, ".//p").count("no table yet") == 4
    assert list(page.iter("img")) == []
    assert "The goal env.stop_value=9 was reached." in texts(page, ".//li")
    assert [svg.attrib["aria-label"] for svg in page.iter("svg")] == [
        "Return of the greedy agent",
        "Return over time",
        "Replay buffers",
    ]


def test_an_environment_that_is_not_drawn_is_a_reason(tmp_path: Path, report: Report) -> None:
    folder = tmp_path / "run"
    env = "env.env_id=tests.fake_envs:Counter-v0"
    build_trainer([*TINY, env, f"exp_name={folder}", "max_env_step=20"], Ranks()).run()
    reasons = " ".join(texts(report(folder), ".//p"))
    assert "Counter-v0 cannot be watched: it renders nothing, not rgb_array" in reasons


def test_findings_by_hand() -> None:
    numbers = {"evaluator_step/reward_mean": 50.0, "learner_step/clipped_target_avg": 0.125}
    story = SCRIPT["Story"](None, None, {"counters": {"best_score": 100.0}}, 1)

    class Told(SCRIPT["Story"]):  # type: ignore[misc]
        last = staticmethod(numbers.get)

    run = type("Run", (), {"options": {"env.stop_value": 90.0}})
    found = list(SCRIPT["findings"](Told(*story._replace(run=run))))
    assert len(found) == 3
    assert found[0].endswith("was not reached by the last evaluation.")
    assert "(50) is well below the best (100)" in found[1]
    assert found[2].startswith("12.5% of the last targets lay outside")


def empty(folder: Path) -> None:
    folder.mkdir()


def several(folder: Path) -> None:
    write_run(folder / "one", [1])
    write_run(folder / "two", [1])


def without_scalars(folder: Path) -> None:
    (folder / "log" / "serial").mkdir(parents=True)
    (folder / "log" / "serial" / "events.out.tfevents.1").touch()


def garbled(folder: Path) -> None:
    write_run(folder, [1])
    (folder / "total_config.py").write_text("exp_config = {'seed'")


BROKEN = [
    (empty, "{}: no run folder: there is no log/serial/events.out.tfevents.*"),
    (several, "{0} holds run folders: name one of them, for example {0}/one"),
    (without_scalars, "{}: nothing to report: its events files hold no scalars"),
    (garbled, "{}/total_config.py: cannot be read: it is not as a run wrote it"),
]


@pytest.mark.parametrize(("leave", "line"), BROKEN)
def test_a_folder_that_is_no_run_is_one_line(
    leave: Callable[[Path], None],
    line: str,
    tmp_path: Path,
    report: Report,
    capsys: pytest.CaptureFixture[str],
) -> None:
    leave(tmp_path / "run")
    with pytest.raises(SystemExit) as end:
        report(tmp_path / "run")
    assert end.value.code == 2
    assert capsys.readouterr().err == f"error: {line.format(tmp_path / 'run')}\n"
    assert not (tmp_path / "new").exists()


def test_the_last_table_is_read_in_both_forms(tmp_path: Path) -> None:
    path = tmp_path / "log" / "learner" / "learner_logger.txt"
    path.parent.mkdir(parents=True)
    grid = "| Name | a | b |\n|------|---|---|\n| Value | {} | 2.5 |\n"
    path.write_text(f"[INFO]: grid:\n{grid.format(1)}[INFO]: grid:\n{grid.format(3)}[INFO]: x")
    assert last_table(tmp_path, "learner") == [("a", "3"), ("b", "2.5")]
    path.write_text("[INFO]: end:\n| Name | Value |\n|---|---|\n| a | [1, 2] |\n| b | x |\n| cut")
    assert last_table(tmp_path, "learner") == [("a", "[1, 2]"), ("b", "x")]
    path.write_text("nothing")
    assert last_table(tmp_path, "learner") == []
    assert last_table(tmp_path, "buffer") == []


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 500, [0, 100, 200, 300, 400, 500]),
        (9.2, 500, [100, 200, 300, 400, 500]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
        (0.735, 0.79, [0.74, 0.75, 0.76, 0.77, 0.78, 0.79]),
        (0, 7567, [0, 2000, 4000, 6000]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(("value", "text"), [(20_000, "20k"), (1.5e6, "1.5M"), (-0.25, "-0.25")])
def test_numbers_are_brief(value: float, text: str) -> None:
    assert short(value) == text


def chart(x: list[float], y: list[float], goal: float | None = None) -> ElementTree.Element:
    labels = {"title": "a < b", "x_label": "steps", "y_label": "&"}
    return ElementTree.fromstring(line_chart(np.array(x), np.array(y), goal=goal, **labels))


def points(svg: ElementTree.Element) -> list[list[float]]:
    (curve,) = svg.iterfind("polyline")
    return [[float(one) for one in point.split(",")] for point in curve.attrib["points"].split()]


def test_a_chart_by_hand() -> None:
    # The plot spans 52..346 by 30..174; y runs upwards.
    svg = chart([0, 5, 10], [1, 3, 2])
    assert points(svg) == [[52, 174], [199, 30], [346, 102]]
    assert svg.attrib["aria-label"] == "a < b"
    # A goal above all values is in sight.
    svg = chart([0, 5, 10], [1, 3, 2], goal=5)
    assert points(svg) == [[52, 174], [199, 102], [346, 138]]
    (goal,) = svg.iterfind("line[@class='goal']")
    assert float(goal.attrib["y1"]) == 30


def test_charts_of_odd_curves() -> None:
    assert points(chart([0, 4, 8], [1, float("nan"), 2])) == [[52, 174], [346, 30]]
    assert points(chart([7], [3])) == [[346, 102]]  # alone: in the middle, at its own place
    assert chart([1, 2], [float("nan")] * 2).find("polyline") is None
    assert len(points(chart(list(range(5000)), [0.0] * 5000))) <= 401
