"""A user's own code, named on the command line as `package.module:Name`."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from lightzero_lite.types import UserError

_NOT_THE_USERS = (str(Path(__file__).resolve().parents[1]), sys.prefix, sys.base_prefix)


def load(name: str, option: str) -> Callable[..., Any]:
    """Import what `package.module:Name` names; modules of the current folder are found as well.

    Args:
        name: Module and class or function.
        option: How the user named it, for messages.

    Raises:
        UserError: There is no such thing, or its module cannot be imported.
    """
    module_name, _, attribute = name.partition(":")
    if not (module_name and attribute):
        raise UserError(f"{option}: write it as package.module:Class")
    find_in_current_folder()
    with one_line(option):
        module = importlib.import_module(module_name)
    found = getattr(module, attribute, None)
    if not callable(found):
        raise UserError(f"{option}: {module_name} has no class or function {attribute}")
    return cast(Callable[..., Any], found)


def find_in_current_folder() -> None:
    """Let imports find the user's modules, as `python -m` does.

    Neither a script in another folder nor the console command looks in the current folder.
    """
    folder = str(Path.cwd())
    if not {"", folder} & set(sys.path):
        sys.path.insert(0, folder)


@contextmanager
def one_line(option: str) -> Iterator[None]:
    """Turn whatever a user's code raises into one line that says what and where.

    Raises:
        UserError: The code raised.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # Anything can come from code that is not ours.
        raise UserError(f"{option}: {described(error)}") from error


def described(error: Exception) -> str:
    """Return an exception's kind, message and, where it is the user's, its place, on one line."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    for place in reversed(traceback.extract_tb(error.__traceback__)):
        if os.sep in place.filename and not place.filename.startswith(_NOT_THE_USERS):
            return f"{text} ({Path(place.filename).name}, line {place.lineno})"
    return text
