"""Rejects the record of a row for which an expression has no value."""

from __future__ import annotations

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.languages.sql.engine.function import Evaluate, Row

NO_VALUE = (ValueError, OverflowError, ArithmeticError)
"""What an expression raises for a row for which there is no value."""


def holds(condition: Evaluate, row: Row, clause: str) -> bool:
    """Returns whether it is true. Raises RejectedRecord, which names the clause."""
    try:
        return condition(row) is True
    except NO_VALUE as error:
        raise RejectedRecord("step", f"{clause}: {error}") from None
