"""All options, described: what `--help` prints and docs/configuration.md is made of.

Defaults, limits and sentences are read from the dataclasses of config.py, where they stand once.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from lightzero_lite import config as config_module
from lightzero_lite.config import Config

_WIDTH = 100


class Option(NamedTuple):
    """One key that a user can set."""

    section: str  # "" or for example "policy.model."
    name: str
    values: str  # what it takes, in words
    default: str  # as it is written on the command line
    sentence: str

    @property
    def key(self) -> str:
        """The key in full."""
        return f"{self.section}{self.name}"


def options(section: type[Any] = Config, prefix: str = "") -> Iterator[Option]:
    """Yield every option of a section and of the sections in it, in the order of config.py."""
    sentences = _sentences(section)
    hints = typing.get_type_hints(section)
    nested = []
    for field in dataclasses.fields(section):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            nested.append((typing.cast(type[Any], hint), f"{prefix}{field.name}."))
            continue
        values = _values(hint, field.metadata)
        make = field.default_factory
        default = _written(field.default if make is dataclasses.MISSING else make())
        yield Option(prefix, field.name, values, default, sentences[field.name])
    for inner, inner_prefix in nested:
        yield from options(inner, inner_prefix)


def help_text() -> str:
    """Return the reference in short form: key, default, sentence."""
    lines = [
        "Train MuZero: python train.py [key=value ...]",
        "",
        "env=NAME and policy=NAME choose a file of configs/; its values come before those below.",
        "-m key=a,b runs one after the other. docs/configuration.md lists limits as well.",
    ]
    for option in options():
        lines += ["", f"{option.key}={option.default}"]
        indent = {"initial_indent": "    ", "subsequent_indent": "    "}
        lines += textwrap.wrap(option.sentence, _WIDTH, **indent)  # type: ignore[arg-type]
    return "\n".join(lines)


def _sentences(section: type[Any]) -> dict[str, str]:
    """Return the sentence under each field of a section."""
    (tree,) = ast.parse(inspect.getsource(config_module.__dict__[section.__name__])).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for node, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(below, ast.Expr):
            assert isinstance(below.value, ast.Constant)
            found[ast.unparse(node.target)] = " ".join(str(below.value.value).split())
    return found


def _values(hint: Any, limits: Any) -> str:
    """Say in words what an option takes."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (inner,) = (one for one in typing.get_args(hint) if one is not type(None))
        return f"{_values(inner, limits)} or null"
    if typing.get_origin(hint) is Literal:
        return ", ".join(typing.get_args(hint))
    if typing.get_origin(hint) is dict:
        return "named values"
    if typing.get_origin(hint) is list:
        return "list"
    words = {int: "integer", float: "number", bool: "true, false", str: "text"}[hint]
    names = {"at_least": ">=", "above": ">", "at_most": "<="}
    bounds = ", ".join(f"{names[name]} {limit}" for name, limit in limits.items())
    return f"{words} {bounds}".strip()


def _written(value: Any) -> str:
    """Write a default as the command line takes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
