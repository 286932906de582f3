"""The model of a function: its types, its results, and its rows of the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.types import FlinkType

Row = Sequence[Any]
Evaluate = Callable[[Row], Any]
"""From a row to a value. Raises ValueError with a sentence where there is none."""
_START = datetime(1970, 1, 1, tzinfo=UTC)
NO_VALUE = (ValueError, OverflowError, ArithmeticError)
"""What an expression raises for a row for which there is no value."""


@dataclass(frozen=True)
class Environment:
    """The values besides arguments that results of functions depend on."""

    zone: str = "UTC"
    """`table.local-time-zone`."""
    now: datetime = field(default=_START, compare=False)
    """When the micro-batch was planned."""

    @property
    def local(self) -> ZoneInfo:
        return ZoneInfo(self.zone)


@dataclass(frozen=True)
class Resolved:
    """A function for arguments of given types."""

    type: FlinkType
    call: Callable[..., Any]
    """From values, none of them null, to a value; with `whole` from evaluations to another."""
    nulls: bool = False
    """`call` takes nulls; else the result of a null is null."""
    whole: bool = False


Resolve = Callable[[Sequence[FlinkType], Environment], Resolved]
"""Raises ValueError with a sentence where the arguments do not fit."""


@dataclass(frozen=True)
class Function:
    """One function or operator of the closed list."""

    name: str
    usage: str
    """For the reference: `UPPER(text)`."""
    says: str
    resolve: Resolve = field(repr=False)
    examples: tuple[tuple[str, str | None], ...] = ()
    """SQL and its result as CAST to STRING writes it; None: null."""
    group: str = ""
    """Under which the reference has it."""


def holds(condition: Evaluate, row: Row, clause: str) -> bool:
    """Returns whether it is true. Raises RejectedRecord, which names the clause."""
    try:
        return condition(row) is True
    except NO_VALUE as error:
        raise RejectedRecord("step", f"{clause}: {error}") from None
