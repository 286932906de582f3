"""The columns of a table as text: what a value means in its type is for PostgreSQL to say.

Rows go by binary COPY where PostgreSQL receives each text as it is, or where it can only read it in
one way: numbers, dates and times in their usual forms, a block of rows at a time. A column of any
other type makes it text COPY, for a COPY has one format.
"""

from __future__ import annotations

import pyarrow as pa

from dataflow_assets.connectors.postgresql.sink.parse_texts import PARSERS
from dataflow_assets.connectors.postgresql.table.column import PARSED, TYPE, PostgresqlColumn
from dataflow_assets.connectors.postgresql.table.table import DRIVER, PostgresqlTable
from dataflow_assets.errors import PermanentError

_AS_TEXT = frozenset({"text", "varchar", "bpchar", "citext", "json", "jsonb"})


def text_schema(table: PostgresqlTable, names: tuple[str, ...], where: str) -> pa.Schema:
    """The listed columns in Arrow. Raises PermanentError for one that cannot be written.

    Columns that are not listed are left to their defaults.
    """
    columns = {column.name: column for column in table.columns}
    missing = [name for name in names if name not in columns]
    if missing:
        raise PermanentError(
            f"{where}: db.columns names {', '.join(missing)}, which the table does not have, or "
            f"which PostgreSQL generates; it has {', '.join(columns)} (names are as PostgreSQL has "
            "them, in lower case unless they were quoted)"
        )
    listed = [columns[name] for name in names]
    binary = all(column.enum or column.base in {*_AS_TEXT, *PARSERS} for column in listed)
    metadata = table.schema(()).metadata | {DRIVER: b"binary" if binary else b"text"}
    return pa.schema([_text(column) for column in listed], metadata)


def _text(column: PostgresqlColumn) -> pa.Field:
    metadata = {PARSED: column.base.encode()} if column.base in PARSERS else {}
    if column.base == "jsonb":
        metadata = {TYPE: column.declared.encode()}
    return pa.field(column.name, pa.string(), nullable=not column.required, metadata=metadata)
