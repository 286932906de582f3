"""The table or query that a source reads, as the server describes it now, and its order."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.mysql import types
from dataflow_assets.connectors.mysql.client import MysqlClient, quote
from dataflow_assets.connectors.mysql.options import MysqlSourceOptions
from dataflow_assets.connectors.mysql.table.table import json_columns
from dataflow_assets.connectors.mysql.types import MysqlType
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.sql_table import SqlColumn, SqlRelation

TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
BYTES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_UNORDERED = types.GEOMETRIES | {"enum", "set", "json", "bit", "inet4", "inet6", "time"}
_TABLE = """
SELECT table_schema, table_name FROM information_schema.tables
WHERE table_schema = %(database)s AND table_name = %(table)s
"""
_COLUMNS = """
SELECT column_name, column_type, is_nullable, collation_name FROM information_schema.columns
WHERE table_schema = %(database)s AND table_name = %(table)s ORDER BY ordinal_position
"""


@dataclass(frozen=True)
class MysqlColumn(SqlColumn):
    """One column; `type` as MySQL spells it."""

    name: str
    type: str
    required: bool = False
    collation: str | None = None

    @property
    def kind(self) -> MysqlType:
        return MysqlType.of(self.type)

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
    def nullable(self) -> bool:
        return not self.required

    @property
    @override
    def digits(self) -> int | None:
        return self.kind.digits

    @property
    @override
    def is_day(self) -> bool:
        return self.kind.name == "date"

    @property
    @override
    def is_zoned(self) -> bool:
        return self.kind.name == "timestamp"

    @override
    def text(self, expression: str) -> str:
        if self.kind.name in BYTES:
            return f"HEX({expression})"
        if self.kind.name == "float":  # its own text has six digits
            expression = f"({expression} + 0e0)"
        return f"CAST({expression} AS CHAR)"


def identity(client: MysqlClient, source: MysqlSourceOptions) -> str | None:
    """Returns the table's name; None where there is none. The server gives tables no other id."""
    database, table = source.place()
    found = client.rows(_TABLE, {"database": database, "table": table})
    return ".".join(found[0]) if found else None


def describe(client: MysqlClient, source: MysqlSourceOptions) -> SqlRelation[MysqlColumn]:
    """Describes the source as of now. Raises PermanentError where it cannot be read this way."""
    if source.query:
        base, own = source.bare_query().replace("%", "%%"), None
        columns = [MysqlColumn(name, kind) for name, kind in client.describe(base)]
    else:
        own = identity(client, source)
        if own is None:
            raise source.no_table()
        base, columns = quote(*source.place()), _columns(client, source)
    named = {column.name: column for column in columns}
    if source.verbatim:
        return SqlRelation(base, tuple(columns), identity=own)
    order, change = source.order_column(named), source.change_column(named)
    changes = (_ordering(client, base, change),) if change else ()
    return SqlRelation(base, tuple(columns), _ordering(client, base, order), changes, own)


def _ordering(client: MysqlClient, base: str, column: MysqlColumn) -> MysqlColumn:
    """The column with the collation that it has in a query. Raises PermanentError."""
    if column.kind.name in _UNORDERED:
        raise PermanentError(
            f"column {column.name} has the type {column.type}, by which rows cannot be put in "
            "order: name another one as orderByColumn or changeTrackingColumn"
        )
    if column.collation or column.kind.name not in TEXTS:
        return column
    # S608: names are quoted
    asked = f"SELECT COLLATION(MAX({column.sql})) FROM {base} WHERE FALSE"  # noqa: S608
    return replace(column, collation=client.rows(asked)[0][0])


def _columns(client: MysqlClient, source: MysqlSourceOptions) -> list[MysqlColumn]:
    database, table = source.place()
    found = client.rows(_COLUMNS, {"database": database, "table": table})
    # The checks of all tables of a database are looked through.
    texts = any(kind == "longtext" for _, kind, *_ in found)
    json = json_columns(client, database, table) if texts else set()
    return [
        MysqlColumn(name, "json" if name in json else kind, nullable == "NO", collation)
        for name, kind, nullable, collation in found
    ]
