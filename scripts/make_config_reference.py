"""Write docs/configuration.md from the dataclasses of lightzero_lite/config.py and configs/.

    python scripts/make_config_reference.py

A test compares the page with what this makes: run it after a change of an option.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from lightzero_lite.config import config_to_dict, load_config
from lightzero_lite.reference import Option, options

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "configuration.md"
HEAD = """# Options

Made by `scripts/make_config_reference.py`; edit `lightzero_lite/config.py` or `configs/` instead.

Options are written `key=value` behind `train.py`. `env=NAME` and `policy=NAME` choose a file of
`configs/env/` and `configs/policy/`, whose values replace the defaults below; what the command line
says replaces both. Every count is global: ranks share it out.
"""


def page() -> str:
    """Return the text of docs/configuration.md."""
    parts = [HEAD]
    for section, members in groupby(options(), key=lambda option: option.section):
        title = f"## {section.rstrip('.')}" if section else "## The run"
        parts += [f"{title}\n", _table(list(members))]
    parts += ["## What the files of configs/env change\n", _recipes()]
    return "\n".join(parts)


def _table(members: list[Option]) -> str:
    rows = ["| key | default | takes | meaning |", "|---|---|---|---|"]
    rows += [
        f"| `{option.key}` | `{option.default}` | {option.values} | {option.sentence} |"
        for option in members
    ]
    return "\n".join(rows) + "\n"


def _recipes() -> str:
    """Return a table of the values that each environment's file sets; `-` is the default."""
    names = sorted(path.stem for path in (ROOT / "configs" / "env").glob("*.yaml"))
    values = {name: _flat(config_to_dict(load_config([f"env={name}"]))) for name in names}
    plain = values.pop("gymnasium")
    keys = [key for key in plain if any(one[key] != plain[key] for one in values.values())]
    rows = [f"| key | {' | '.join(values)} |", "|---" * (len(values) + 1) + "|"]
    for key in keys:
        cells = ("-" if one[key] == plain[key] else f"`{one[key]}`" for one in values.values())
        rows.append(f"| `{key}` | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _flat(values: dict[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        is_section = isinstance(value, dict) and key != "kwargs"
        flat |= _flat(value, f"{prefix}{key}.") if is_section else {prefix + key: value}
    return flat


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
