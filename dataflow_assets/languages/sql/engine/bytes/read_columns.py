"""Many parsed bodies of one layout at once: the values that `Reader` reads, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any

from dataflow_assets.languages.sql.engine.bytes.layout import FlinkLayout
from dataflow_assets.languages.sql.engine.bytes.read import FlinkReader
from dataflow_assets.languages.sql.engine.bytes.read_times import Read
from dataflow_assets.languages.sql.engine.numbers import bounds
from dataflow_assets.languages.sql.engine.types import FlinkType


class ColumnsReader:
    """Made once for each task. Where one of the bodies is not read, none of them is."""

    def __init__(self, layout: FlinkLayout, used: frozenset[int] | None = None) -> None:
        """`used`: the columns that somebody looks at, all by default; the others become null."""
        self._layout, self._reader = layout, FlinkReader(layout, used)
        self._used = frozenset(range(len(layout.names))) if used is None else used

    def __call__(self, bodies: Sequence[Any]) -> list[Sequence[Any]]:
        """The columns in the order of the layout.

        Raises ValueError or OverflowError where a body is to be skipped or has no value for a
        column: bodies are to be read one by one then.
        """
        nothing = [None] * len(bodies)
        columns: list[Sequence[Any]] = []
        for at, values in enumerate(self._fields(bodies)):
            read, kind = self._reader.reads[at], self._layout.types[at]
            columns.append(_read(values, read, kind) if at in self._used else nothing)
        return columns

    def or_else(
        self, bodies: Sequence[Any], at: int, values: Sequence[Any], others: Sequence[Any]
    ) -> Sequence[Any]:
        """The values of a column, and other ones where a body does not have it at all."""
        if self._layout.kind != "json":
            return values
        name = self._layout.names[at]
        there = [name in body for body in bodies]
        if all(there):
            return values
        pairs = zip(there, values, others, strict=True)
        return [value if known else other for known, value, other in pairs]

    def _fields(self, bodies: Sequence[Any]) -> list[Sequence[Any]]:
        layout = self._layout
        if layout.kind in ("csv", "raw"):
            rows = list(map(self._reader.fields, bodies))
            return list(zip(*rows, strict=True)) if rows else [()] * len(layout.names)
        if not set(map(type, bodies)) <= {dict}:
            raise ValueError("a record is not a JSON object")
        if layout.fail_on_missing:
            names = set(layout.names)
            if not all(names <= body.keys() for body in bodies):
                raise ValueError("a field is missing")
        columns = enumerate(layout.names)
        return [
            [body.get(name) for body in bodies] if at in self._used else () for at, name in columns
        ]


def _read(values: Sequence[Any], read: Read, kind: FlinkType) -> Sequence[Any]:
    if _is_read(values, kind):
        return values
    return [None if value is None else read(value) for value in values]


def _is_read(values: Sequence[Any], kind: FlinkType) -> bool:
    classes = set(map(type, values)) - {NoneType}
    if kind.text:
        return classes <= {str}
    if not kind.integer or not classes <= {int}:
        return False
    least, most = bounds(kind.kind)
    filled = [value for value in values if value is not None]
    return not filled or (least <= min(filled) and max(filled) <= most)
