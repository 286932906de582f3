"""Checks that a table tells keys apart that a query does: else groups would become one row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from dataflow_assets.contracts import Kind, Note, kind_of
from dataflow_assets.errors import PermanentError
from dataflow_assets.languages.sql.engine.expressions import CastTo, Expression, FlinkColumn, Shared
from dataflow_assets.languages.sql.engine.plan import FlinkOutput
from dataflow_assets.languages.sql.engine.types import (
    BITS,
    MOST_DIGITS,
    STRING,
    FlinkType,
    as_decimal,
)
from dataflow_assets.languages.sql.engine.view import ViewPlan

_EXACT_IN_DOUBLE = 32  # bits of whole numbers
_BOUNDS = 2  # columns behind the cells; `window_time` has milliseconds
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def narrow(view: ViewPlan) -> Iterator[FlinkOutput]:
    """The columns of the target, with types that say no more than their values keep to."""
    for one in view.outputs:
        expression = one.expression
        yield replace(one, expression=replace(expression, type=_narrow(view, expression)))


def _narrow(view: ViewPlan, expression: Expression) -> FlinkType:
    """A CHAR is filled by a cast alone; bounds of windows of whole seconds have no digits."""
    way = [*_way(view, expression)]
    if expression.type.kind == "CHAR" and not any(isinstance(one, CastTo) for one in way):
        return STRING
    if view.windows is not None and view.windows.whole_seconds and _is_bound(view, way):
        return replace(expression.type, length=0)
    return expression.type


def _way(view: ViewPlan, expression: Expression) -> Iterator[Expression]:
    yield (expression := _whole(expression, view.shared))
    for stage in reversed(view.stages):
        if not isinstance(expression, FlinkColumn) or expression.at >= len(stage.keys):
            return
        yield (expression := _whole(stage.keys[expression.at], stage.shared))


def _whole(expression: Expression, shared: Sequence[Expression]) -> Expression:
    return shared[expression.at] if isinstance(expression, Shared) else expression


def _is_bound(view: ViewPlan, way: Sequence[Expression]) -> bool:
    first = way[-1]
    if len(way) <= len(view.stages) or not isinstance(first, FlinkColumn):
        return False
    return 0 <= first.at - len(view.cells) < _BOUNDS


def check(
    outputs: Iterable[FlinkOutput], target: pa.Schema, name: str, accepted: Collection[str] = ()
) -> None:
    """Raises PermanentError for a column of the key in which values that differ may be equal.

    Called on the driver when a branch of a query with state opens.

    Args:
        outputs: of the query.
        target: the columns of the table, as its sink describes them.
        name: of the table.
        accepted: the columns of which the file says that such values may be equal.
    """
    for one in outputs:
        at = target.get_field_index(one.name) if one.key and one.name not in accepted else -1
        if at >= 0 and not _tells_apart(one.expression.type, target.field(at)):
            raise PermanentError(_message(one, target.field(at), name))


def _message(one: FlinkOutput, field: pa.Field, name: str) -> str:
    return (
        f"the column {one.name} of {name} may store values as equal that the query tells apart, "
        f"which are {one.expression.type}: several groups would be one row, with the values of one "
        f"of them. Give the column a type that keeps them as they are{_cast(one, field)}. Or "
        f"accept it: write SET 'dataflow.acceptEqualKeys' = '{one.name}'; in front of the INSERT, "
        "and of groups that are one row the one that is written last counts"
    )


def _cast(one: FlinkOutput, field: pa.Field) -> str:
    if not one.expression.type.text:
        return f", or CAST the {one.expression.type} in the query to what the column stores"
    if Note.PADDED.marks(field):
        return ", or GROUP BY CAST(... AS CHAR(n)), which fills texts with spaces"
    return ""


def _tells_apart(kind: FlinkType, field: pa.Field) -> bool:
    if Note.LOOSE.marks(field) or kind_of(field) == Kind.UUID:
        return kind.kind == "CHAR" and Note.PADDED.marks(field)
    numeric = kind_of(field) == Kind.NUMERIC
    if kind.exact:
        return as_decimal(kind).scale <= _digits(field) if numeric else _holds(kind, field)
    if kind.kind in ("FLOAT", "DOUBLE"):
        is_double: bool = pa.types.is_float64(field.type) or pa.types.is_string(field.type)
        return is_double or (kind.kind == "FLOAT" and pa.types.is_float32(field.type))
    if kind.moment or kind.kind == "TIME":
        return kind.length <= _digits(field) and not pa.types.is_date(field.type)
    return not kind.text or (pa.types.is_string(field.type) and not numeric)


def _holds(kind: FlinkType, field: pa.Field) -> bool:
    """Whole numbers and decimals: all of their digits."""
    if pa.types.is_floating(field.type):
        small = kind.integer and BITS[kind.kind] <= _EXACT_IN_DOUBLE
        return small and pa.types.is_float64(field.type)
    if pa.types.is_string(field.type) or pa.types.is_integer(field.type):
        return kind.integer or pa.types.is_string(field.type)
    return as_decimal(kind).scale <= _digits(field)


def _digits(field: pa.Field) -> int:
    declared = Note.DIGITS.of(field)
    if declared is not None:
        return int(declared)
    if pa.types.is_decimal(field.type):
        return int(field.type.scale)
    if pa.types.is_timestamp(field.type) or pa.types.is_time(field.type):
        return _DIGITS[field.type.unit]
    return MOST_DIGITS
