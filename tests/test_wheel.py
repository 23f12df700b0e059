"""The wheel: what it carries, and that it works away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.launch import ROOT


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel as pip does, and unpack it as pip does."""
    folder = tmp_path_factory.mktemp("wheel")
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_carries_the_package_and_its_configurations(unpacked: Path) -> None:
    package = ROOT / "lightzero_lite"
    expected = {f"lightzero_lite/{path.relative_to(package)}" for path in package.rglob("*.py")}
    configs = {path.relative_to(ROOT) for path in (ROOT / "configs").rglob("*.yaml")}
    expected |= {"lightzero_lite/py.typed", *(f"lightzero_lite/{path}" for path in configs)}
    assert len(configs) > 5
    found = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert {name for name in found if ".dist-info/" not in name} == expected
    (entries,) = unpacked.glob("*.dist-info/entry_points.txt")
    assert "lightzero-lite = lightzero_lite.train:main" in entries.read_text()


def test_an_unpacked_wheel_finds_its_configurations_from_any_folder(
    unpacked: Path, tmp_path: Path
) -> None:
    program = (
        "from lightzero_lite import config; "
        "found = config.load_config(['env=cartpole', 'policy=gumbel_muzero']); "
        "print(config.__file__, found.env.stop_value, found.policy.type)"
    )
    output = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    ).stdout
    assert output.split() == [f"{unpacked}/lightzero_lite/config.py", "475.0", "gumbel_muzero"]
