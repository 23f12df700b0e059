"""scripts/plot.py: what it reads, how it groups and averages, and what it writes."""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lightzero_lite.runtime.logging import RunLog
from lightzero_lite.runtime.run_reader import PANELS, read_run, run_folders
from tests.absent import make_absent
from tests.launch import ROOT
from tests.written_runs import write_run

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "plot.py"))


def test_scalars_and_options_are_read_back(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", [1, 2, 4], seed=5))
    curve = run.curves["evaluator_step/reward_mean"]
    assert curve.envsteps.tolist() == [0, 100, 200]
    assert curve.values.tolist() == [1, 2, 4]
    assert (np.diff(curve.seconds) >= 0).all()
    assert curve.seconds[-1] < 10
    assert not any(tag.startswith("evaluator_iter") for tag in run.curves)
    assert (run.options["seed"], run.options["env.stop_value"]) == (5, 9.0)
    assert run.options["policy.model.norm_type"] == "LN"


def test_a_pause_before_a_resume_is_no_training_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", [1, 2])
    first = read_run(folder).curves["buffer_step/current_have"].seconds[-1]
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 3600)
    log = RunLog(folder, train_iter=1, envstep=100)
    log.scalars("buffer", {"current_have": 200}, train_iter=2, envstep=200)
    log.close()
    curve = read_run(folder).curves["buffer_step/current_have"]
    assert curve.envsteps.tolist() == [0, 100, 200]
    assert first <= curve.seconds[-1] < first + 10


def test_runs_are_grouped_by_all_but_the_seed(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / f"a{seed}", [1], seed=seed)
    write_run(tmp_path / "b", [1], max_env_step=77)
    folders = run_folders([tmp_path, tmp_path / "b"])
    assert [folder.name for folder in folders] == ["a0", "a1", "b"]
    groups = SCRIPT["grouped"]([read_run(folder) for folder in folders])
    assert {label: [run.folder.name for run in runs] for label, runs in groups.items()} == {
        "max_env_step 200000 (2 seeds)": ["a0", "a1"],
        "max_env_step 77 (1 run)": ["b"],
    }


def test_mean_and_spread_by_hand() -> None:
    # One run rises from 0 to 4 over 0..4; the other ends at 2 with 2 and stays there.
    rising = (np.array([0.0, 4.0]), np.array([0.0, 4.0]))
    ended = (np.array([0.0, 2.0]), np.array([2.0, 2.0]))
    grid, mean, deviation = SCRIPT["mean_and_spread"]([rising, ended])
    assert (grid[0], grid[-1]) == (0, 4)
    np.testing.assert_allclose(mean, (grid + 2) / 2)
    np.testing.assert_allclose(deviation, np.abs(grid - 2) / 2)


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["plot.py", *map(str, arguments)])
    SCRIPT["main"]()


def test_pictures_are_written_and_name_what_they_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")  # letters instead of outlines
    for seed in (0, 1):
        write_run(tmp_path / "runs" / str(seed), [1, 8, 3 + seed], seed=seed)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    run_main(monkeypatch, tmp_path / "runs", "--out", tmp_path / "new" / "v1.0")
    pictures = [tmp_path / "new" / f"v1.0.{suffix}" for suffix in ("png", "svg")]
    assert capsys.readouterr().out.split() == [str(path) for path in pictures]
    assert {path for path in tmp_path.rglob("*") if path.is_file()} - before == set(pictures)
    assert pictures[0].read_bytes().startswith(b"\x89PNG")
    text = pictures[1].read_text()
    for panel in PANELS:
        assert panel.title in text
    for words in ("env steps", "seconds", "mean return", "2 seeds", "stop_value 9"):
        assert words in text


def test_a_missing_matplotlib_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_absent("matplotlib", monkeypatch)
    folder = write_run(tmp_path / "run", [1])
    with pytest.raises(SystemExit) as end:
        run_main(monkeypatch, folder, "--out", tmp_path / "curves")
    assert end.value.code == 2
    line = "error: matplotlib is not installed: pip install 'lightzero-lite[viz]'\n"
    assert capsys.readouterr().err == line


def test_a_folder_without_runs_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_main(monkeypatch, tmp_path)
    assert capsys.readouterr().err == (
        f"error: {tmp_path}: no run folder: there is no log/serial/events.out.tfevents.*\n"
    )
