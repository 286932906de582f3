"""The table or query that a source reads, as the server describes it now, and its order."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.client import Client, literal, query_rows, quote
from dataflow_assets.connectors.clickhouse.options import ClickhouseSourceOptions
from dataflow_assets.connectors.clickhouse.table.table import NO_UUID
from dataflow_assets.connectors.clickhouse.type_names import ClickhouseType
from dataflow_assets.sdk.sql_table import SqlColumn, SqlRelation

_TABLE = """
SELECT toString(uuid), toString(metadata_modification_time) FROM system.tables
WHERE database = {database:String} AND name = {table:String}
"""
_COLUMNS = """
SELECT name, type, default_kind FROM system.columns
WHERE database = {database:String} AND table = {table:String} ORDER BY position
"""
_FLOATS = frozenset({"Float32", "Float64", "BFloat16"})
_HIDDEN = frozenset({"MATERIALIZED", "ALIAS", "EPHEMERAL"})  # from SELECT *


@dataclass(frozen=True)
class ClickhouseColumn(SqlColumn):
    """One column; `type` as ClickHouse spells it."""

    name: str
    type: str
    hidden: bool = False

    @property
    @override
    def type_name(self) -> str:
        return self.type

    @property
    @override
    def sql(self) -> str:
        return quote(self.name)

    @property
    @override
    def selection(self) -> str:
        return types.select_expression(self.name, self.type)

    @override
    def field(self, name: str) -> pa.Field:
        return types.field(name, self.type)

    @property
    @override
    def rank(self) -> str:
        return f"if(isNaN({self.sql}), NULL, {self.sql})" if self._is_float else self.sql

    @property
    @override
    def nullable(self) -> bool:
        return ClickhouseType.of(self.type).nullable or self._is_float

    @property
    def _is_float(self) -> bool:
        return ClickhouseType.of(self.type).bare.name in _FLOATS

    @property
    @override
    def digits(self) -> int | None:
        return types.digits(self.type)

    @property
    @override
    def is_day(self) -> bool:
        return ClickhouseType.of(self.type).bare.name in types.DAYS

    @property
    @override
    def is_zoned(self) -> bool:
        """Returns True: whatever zone a type names, its values are points in time."""
        return True

    @property
    def type_in_positions(self) -> str:
        """The type that its values have as text in a position: times in UTC, to the last digit."""
        if self.digits is None or self.is_day:
            return ClickhouseType.of(self.type).bare.spelling
        return f"DateTime64({self.digits}, 'UTC')" if self.digits else "DateTime('UTC')"

    @override
    def text(self, expression: str) -> str:
        return f"toString(CAST({expression}, {literal(f'Nullable({self.type_in_positions})')}))"


def identity(client: Client, source: ClickhouseSourceOptions) -> str | None:
    """Returns the id of the table itself; None where there is none."""
    database, table = source.place()
    tables = query_rows(client, _TABLE, {"database": database, "table": table})
    if not tables:
        return None
    uuid, created = tables[0]
    return str(uuid) if uuid != NO_UUID else f"{database}.{table} of {created}"


def describe(client: Client, source: ClickhouseSourceOptions) -> SqlRelation[ClickhouseColumn]:
    """Describes the source as of now. Raises PermanentError where it cannot be read this way."""
    if source.query:
        base, own = source.bare_query(), None
        described = query_rows(client, f"DESCRIBE TABLE (SELECT * FROM {base})")  # noqa: S608
        columns = [ClickhouseColumn(name, kind) for name, kind, *_ in described]
    else:
        database, table = source.place()
        own = identity(client, source)
        if own is None:
            raise source.no_table()
        base = quote(database, table) + (" FINAL" if source.final else "")
        rows = query_rows(client, _COLUMNS, {"database": database, "table": table})
        columns = [ClickhouseColumn(name, kind, kept in _HIDDEN) for name, kind, kept in rows]
    by_name = {column.name: column for column in columns}
    shown = tuple(column for column in columns if not column.hidden)
    if source.verbatim:
        return SqlRelation(base, shown, identity=own)
    change = source.change_column(by_name)
    changes = (change,) if change else ()
    return SqlRelation(base, shown, source.order_column(by_name), changes, own)
