"""What a source reads, as the server describes it now: a table or a query, and its order."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.client import Client, literal, query_rows, quote
from dataflow_assets.connectors.clickhouse.options import ClickhouseSourceOptions
from dataflow_assets.connectors.clickhouse.type_names import Type
from dataflow_assets.sdk.free_names import free_stem

NO_UUID = "00000000-0000-0000-0000-000000000000"  # of tables outside Atomic databases
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
class SourceColumn:
    """One column; `type` as ClickHouse spells it."""

    name: str
    type: str
    hidden: bool = False

    @property
    def quoted(self) -> str:
        return quote(self.name)

    @property
    def rank(self) -> str:
        """The SQL of its value, null where that has no place in the order: no NaN has one."""
        return f"if(isNaN({self.quoted}), NULL, {self.quoted})" if self._is_float else self.quoted

    @property
    def nullable(self) -> bool:
        """Returns whether NULL may stand in it, or NaN."""
        return Type.of(self.type).nullable or self._is_float

    @property
    def _is_float(self) -> bool:
        return Type.of(self.type).bare.name in _FLOATS

    @property
    def digits(self) -> int | None:
        """Of a second, that it keeps; None where it holds no point in time."""
        return types.digits(self.type)

    @property
    def is_day(self) -> bool:
        return Type.of(self.type).bare.name in types.DAYS

    @property
    def kept(self) -> str:
        """The type that its values have as text in a position: times in UTC, to the last digit."""
        if self.digits is None or self.is_day:
            return Type.of(self.type).bare.spelled
        return f"DateTime64({self.digits}, 'UTC')" if self.digits else "DateTime('UTC')"

    def text(self, expression: str) -> str:
        """The SQL of a value of this column as it stands in a position."""
        return f"toString(CAST({expression}, {literal(f'Nullable({self.kept})')}))"


@dataclass(frozen=True)
class Relation:
    """What is read. `base`: what stands behind FROM. `identity`: the table's; None for a query."""

    base: str
    columns: tuple[SourceColumn, ...]
    order: SourceColumn | None
    change: SourceColumn | None
    identity: str | None = None

    @property
    def alias(self) -> str:
        """The beginning of aliases: as a column's name one would stand for it in conditions."""
        named = [*self.columns, *filter(None, (self.order, self.change))]
        return free_stem((column.name for column in named), "#")

    def fields(self) -> list[pa.Field]:
        return [types.field(column.name, column.type) for column in self.columns]


def identity(client: Client, source: ClickhouseSourceOptions) -> str | None:
    """The id of the table itself; None where there is none."""
    database, table = source.place()
    found = query_rows(client, _TABLE, {"database": database, "table": table})
    if not found:
        return None
    uuid, made = found[0]
    return str(uuid) if uuid != NO_UUID else f"{database}.{table} of {made}"


def describe(client: Client, source: ClickhouseSourceOptions) -> Relation:
    """The source's relation as of now. Raises PermanentError where it cannot be read this way."""
    if source.query:
        base, own = source.bare_query(), None
        described = query_rows(client, f"DESCRIBE TABLE (SELECT * FROM {base})")  # noqa: S608
        columns = [SourceColumn(name, kind) for name, kind, *_ in described]
    else:
        database, table = source.place()
        own = identity(client, source)
        if own is None:
            raise source.no_table()
        base = quote(database, table) + (" FINAL" if source.final else "")
        found = query_rows(client, _COLUMNS, {"database": database, "table": table})
        columns = [SourceColumn(name, kind, default in _HIDDEN) for name, kind, default in found]
    named = {column.name: column for column in columns}
    shown = tuple(column for column in columns if not column.hidden)
    if source.verbatim:
        return Relation(base, shown, None, None, own)
    order, change = source.order_column(named), source.change_column(named)
    return Relation(base, shown, order, change, own)
