"""The driver's side of a table that JustOne's connector has filled so far.

Rows go by binary COPY where PostgreSQL receives each text as it is, or where it can only read it in
one way: numbers, dates and times in their usual forms, a block of rows at a time. A column of any
other type makes it text COPY, for a COPY has one format.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.pool import lend
from dataflow_assets.connectors.postgresql.sink.checkpoint import PostgresqlLinks
from dataflow_assets.connectors.postgresql.sink.parse_texts import PARSERS
from dataflow_assets.connectors.postgresql.sink.session import (
    PostgresqlSinkSession,
    PostgresqlSinkTarget,
)
from dataflow_assets.connectors.postgresql.table.column import PARSED, TYPE, PostgresqlColumn
from dataflow_assets.connectors.postgresql.table.table import DRIVER, PostgresqlTable
from dataflow_assets.contracts import Positions, Run, Target
from dataflow_assets.errors import PermanentError
from dataflow_assets.languages.justone.postgresql import state_table
from dataflow_assets.languages.promises import TakesOver
from dataflow_assets.sdk.server_failure import translate_errors

_AS_TEXT = frozenset({"text", "varchar", "bpchar", "citext", "json", "jsonb"})


class JustOneTarget(PostgresqlSinkTarget):
    """Its columns are text."""

    def __init__(self, names: tuple[str, ...], links: PostgresqlLinks) -> None:
        """`names`: of the columns that are written."""
        super().__init__(links)
        self._names = names

    @override
    def schema(self) -> pa.Schema | None:
        if self._columns is None and self._table is not None:
            self._columns = text_schema(self._table, self._names, str(self._sink.address()))
        return self._columns


class JustOneSession(PostgresqlSinkSession, TakesOver):
    """It begins at the offsets that JustOne has stored."""

    def __init__(
        self, sink: PostgresqlSinkOptions, names: tuple[str, ...], target: Target, run: Run
    ) -> None:
        """`names`: of the columns that are written."""
        with translate_errors(f"opening {sink.address()}"), lend(sink.dsn()) as link:
            state_table.check_version(link, str(sink.address()))
        super().__init__(sink, target, run, partial(JustOneTarget, names))

    @override
    def inheritance(self) -> Positions:
        with self._links.lend("reading JustOne's state of") as link:
            offsets = state_table.offsets(link, *self._sink.place(), self._target.source)
        failpoints.reach("justone.inherited")
        return {str(partition): offset for partition, offset in sorted(offsets.items())}


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
