"""The table or query that a source reads, as Trino describes it now, and its order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.trino import types
from dataflow_assets.connectors.trino.client import TrinoClient, quote
from dataflow_assets.connectors.trino.options import TrinoSourceOptions
from dataflow_assets.connectors.trino.table.table import TrinoPlace, find
from dataflow_assets.connectors.trino.type_names import TrinoType
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.sql_table import SqlColumn, SqlRelation

_ZONED, _NAIVE = "timestamp with time zone", "timestamp"
_FLOATS = frozenset({"real", "double"})
_UNORDERED = ("varbinary", "json", "array", "row", "map")
_LONGEST = 9  # digits of a second that are compared


@dataclass(frozen=True)
class TrinoColumn(SqlColumn):
    """One column; `type` as Trino spells it."""

    name: str
    type: str

    @property
    def kind(self) -> TrinoType:
        return TrinoType.of(self.type)

    @property
    @override
    def sql(self) -> str:
        return quote(self.name)

    @property
    @override
    def type_name(self) -> str:
        return self.type

    @property
    @override
    def selection(self) -> str:
        return types.select_expression(self.sql, self.type)

    @override
    def field(self, name: str) -> pa.Field:
        return types.field(name, self.type)

    @property
    @override
    def rank(self) -> str:
        return (
            f"if(is_nan({self.sql}), NULL, {self.sql})" if self.kind.name in _FLOATS else self.sql
        )

    @property
    @override
    def nullable(self) -> bool:
        """Returns True: not every catalog says so of every column."""
        return True

    @property
    @override
    def digits(self) -> int | None:
        if self.is_day:
            return 0
        return min(self.kind.digits, _LONGEST) if self.kind.name in {_ZONED, _NAIVE} else None

    @property
    @override
    def is_day(self) -> bool:
        return self.kind.name == "date"

    @property
    @override
    def is_zoned(self) -> bool:
        return self.kind.name == _ZONED

    @override
    def text(self, expression: str) -> str:
        value = f"at_timezone({expression}, 'UTC')" if self.is_zoned else expression
        return f"CAST({value} AS varchar)"


def describe(client: TrinoClient, source: TrinoSourceOptions) -> SqlRelation[TrinoColumn]:
    """Describes the source as of now. Raises PermanentError where it cannot be read this way."""
    if source.query:
        base, own = source.bare_query(), None
        rows: Sequence[tuple[str, str]] = client.describe(f"SELECT * FROM {base}")  # noqa: S608 - the manifest's own query
    else:
        place = place_of(source)
        table = find(client, place)
        if table is None:
            raise source.no_table()
        base, own = place.quoted_name, table.identity
        rows = [(column.name, column.type) for column in table.columns]
    columns = tuple(TrinoColumn(name, kind) for name, kind in rows)
    if source.verbatim:
        return SqlRelation(base, columns, identity=own)
    by_name = {column.name: column for column in columns}
    order, change = source.order_column(by_name), source.change_column(by_name)
    changes = (change,) if change else ()
    _check_order(order, *changes)
    return SqlRelation(base, columns, order, changes, own)


def place_of(source: TrinoSourceOptions) -> TrinoPlace:
    """Returns where the table is. Secrets must be resolved."""
    schema, name = source.place()
    return TrinoPlace(source.catalog or "", schema, name)


def _check_order(*columns: TrinoColumn) -> None:
    for column in columns:
        kind = column.kind
        if kind.has(*_UNORDERED) or (kind.name in {_ZONED, _NAIVE} and kind.digits > _LONGEST):
            raise PermanentError(
                f"column {column.name} has the type {kind.spelling}, by which rows cannot be "
                "put in order: name another one as orderByColumn or changeTrackingColumn"
            )
