"""Columns of a PRIMARY KEY: which column of a row each of them is.

Below `inserts` and `ranked_keys`, which both ask: `ranked_keys` imports `inserts`.
"""

from __future__ import annotations

from dataflow_assets.languages.sql.engine.expressions import (
    CastTo,
    Expression,
    FlinkColumn,
    columns,
    lasting,
)
from dataflow_assets.languages.sql.engine.types import keeps_apart

OTHER = -1
"""In place of the place of a column: something that is computed."""


def column_at(expression: Expression) -> int | None:
    """Which column of a row it is; None for what all rows have, `OTHER` for anything else.

    A column that is cast without becoming equal to another value, as Flink casts by itself into a
    larger type, is that column.
    """
    if not columns(expression) and lasting(expression):
        return None
    if (
        isinstance(expression, CastTo)
        and not expression.tries
        and isinstance(expression.given, FlinkColumn)
    ):
        return expression.given.at if keeps_apart(expression.given.type, expression.type) else OTHER
    return expression.at if isinstance(expression, FlinkColumn) else OTHER
