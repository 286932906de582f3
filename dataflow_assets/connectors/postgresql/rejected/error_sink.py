"""A PostgreSQL table as an error sink: each record once, known by its id.

Beside rows of the same database the records are part of the rows' own transaction. Elsewhere they
are committed first; a crash in between repeats them, and the id says that they are there.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from typing_extensions import override

from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure, PostgresqlKind
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.pool import transaction
from dataflow_assets.connectors.postgresql.rejected.table import batches
from dataflow_assets.connectors.postgresql.table import create_table, error_table
from dataflow_assets.connectors.postgresql.table.error_table import PostgresqlLayout
from dataflow_assets.connectors.postgresql.table.table import find
from dataflow_assets.contracts import EntryName, ErrorRecord
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.record import encode, parse
from dataflow_assets.records.wrapped import METADATA
from dataflow_assets.sdk.raw_rows import DATA
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sql_table.rejected import (
    ErrorTable,
    RejectedRows,
    Row,
    error_row,
    whole_record,
)

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_BASE64 = '{"original_data_base64":'


@dataclass(frozen=True)
class PostgresqlErrorRows(RejectedRows):
    """The sink's table, in the transaction that the link is in. Methods raise Failure."""

    link: Link
    sink: PostgresqlSinkOptions

    @override
    def prepare(self) -> None:
        if find(self.link, *self.sink.place()) is None:
            create_table.create_errors(self.link, self.sink)
        self._layout()

    @override
    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        layout = self._layout()
        new = {row["id"]: _storable(row) for row in rows}
        for batch in batches(list(new.values())):
            self._insert(layout, batch)

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> Iterator[Row]:
        if find(self.link, *self.sink.place()) is None:
            return
        layout = self._layout()
        moment = since.isoformat() if since else None
        rows = self.link.execute(layout.waiting(), flow, moment, most)
        if rows and not layout.notes:  # before anything is put back that cannot be noted
            self._add_note(layout)
        for row in rows:
            yield dict(zip(layout.record, row, strict=True))

    @override
    def mark_replayed(self, names: Sequence[EntryName]) -> None:
        self.link.execute(self._layout().mark_replayed(), json.dumps(names))

    def _insert(self, layout: PostgresqlLayout, rows: Sequence[Mapping[str, Any]]) -> None:
        self.link.execute("SAVEPOINT dataflow_errors")
        try:
            self._insert_all(layout, rows)
        except PostgresqlFailure as failure:
            opened = [_as_base64(row) for row in rows] if len(rows) == 1 else []
            if failure.kind is not PostgresqlKind.REFUSED or opened == list(rows):
                raise
            self.link.execute("ROLLBACK TO SAVEPOINT dataflow_errors")
            for row in opened or rows:
                self._insert(layout, [row])
        else:
            self.link.execute("RELEASE SAVEPOINT dataflow_errors")

    def _insert_all(self, layout: PostgresqlLayout, rows: Sequence[Mapping[str, Any]]) -> None:
        text = json.dumps(rows)
        if len(self.link.execute(layout.insert(), text)) == len(rows):
            return
        if layout.notes:
            self.link.execute(layout.again(), text)
        if self.link.execute(layout.missing(), text):  # not known by its id, and yet not stored
            raise PermanentError(
                f"the error sink's table {layout.place} has a unique index that refuses error "
                "records for something else than their id: drop it, or name another table"
            )

    def _layout(self) -> PostgresqlLayout:
        table = find(self.link, *self.sink.place())
        if table is None:
            raise PermanentError(f"the error sink's {self.sink.no_table()}")
        table.check()
        return error_table.layout(self.sink, table)

    def _add_note(self, layout: PostgresqlLayout) -> None:
        """Gives an older table the column that a replay fills; a person must where we may not."""
        try:
            self.link.execute(layout.noting())
        except PostgresqlFailure as failure:
            if failure.kind is not PostgresqlKind.PERMANENT:
                raise
            raise PermanentError(
                f"the error sink's table {layout.place} has no column for what was replayed: "
                f"{failure.reason}; run as its owner: {layout.noting()}"
            ) from None


class PostgresqlErrors(ErrorTable):
    """The sink's table, in a transaction of its own, or in that of rows of the same database."""

    def __init__(self, sink: PostgresqlSinkOptions) -> None:
        super().__init__("postgresql", partial(_open, sink))
        self._sink = sink

    def shares(self, connection: str) -> bool:
        """Returns whether a session of this connection string can store the records as well."""
        return dsn.same(self._sink.dsn(), connection)

    def join(self, link: Link, records: Sequence[ErrorRecord]) -> None:
        """Stores them in the transaction that the link is in."""
        with translate_errors(
            f"cannot store rejected records in the error sink {self._sink.address()}"
        ):
            PostgresqlErrorRows(link, self._sink).append([error_row(one) for one in records])


@contextmanager
def _open(sink: PostgresqlSinkOptions, what: str) -> Iterator[PostgresqlErrorRows]:
    with (
        translate_errors(f"cannot {what} the error sink {sink.address()}"),
        transaction(sink.dsn(), "dataflow-errors") as link,
    ):
        yield PostgresqlErrorRows(link, sink)


def _storable(row: Row) -> Row:
    """NUL as the six characters of its escape: neither text nor jsonb can hold it."""
    visible = {name: _NUL.sub(r"\1\\\\u0000", row[name]) for name in ("error", METADATA)}
    return _with_whole({**row, **visible}, base64_too=bool(_NUL.search(row["original_message"])))


def _as_base64(row: Row) -> Row:
    return _with_whole(row, base64_too=not row["original_message"].startswith(_BASE64))


def _with_whole(row: Row, *, base64_too: bool) -> Row:
    """The row with the record as one text; its message as base64: of `original_data` the text."""
    if base64_too:
        error, message = parse(row["error"].encode()), row["original_message"]
        if error["encoding"] == "text":
            message = json.loads(message)["original_data"]
        kept = f'{_BASE64}"{base64.b64encode(message.encode()).decode()}"}}'
        error = encode({**error, "encoding": "base64"}).decode()
        row = {**row, "error": error, "original_message": kept}
    return {**row, DATA: whole_record(row)}
