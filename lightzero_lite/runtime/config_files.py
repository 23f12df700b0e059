"""total_config.py and formatted_total_config.py: the configuration as plain Python."""

from __future__ import annotations

import pprint
from pathlib import Path
from typing import Any


def write_config_files(config: dict[str, Any], folder: Path) -> None:
    """Write both files; importing either gives `exp_config` and needs no package.

    Args:
        config: The configuration as nested dictionaries of plain values.
        folder: The run folder.
    """
    (folder / "total_config.py").write_text(f"exp_config = {config!r}\n", encoding="utf-8")
    formatted = pprint.pformat(config, indent=1, width=100, sort_dicts=False)
    text = f'"""The configuration of this run."""\n\nexp_config = {formatted}\n'
    (folder / "formatted_total_config.py").write_text(text, encoding="utf-8")
