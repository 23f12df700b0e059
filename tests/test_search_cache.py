"""The kernels' machine code on disk: reused, safe to make twice at once, and never required."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lightzero_lite

# Runs kernels once and prints how each was come by.
SEARCH = """
import json, sys
import numpy as np
from lightzero_lite.search import muzero_policy, puct, tree
from lightzero_lite.types import RecurrentOutput, RootOutput

logits, value = np.zeros((3, 2), np.float32), np.zeros(3, np.float32)
kernels = [tree.plant]
if sys.argv[1] == "search":
    kernels += [puct.puct_first, puct.puct_next, puct.puct_last]
    answer = muzero_policy(
        RootOutput(logits, value),
        lambda *_: RecurrentOutput(value, value, logits),
        num_simulations=4,
        discount=1.0,
        rng=np.random.default_rng(0),
        dirichlet_fraction=0.0,
        temperature=0.0,
    )
    assert answer.visit_counts.sum() == 3 * 4
else:
    new = tree.new_tree(3, 4, 2)
    tree.plant(new.nodes, new.edges, logits > 0, value, logits)
    assert (new.edges["prior"][:, 0] == 0.5).all()
if sys.argv[1] == "last":
    kernels = [puct.puct_last]
    new = tree.new_tree(1, 1, 2)
    tree.plant(new.nodes, new.edges, logits[:1] > 0, value[:1], logits[:1])
    counts, rest = np.zeros((1, 2), np.int32), np.zeros((1, 2), np.float32)
    puct.puct_last(1, 1.0, *new, value[:1], value[:1], logits[:1], counts, rest, rest[0], rest)
    print(json.dumps(counts.tolist()), file=sys.stderr)
stats = [kernel.stats for kernel in kernels]
print(json.dumps({
    "hits": sum(sum(s.cache_hits.values()) for s in stats),
    "misses": sum(sum(s.cache_misses.values()) for s in stats),
    "folders": sorted({str(s.cache_path) for s in stats}),
}))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a folder that holds a copy of the package without any compiled code."""
    source = Path(lightzero_lite.__file__).parent
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, tmp_path / "site" / "lightzero_lite", ignore=ignore)
    return tmp_path / "site"


def start(package: Path, home: Path, work: str) -> subprocess.Popen[str]:
    """Start a search, or one kernel, in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA", "XDG"))}
    environment |= {"PYTHONPATH": str(package), "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", SEARCH, work], env=environment, cwd=package, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish_with_counts(process: subprocess.Popen[str]) -> Any:
    """Return what the process wrote to its error output."""
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(err)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what the process printed."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    report: dict[str, Any] = json.loads(out)
    return report


@pytest.mark.slow
def test_two_processes_fill_an_empty_cache_at_once_and_a_third_compiles_nothing(
    package: Path, tmp_path: Path
) -> None:
    for process in [start(package, tmp_path, "search") for _ in range(2)]:
        finish(process)
    later = finish(start(package, tmp_path, "search"))
    assert later["misses"] == 0
    assert later["hits"] == 4
    assert later["folders"] == [str(package / "lightzero_lite" / "search" / "__pycache__")]


def test_a_change_in_the_code_that_kernels_share_reaches_them(
    package: Path, tmp_path: Path
) -> None:
    """Numba by itself would serve puct_last from the cache: its own file did not change."""
    assert finish_with_counts(start(package, tmp_path, "last")) == [[1, 0]]
    shared = package / "lightzero_lite" / "search" / "tree.py"
    text = shared.read_text()
    assert text.count("visits if child > ROOT else 0\n") == 1
    shared.write_text(
        text.replace("visits if child > ROOT else 0\n", "visits if child > ROOT else 7\n")
    )
    assert finish_with_counts(start(package, tmp_path, "last")) == [[1, 7]]


@pytest.mark.parametrize("home_is_writable", [True, False])
def test_an_installation_that_cannot_be_written(
    package: Path, tmp_path: Path, home_is_writable: bool
) -> None:
    """A file in a folder's place keeps everyone out, which permissions do not do to root."""
    for folder in (package / "lightzero_lite").rglob("*.py"):
        (folder.parent / "__pycache__").touch()
    home = tmp_path / "home"
    if home_is_writable:
        home.mkdir()
    else:
        home.touch()
    report = finish(start(package, home, "plant"))
    if home_is_writable:
        assert all(folder.startswith(str(home)) for folder in report["folders"])
    else:
        assert report["folders"] == ["None"]
