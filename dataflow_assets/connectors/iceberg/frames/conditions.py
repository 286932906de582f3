"""Partitions of an asset as a filter of the rows of their table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Context, Decimal

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    Not,
    Or,
    Reference,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    TimestampType,
    TimestamptzType,
)

from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.table_partitions import Dimension, Partitions, Range

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?", re.ASCII)
_MOST_DIGITS = 38
_TIMES: dict[IcebergType, Callable[[Dimension], list[Range]]] = {
    DateType(): Dimension.days,
    TimestampType(): Dimension.clocks,
    TimestamptzType(): Dimension.instants,
}


def condition(partitions: Partitions | None, table: object, schema: Schema) -> BooleanExpression:
    """Returns what is true for their rows.

    Args:
        partitions: of an asset; None: all rows.
        table: as errors name it.
        schema: of the table.

    Raises:
        PermanentError: the table has no such column, or its type cannot tell them apart.
    """
    if partitions is None:
        return AlwaysTrue()
    partitions.check(table, schema.column_names)
    try:
        whole = _any(
            _all(_dimension(schema, d) for d in product) for product in partitions.products
        )
        bind(schema, whole, case_sensitive=True)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise PermanentError(
            f"metadata partition_expr: a partition key is no value of its column in {table}: "
            f"{error}"
        ) from None
    return whole


def others(partitions: Partitions, condition: BooleanExpression) -> BooleanExpression:
    """Returns what is true for all other rows, also those without a value."""
    return _any([Not(condition), *(IsNull(term=Reference(name)) for name in partitions.columns)])


def _dimension(schema: Schema, dimension: Dimension) -> BooleanExpression:
    name = dimension.column
    kind = schema.find_type(name)
    ranges = _TIMES.get(kind)
    term = Reference(name)
    if not dimension.windows or ranges is None:
        return In(term=term, values={literal(_value(kind, key)) for key in dimension.keys})
    return _any(
        _all(
            [
                GreaterThanOrEqual(term=term, value=literal(_text(start))),
                LessThan(term=term, value=literal(_text(end))),
            ]
        )
        for start, end in ranges(dimension)
    )


def _value(kind: IcebergType, key: str) -> str | int | Decimal:
    """The key as PyIceberg reads it without a guess; it would take 1.5 for the whole number 1.

    Raises ValueError for what is no number of such a column: its rows are another partition's.
    """
    if not isinstance(kind, (IntegerType, LongType, DecimalType)):
        return key
    if not _NUMBER.fullmatch(key):
        raise ValueError(f"{key} is not a number")
    if not isinstance(kind, DecimalType):
        return int(key)
    number, step = Decimal(key), Decimal(1).scaleb(-kind.scale)
    scaled = number.quantize(step, context=Context(prec=_MOST_DIGITS))
    if scaled != number:
        raise ValueError(f"{key} has more digits than {kind}")
    return scaled


def _text(value: date | datetime) -> str:
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    return value.isoformat()


def _any(each: Iterable[BooleanExpression]) -> BooleanExpression:
    expression: BooleanExpression = AlwaysFalse()
    for one in each:
        expression = Or(expression, one)
    return expression


def _all(each: Iterable[BooleanExpression]) -> BooleanExpression:
    expression: BooleanExpression = AlwaysTrue()
    for one in each:
        expression = And(expression, one)
    return expression
