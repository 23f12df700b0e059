"""total_config.py and formatted_total_config.py: plain Python, importable anywhere."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lightzero_lite.config import Config, config_to_dict, load_config
from lightzero_lite.runtime.config_files import write_config_files

NAMES = ["total_config", "formatted_total_config"]


def imported(folder: Path, name: str) -> Any:
    """Import a file in an interpreter without site-packages, and return its exp_config."""
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); import {name}; import json; "
        f"print(json.dumps({name}.exp_config))"
    )
    command = [sys.executable, "-I", "-S", "-B", "-c", code]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=30).stdout)


@pytest.mark.parametrize("name", NAMES)
def test_a_bare_interpreter_imports_the_configuration_that_was_used(
    tmp_path: Path, name: str
) -> None:
    config = load_config(["env=lunarlander", "policy.use_priority=true", "env.stop_value=null"])
    config = dataclasses.replace(config, exp_name="a'b\\c\"d\n/\u00e9")
    write_config_files(config_to_dict(config), tmp_path)
    assert imported(tmp_path, name) == config_to_dict(config)


def test_exactly_two_files_are_written(tmp_path: Path) -> None:
    write_config_files(config_to_dict(Config()), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.py" for name in NAMES}


def test_the_formatted_file_has_short_lines_and_the_order_of_the_sections(tmp_path: Path) -> None:
    write_config_files(config_to_dict(Config()), tmp_path)
    text = (tmp_path / "formatted_total_config.py").read_text()
    assert max(map(len, text.splitlines())) <= 100
    assert text.index("'env_id'") < text.index("'num_simulations'") < text.index("'save_freq'")
