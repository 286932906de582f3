"""Errors that trying again does not fix: those of code, not of servers."""

from __future__ import annotations

import builtins
import traceback
from pathlib import Path

import msgspec
import pyarrow as pa

PACKAGE = "dataflow_assets"
LONGEST = 400
_KINDS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
    pa.ArrowException,
)
_OUTSIDE = (OSError, MemoryError)
"""A certificate that does not fit is a ValueError as well."""


def is_defect(error: BaseException) -> bool:
    """True where the same call would fail again: a mistake in code, or a value it cannot handle.

    Called in tasks, and by sinks that look for the row at fault.

    Args:
        error: whatever was raised; no error of ours.

    Returns:
        False where a network, a disk or memory may be the reason.
    """
    return isinstance(error, _KINDS) and not isinstance(error, _OUTSIDE)


def is_defect_of(name: str) -> bool:
    """True where the class alone tells that an error is a defect.

    Called on the driver, for what has ended a task.

    Args:
        name: the class as a traceback writes it, such as `pyarrow.lib.ArrowInvalid`.

    Returns:
        False for classes of others than Python, Arrow and msgspec.
    """
    module, _, short = name.rpartition(".")
    homes = {"": builtins, "pyarrow.lib": pa, "msgspec": msgspec}
    kind = getattr(homes.get(module), short, None)
    return isinstance(kind, type) and issubclass(kind, _KINDS) and not issubclass(kind, _OUTSIDE)


def describe(error: BaseException) -> str:
    """An error as a clause: its kind, its words, and the line of ours that it came through.

    Called in tasks, for the message that a person reads.

    Args:
        error: with its traceback.

    Returns:
        Such as `ArrowInvalid: offset overflow (formats/rows.py:49)`.
    """
    words = " ".join(str(error).split())[:LONGEST]
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    place = _place(error)
    return f"{text} ({place})" if place else text


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if PACKAGE in Path(f.filename).parts]
    if not ours:
        return ""
    parts = Path(ours[-1].filename).parts
    inside = parts[len(parts) - parts[::-1].index(PACKAGE) :]
    return f"{'/'.join(inside)}:{ours[-1].lineno}"
