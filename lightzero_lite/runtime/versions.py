"""What a run ran with."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

LIBRARIES = ("lightzero_lite", "torch", "numpy", "numba", "gymnasium")


def versions() -> dict[str, str]:
    """Return the versions of Python, this package and its libraries, and the commit if any."""
    found = {"python": platform.python_version()}
    found |= {name: version(name) for name in LIBRARIES}
    commit = git_commit(Path(__file__).resolve().parents[2])
    return found if commit is None else found | {"commit": commit}


def git_commit(checkout: Path) -> str | None:
    """Return the commit that a checkout is at; None where it is none or git cannot say."""
    if not (checkout / ".git").exists():  # an installed package may lie in another's checkout
        return None
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
