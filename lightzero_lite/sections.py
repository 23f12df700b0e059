"""Typed sections: nested plain dictionaries in, frozen dataclasses out, every key checked.

OmegaConf's structured configs do most of this, but take no Literal, refuse 1e5 for an integer and
report over several lines; here a mistake is one line that names the key in full.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from typing import Any, Literal, TypeVar

from lightzero_lite.types import UserError

T = TypeVar("T")


def number(default: T, **limits: float) -> T:
    """Declare a field with limits: at_least, above, at_most (all checked where it is read)."""
    return dataclasses.field(default=default, metadata=limits)


def known_keys(section: type[Any], prefix: str = "") -> list[str]:
    """List every key that a user can set, in full."""
    keys = []
    for name, hint in typing.get_type_hints(section).items():
        if dataclasses.is_dataclass(hint):
            keys += known_keys(typing.cast(type[Any], hint), f"{prefix}{name}.")
        else:
            keys.append(f"{prefix}{name}")
    return keys


def unknown_key(key: str, known: list[str]) -> str:
    """Say that a key is unknown, with the nearest known one whose last part is near as well."""
    name = key.rpartition(".")[2]
    alike = [o for o in known if difflib.get_close_matches(name, [o.rpartition(".")[2]])]
    near = difflib.get_close_matches(key, alike, n=1, cutoff=0.0)
    return f"unknown key {key}" + (f": did you mean {near[0]}?" if near else "")


def not_a_value(section: str) -> str:
    """Say that a section was given a value."""
    return f"{section} is a section: set its keys, not the section itself"


def build_section(section: type[T], values: object, prefix: str = "") -> T:
    """Build a section, and the sections in it, from nested dictionaries.

    Args:
        section: The dataclass; keys that are missing take its defaults.
        values: A dictionary from field names to plain values or dictionaries.
        prefix: Where the section stands, for messages, for example "policy.".

    Raises:
        UserError: A key is unknown, a value has the wrong type or is out of range.
    """
    if not isinstance(values, dict):
        raise UserError(not_a_value(prefix.rstrip(".")))
    hints = typing.get_type_hints(section)
    for key in values:
        if key not in hints:
            raise UserError(unknown_key(f"{prefix}{key}", [f"{prefix}{name}" for name in hints]))
    fields = {f.name: f for f in dataclasses.fields(typing.cast(Any, section))}
    arguments = {}
    for name, value in values.items():
        arguments[name] = _value(hints[name], value, f"{prefix}{name}")
        _check_limits(arguments[name], fields[name].metadata, f"{prefix}{name}")
    return section(**arguments)


def _value(hint: Any, value: Any, key: str) -> Any:
    """Convert one value to its field's type; 1e5 is an integer, and None is written in any way."""
    if dataclasses.is_dataclass(hint):
        return build_section(typing.cast(type[Any], hint), value, f"{key}.")
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        if value is None or value in ("None", "none", ""):
            return None
        (hint,) = (option for option in typing.get_args(hint) if option is not type(None))
    if typing.get_origin(hint) in (dict, list):
        return _container(hint, value, key)
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise UserError(f"{key}={value} is none of {', '.join(choices)}")
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int and is_number and float(value).is_integer():
        return int(value)
    if hint is float and is_number and math.isfinite(value):
        return float(value)
    if hint is str and (is_number or (isinstance(value, str) and value)):
        return str(value)
    if hint is bool and isinstance(value, bool):
        return value
    expected = {int: "an integer", float: "a finite number", bool: "true or false", str: "a text"}[
        hint
    ]
    raise UserError(f"{key}={value} is not {expected}")


def _container(hint: Any, value: Any, key: str) -> Any:
    """Check a dictionary of anything, or convert each value of a list."""
    if typing.get_origin(hint) is dict:
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise UserError(f"{key}={value} is no set of named values: write {key}.NAME=VALUE")
        return value
    if not isinstance(value, list):
        raise UserError(f"{key}={value} is not a list: write {key}=[a,b]")
    (inner,) = typing.get_args(hint)
    return [_value(inner, one, key) for one in value]


def _check_limits(value: Any, limits: Any, key: str) -> None:
    """Raise UserError where a number lies outside its field's limits."""
    if value is None or not limits:
        return
    if "at_least" in limits and value < limits["at_least"]:
        raise UserError(f"{key}={value} is too small: it must be at least {limits['at_least']}")
    if "above" in limits and value <= limits["above"]:
        raise UserError(f"{key}={value} is too small: it must be above {limits['above']}")
    if "at_most" in limits and value > limits["at_most"]:
        raise UserError(f"{key}={value} is too large: it must be at most {limits['at_most']}")
