"""What a source reads, as Trino describes it now: a table or a query, and its order."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from dataflow_assets.connectors.trino import types
from dataflow_assets.connectors.trino.client import Client, quote
from dataflow_assets.connectors.trino.encode import typed
from dataflow_assets.connectors.trino.options import TrinoSourceOptions
from dataflow_assets.connectors.trino.table.table import Column, Place, find
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.free_names import free_stem
from dataflow_assets.sdk.polling.conditions import Conditions

_ZONED, _NAIVE = "timestamp with time zone", "timestamp"
_FLOATS = frozenset({"real", "double"})
_UNORDERED = ("varbinary", "json", "array", "row", "map")
_LONGEST = 9  # digits of a second that are compared


@dataclass(frozen=True)
class SourceColumn:
    """One column of the order."""

    column: Column

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def quoted(self) -> str:
        return quote(self.column.name)

    @property
    def rank(self) -> str:
        """The SQL of its value, null where that has no place in the order: no NaN has one."""
        if self.column.kind.name in _FLOATS:
            return f"if(is_nan({self.quoted}), NULL, {self.quoted})"
        return self.quoted

    @property
    def nullable(self) -> bool:
        """Always: not every catalog says so of every column."""
        return True

    @property
    def digits(self) -> int | None:
        """Of a second, that it keeps; None where it holds no point in time."""
        kind = self.column.kind
        if kind.name == "date":
            return 0
        return min(kind.digits, _LONGEST) if kind.name in {_ZONED, _NAIVE} else None

    @property
    def is_day(self) -> bool:
        return self.column.kind.name == "date"

    @property
    def is_zoned(self) -> bool:
        """Returns whether it holds points in time, and not the time of some zone."""
        return self.column.kind.name == _ZONED

    def text(self, expression: str) -> str:
        """The SQL of a value as it stands in a position: times in UTC."""
        if self.is_zoned:
            return f"CAST(at_timezone({expression}, 'UTC') AS varchar)"
        return f"CAST({expression} AS varchar)"

    def value(self, text: str) -> str:
        """The SQL of a value of the column's type, from a position."""
        return typed(text, self.column.kind.spelled)


@dataclass(frozen=True)
class Relation:
    """What is read. `base`: what stands behind FROM. `identity`: the table's; None for a query."""

    base: str
    columns: tuple[Column, ...]
    order: SourceColumn | None
    change: SourceColumn | None
    identity: str | None = None

    @property
    def conditions(self) -> Conditions[SourceColumn]:
        """Which rows a part has; of a relation that has an order."""
        assert self.order is not None  # noqa: S101 - else nothing orders the rows
        return Conditions(self.change, self.order, SourceColumn.value)

    @property
    def alias(self) -> str:
        """The beginning of aliases: as a column's name one would stand for it in conditions."""
        return free_stem((column.name for column in self.columns), "#")

    def fields(self) -> list[pa.Field]:
        return [types.field(column.name, column.type) for column in self.columns]


def describe(client: Client, source: TrinoSourceOptions) -> Relation:
    """The source's relation as of now. Raises PermanentError where it cannot be read this way."""
    if source.query:
        base, own = source.bare_query(), None
        columns = _of_query(client, base)
    else:
        place = place_of(source)
        table = find(client, place)
        if table is None:
            raise source.no_table()
        base, own, columns = place.quoted, table.identity, table.columns
    if source.verbatim:
        return Relation(base, columns, None, None, own)
    named = {column.name: column for column in columns}
    order, change = source.order_column(named), source.change_column(named)
    return Relation(base, columns, _ordered(order), _ordered(change) if change else None, own)


def place_of(source: TrinoSourceOptions) -> Place:
    """Returns where the table is. Secrets must be resolved."""
    schema, name = source.place()
    return Place(source.catalog or "", schema, name)


def _of_query(client: Client, base: str) -> tuple[Column, ...]:
    found = client.described(f"SELECT * FROM {base}")  # noqa: S608 - the manifest's own query
    return tuple(Column(name, kind) for name, kind in found)


def _ordered(column: Column) -> SourceColumn:
    kind = column.kind
    if kind.has(*_UNORDERED) or (kind.name in {_ZONED, _NAIVE} and kind.digits > _LONGEST):
        raise PermanentError(
            f"column {column.name} has the type {kind.spelled}, by which rows cannot be put in "
            "order: name another one as orderByColumn or changeTrackingColumn"
        )
    return SourceColumn(column)
