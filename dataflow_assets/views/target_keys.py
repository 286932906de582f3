"""Whether a table tells keys apart that a query tells apart: else several groups were one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from dataflow_assets.contracts import DIGITS, LOOSE, kind_of
from dataflow_assets.errors import PermanentError
from dataflow_assets.sql.expressions import Column, Expression
from dataflow_assets.sql.plan import Output
from dataflow_assets.sql.types import BITS, MOST_DIGITS, Type, as_decimal
from dataflow_assets.sql.view import ViewPlan

_EXACT_IN_DOUBLE = 32  # bits of whole numbers
_BOUNDS = 2  # columns behind the cells; `window_time` has milliseconds
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def narrowed(view: ViewPlan) -> Iterator[Output]:
    """The columns of the target; bounds of windows of whole seconds have no digits of a second."""
    for one in view.outputs:
        found, windows = one.expression, view.windows
        if windows is not None and windows.whole_seconds and _is_bound(view, found):
            found = replace(found, type=replace(found.type, length=0))
        yield replace(one, expression=found)


def _is_bound(view: ViewPlan, found: Expression) -> bool:
    """Whether it is `window_start` or `window_end`, passed on by every stage."""
    for stage in reversed(view.stages):
        if not isinstance(found, Column) or found.at >= len(stage.keys):
            return False
        found = stage.keys[found.at]
    return isinstance(found, Column) and 0 <= found.at - len(view.cells) < _BOUNDS


def check(outputs: Iterable[Output], target: pa.Schema, name: str) -> None:
    """Raises PermanentError for a column of the key in which values that differ may be equal.

    Called on the driver when a branch of a query with state opens.

    Args:
        outputs: of the query.
        target: the columns of the table, as its sink describes them.
        name: of the table.
    """
    for one in outputs:
        at = target.get_field_index(one.name) if one.key else -1
        if at >= 0 and not _tells_apart(one.expression.type, target.field(at)):
            raise PermanentError(_message(one, name))


def _message(one: Output, name: str) -> str:
    kind = one.expression.type
    advice = "" if kind.text else f", or CAST the {kind} in the query to what the column stores"
    return (
        f"the column {one.name} of {name} may store values as equal that the query tells apart, "
        f"which are {kind}: several groups would be one row, with the values of one of them. Give "
        f"the column a type that keeps them as they are{advice}"
    )


def _tells_apart(kind: Type, field: pa.Field) -> bool:
    if _is_loose(field):
        return False
    numeric = kind_of(field) == b"numeric"
    if kind.exact:
        return as_decimal(kind).scale <= _digits(field) if numeric else _holds(kind, field)
    if kind.kind in ("FLOAT", "DOUBLE"):
        return _is_double(field.type) or (kind.kind == "FLOAT" and pa.types.is_float32(field.type))
    if kind.moment or kind.kind == "TIME":
        return kind.length <= _digits(field) and not pa.types.is_date(field.type)
    return not kind.text or (pa.types.is_string(field.type) and not numeric)


def _is_loose(field: pa.Field) -> bool:
    return LOOSE in (field.metadata or {}) or kind_of(field) == b"uuid"


def _is_double(kind: pa.DataType) -> bool:
    found: bool = pa.types.is_float64(kind) or pa.types.is_string(kind)
    return found


def _holds(kind: Type, field: pa.Field) -> bool:
    """Whole numbers and decimals: all of their digits."""
    if pa.types.is_floating(field.type):
        small = kind.integer and BITS[kind.kind] <= _EXACT_IN_DOUBLE
        return small and pa.types.is_float64(field.type)
    if pa.types.is_string(field.type) or pa.types.is_integer(field.type):
        return kind.integer or pa.types.is_string(field.type)
    return as_decimal(kind).scale <= _digits(field)


def _digits(field: pa.Field) -> int:
    """Behind the point, or of a second."""
    declared = (field.metadata or {}).get(DIGITS)
    if declared is not None:
        return int(declared)
    if pa.types.is_decimal(field.type):
        return int(field.type.scale)
    if pa.types.is_timestamp(field.type) or pa.types.is_time(field.type):
        return _DIGITS[field.type.unit]
    return MOST_DIGITS
