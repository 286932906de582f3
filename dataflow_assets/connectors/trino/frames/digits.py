"""Times of a frame that a column of fewer digits of a second would round: refused by its name."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.trino.table.table import Column
from dataflow_assets.connectors.trino.type_names import TrinoType
from dataflow_assets.formats.columns import refusal
from dataflow_assets.formats.iso_forms import has_more_digits


def refuse_rounding(place: object, rows: pa.RecordBatch, columns: Iterable[Column]) -> None:
    """Called in tasks, for each batch in the columns' types.

    Raises:
        PermanentError: a time, also inside another value, has more digits than its column.
    """
    for column in columns:
        if finer := _finer(column.kind, rows.column(column.name)):
            reason = f"{finer[0]} has more digits of a second than {column.kind.spelling}"
            raise refusal(place, f"column {column.name}: {reason}")


def _finer(kind: TrinoType, values: pa.Array) -> list[pa.Scalar]:
    """The first such value, if there is any."""
    if pa.types.is_list(values.type):
        return _finer(kind.inner[0], pc.list_flatten(values))
    if pa.types.is_struct(values.type) or pa.types.is_map(values.type):
        inside = values.flatten() if pa.types.is_struct(values.type) else _entries(values)
        members = zip(kind.inner, inside, strict=True)
        return next(filter(None, (_finer(*member) for member in members)), [])
    if not (pa.types.is_timestamp(values.type) or pa.types.is_time(values.type)):
        return []
    return list(values.filter(has_more_digits(values, kind.digits))[:1])


def _entries(maps: pa.MapArray) -> list[pa.Array]:
    lists = [pa.ListArray.from_arrays(maps.offsets, each) for each in (maps.keys, maps.items)]
    return [pc.list_flatten(each) for each in lists]
