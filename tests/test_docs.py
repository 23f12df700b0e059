"""The pages in docs/ name what is there."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import pytest

from lightzero_lite.config import load_config
from lightzero_lite.sweep import expanded
from tests.launch import ROOT
from tests.test_project import FLOORS

DOCS = ROOT / "docs"
FOLDERS = ("", "search.", "replay.")


def find(module: str) -> object:
    """Import a module of the package by the last part of its name."""
    names = [f"lightzero_lite.{folder}{module}" for folder in FOLDERS]
    (name,) = (n for n in names if (ROOT / f"{n.replace('.', '/')}.py").exists())
    return importlib.import_module(name)


def test_functions_and_tests_of_the_algorithm_exist() -> None:
    page = (DOCS / "algorithm.md").read_text()
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
    rows = [row.split("|")[1:-1] for row in page.splitlines() if row.startswith("| ")][1:]
    assert len(rows) > 15
    for _, formula, functions, names in rows:
        named = re.findall(r"`(\w+)\.(\w+)`", functions)
        assert named, formula
        assert all(hasattr(find(module), name) for module, name in named), functions
        assert re.findall(r"`(test_\w+)`", names), formula
        assert all(f"def {name}(" in tests for name in re.findall(r"`(test_\w+)`", names)), names


def test_files_of_the_architecture_stand_on_their_floors() -> None:
    page = (DOCS / "architecture.md").read_text()
    rows = {path: int(floor) for floor, path in re.findall(r"^\| (\d) \| `(.+?)` \|", page, re.M)}
    assert rows == FLOORS, "give a new file its line in docs/architecture.md"


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_scripts_that_a_page_starts_exist(page: object) -> None:
    named = re.findall(r"\bscripts/\w+\.py", page.read_text())  # type: ignore[attr-defined]
    assert all((ROOT / name).is_file() for name in named)


def train_commands(page: Path) -> list[str]:
    """Return the command lines of a page that train."""
    text = page.read_text().replace("\\\n", " ")
    lines = re.findall(r"^(?:    )?((?:python|torchrun) [^`\n]*\btrain\.py .*)$", text, re.M)
    return [line.partition("  #")[0] for line in lines]


def test_training_commands_of_the_pages_compose() -> None:
    commands = [command for page in DOCS.glob("*.md") for command in train_commands(page)]
    assert len(commands) > 12
    for command in commands:
        words = shlex.split(command)
        load_config(expanded(words[words.index("train.py") + 1 :])[0])
