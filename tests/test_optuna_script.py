"""scripts/optuna_sweep.py: how a trial is trained, ended and judged."""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

import pytest

from lightzero_lite.types import UserError
from tests.absent import make_absent
from tests.launch import ROOT
from tests.written_runs import write_run

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "optuna_sweep.py"))


def test_a_score_is_the_mean_return_over_all_steps_allowed(tmp_path: Path) -> None:
    # From 0 to 10 over 100 steps, which is 5 on average; then 10 for the 100 that were not needed.
    folder = write_run(tmp_path / "run", [0, 10], max_env_step=200)
    assert SCRIPT["score"](folder) == pytest.approx(7.5, abs=0.01)
    later = write_run(tmp_path / "later", [0, 0, 10], max_env_step=200)
    assert SCRIPT["score"](later) == pytest.approx(2.5, abs=0.01)


def stand_in(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a shell script stand in for the Python that trains."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def test_a_trial_gets_its_options_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, f'echo "$@" > {tmp_path}/words', monkeypatch)
    SCRIPT["train"](["env=cartpole", "seed=1"], tmp_path / "trial_0", 20)
    words = (tmp_path / "words").read_text().split()
    expected = ["-m", "lightzero_lite.train", "env=cartpole", "seed=1"]
    assert words == [*expected, f"exp_name={tmp_path}/trial_0"]


def test_a_trial_that_takes_too_long_is_asked_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = f"touch {tmp_path}/saved; exit 0"
    stand_in(tmp_path, f"trap '{save}' TERM; while :; do sleep 0.05; done", monkeypatch)
    start = time.perf_counter()
    SCRIPT["train"]([], tmp_path, 0.5)
    assert 0.5 <= time.perf_counter() - start < 10
    assert (tmp_path / "saved").exists()


def test_what_is_refused_ends_the_sweep_and_what_fails_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "exit 2", monkeypatch)
    with pytest.raises(UserError, match="was refused"):
        SCRIPT["train"](["sed=1"], tmp_path, 20)
    stand_in(tmp_path, "exit 1", monkeypatch)
    with pytest.raises(RuntimeError, match="ended with 1"):
        SCRIPT["train"]([], tmp_path, 20)


def test_a_missing_optuna_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_absent("optuna", monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["optuna_sweep.py", "--trials", "1"])
    with pytest.raises(SystemExit) as end:
        SCRIPT["main"]()
    assert end.value.code == 2
    line = "error: optuna is not installed: pip install 'lightzero-lite[sweep]'\n"
    assert capsys.readouterr().err == line
    assert list(tmp_path.iterdir()) == []
