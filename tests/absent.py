"""Packages that are not installed, as far as a test is concerned."""

from __future__ import annotations

import sys
from typing import NamedTuple

import pytest


class _Finder(NamedTuple):
    """A finder that knows that a package is not there."""

    package: str

    def find_spec(self, name: str, *_: object) -> None:
        """Refuse the package as a finder of all places would, and leave the rest to others."""
        if name.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=self.package)


def make_absent(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every import of a package fail until the test ends."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Finder(package), *sys.meta_path])
