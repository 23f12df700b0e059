"""The reference of options: --help, and the page in docs/."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lightzero_lite.config import Config, config_to_dict, load_config
from lightzero_lite.reference import help_text, options
from lightzero_lite.runtime.user_errors import quiet_broken_pipe
from lightzero_lite.sections import known_keys
from lightzero_lite.train import main
from tests.launch import ROOT, launch

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "make_config_reference.py"))


def test_the_page_is_fresh() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == SCRIPT["page"](), "run python scripts/make_config_reference.py"


def test_every_option_is_described() -> None:
    described = {option.key: option for option in options()}
    assert sorted(described) == sorted(known_keys(Config))
    by_hand = described["policy.root_noise_weight"]
    assert by_hand.values == "number >= 0, <= 1"
    assert by_hand.default == "0.25"
    assert by_hand.sentence == "Share of the root noise in the root's prior while collecting."
    assert described["env.stop_value"].values == "number or null"
    assert described["policy.model.norm_type"].values == "BN, LN, none"


def test_defaults_are_written_as_the_command_line_takes_them() -> None:
    overrides = [f"{option.key}={option.default}" for option in options()]
    plain = load_config([*overrides, "env=gymnasium"])
    assert config_to_dict(plain) == config_to_dict(Config())


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_prints_every_option_and_ends_well(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "env=cartpole", flag])
    main()
    output = capsys.readouterr().out
    assert output == help_text() + "\n"
    lines = output.splitlines()
    assert max(map(len, lines)) <= 100
    for option in options():
        at = lines.index(f"{option.key}={option.default}")
        assert " ".join(lines[at + 1 :]).split("  ")[2].startswith(option.sentence[:40])


@pytest.mark.parametrize("program", [main, quiet_broken_pipe()(lambda: print("line\n" * 99_999))])
def test_a_reader_who_leaves_ends_no_program_in_a_traceback(
    program: Callable[[], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # What `train.py --help | head` comes to: the reading end of the pipe is closed.
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "argv", ["train.py", "--help"])
        monkeypatch.setattr(sys, "stdout", pipe)
        program()
        print("this goes nowhere")
    assert capsys.readouterr() == ("", "")


def test_the_module_runs_as_a_program_from_any_folder(tmp_path: Path) -> None:
    # What the console command and torchrun -m start; the wheel carries configs/ beside it.
    outcome = launch(["-m", "lightzero_lite.train", "--help"], tmp_path)
    assert (outcome.returncode, outcome.output) == (0, help_text() + "\n")
    assert list(tmp_path.iterdir()) == []
    settings = (ROOT / "pyproject.toml").read_text()
    assert 'lightzero-lite = "lightzero_lite.train:main"' in settings
    assert '"configs" = "lightzero_lite/configs"' in settings
