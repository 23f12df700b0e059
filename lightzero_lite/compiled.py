"""The one way in which this package compiles a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function, *, may_reorder: bool = False) -> Function:
    """Compile a function with numba at its first call, and keep the machine code on disk.

    Where neither the package's folder nor the user's cache folder can be written, every process
    compiles for itself. Division follows numpy: by zero it gives inf or nan, not an exception.

    Args:
        function: What to compile.
        may_reorder: Let sums be taken in any fixed order, so that they use vector instructions.
    """
    fastmath = {"reassoc", "contract", "nsz"} if may_reorder else False
    try:
        jit = numba.njit(cache=True, error_model="numpy", fastmath=fastmath)
        return cast(Function, jit(function))
    except RuntimeError:
        return cast(Function, numba.njit(error_model="numpy", fastmath=fastmath)(function))
