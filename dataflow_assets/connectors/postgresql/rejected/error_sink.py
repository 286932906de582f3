"""A PostgreSQL table as an error sink: each record once, known by its id.

Beside rows of the same database the records are part of the rows' own transaction. Elsewhere they
are committed first; a crash in between repeats them, and the id says that they are there.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import msgspec
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.connectors.postgresql.errors import Failure, Kind
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.pool import transaction
from dataflow_assets.connectors.postgresql.rejected.table import batches
from dataflow_assets.connectors.postgresql.table import create_table, error_table
from dataflow_assets.connectors.postgresql.table.error_table import Layout
from dataflow_assets.connectors.postgresql.table.table import find
from dataflow_assets.contracts import Entry, ErrorRecord, ErrorStore
from dataflow_assets.decoding import decode_json
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.record import encode, parse
from dataflow_assets.sdk.rejected_records import entry, oldest_first
from dataflow_assets.sdk.rejected_rows import whole_record
from dataflow_assets.sdk.server_failure import translated

_APPLICATION = "dataflow-errors"
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


class PostgresqlErrors(ErrorStore):
    """Stores error records in the sink's table."""

    def __init__(self, sink: PostgresqlSinkOptions) -> None:
        self._sink = sink

    @override
    def prepare(self) -> None:
        with self._transaction("preparing") as link:
            self._layout(link, make=True)

    @override
    def store(self, records: Sequence[ErrorRecord]) -> None:
        failpoints.reach("postgresql.errors")
        with self._transaction("storing rejected records in") as link:
            self._put(link, records)
        failpoints.reach("postgresql.errors-stored")

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> list[Entry]:
        with self._transaction("reading") as link:
            if find(link, *self._sink.place()) is None:
                return []
            layout = self._layout(link)
            moment = since.isoformat() if since else None
            rows = link.execute(layout.waiting(), flow, moment, most)
            if rows and not layout.notes:  # before anything is put back that cannot be noted
                _alter(link, layout)
        found = oldest_first(entry(whole_record(row)) for row in rows)
        return list({one.id: one for one in found}.values())

    @override
    def replayed(self, entries: Sequence[Entry]) -> None:
        failpoints.reach("postgresql.replayed")
        with self._transaction("noting a replay in") as link:
            listed = json.dumps([one.name for one in entries])
            link.execute(self._layout(link).replayed(), listed)

    def shares(self, connection: str) -> bool:
        """Returns whether a session of this connection string can store the records as well."""
        return dsn.same(self._sink.dsn(), connection)

    def join(self, link: Link, records: Sequence[ErrorRecord]) -> None:
        """Stores them in the transaction that the link is in."""
        with translated(f"storing rejected records in the error sink {self._sink.address()}"):
            self._put(link, records)

    def _put(self, link: Link, records: Sequence[ErrorRecord]) -> None:
        layout = self._layout(link)
        rows = {one.id: _row(one) for one in records}
        for batch in batches(list(rows.values())):
            self._insert(link, layout, batch)

    def _insert(self, link: Link, layout: Layout, rows: Sequence[str]) -> None:
        link.execute("SAVEPOINT dataflow_errors")
        try:
            self._inserted(link, layout, rows)
        except Failure as failure:
            opened = [_resealed(row) for row in rows] if len(rows) == 1 else []
            if failure.kind is not Kind.REFUSED or opened == list(rows):
                raise
            link.execute("ROLLBACK TO SAVEPOINT dataflow_errors")
            for row in opened or rows:
                self._insert(link, layout, [row])
        else:
            link.execute("RELEASE SAVEPOINT dataflow_errors")

    def _inserted(self, link: Link, layout: Layout, rows: Sequence[str]) -> None:
        text = f"[{','.join(rows)}]"
        if len(link.execute(layout.insert(), text)) == len(rows):
            return
        if layout.notes:
            link.execute(layout.again(), text)
        if link.execute(layout.missing(), text):  # not known by its id, and yet not stored
            raise PermanentError(
                f"the error sink's table {layout.place} has a unique index that refuses error "
                "records for something else than their id: drop it, or name another table"
            )

    def _layout(self, link: Link, *, make: bool = False) -> Layout:
        found = find(link, *self._sink.place())
        if found is None and make:
            create_table.create_errors(link, self._sink)
            found = find(link, *self._sink.place())
        if found is None:
            raise PermanentError(f"the error sink's {self._sink.no_table()}")
        found.check()
        return error_table.layout(self._sink, found)

    @contextmanager
    def _transaction(self, what: str) -> Iterator[Link]:
        """One of its own, in a session of its own."""
        with (
            translated(f"{what} the error sink {self._sink.address()}"),
            transaction(self._sink.dsn(), _APPLICATION) as link,
        ):
            yield link


def _alter(link: Link, layout: Layout) -> None:
    """Gives an older table the column that a replay fills; a person must where the role may not."""
    try:
        link.execute(layout.noting())
    except Failure as failure:
        if failure.kind is not Kind.PERMANENT:
            raise
        raise PermanentError(
            f"the error sink's table {layout.place} has no column for what was replayed: "
            f"{failure.reason}; run as its owner: {layout.noting()}"
        ) from None


class _Body(msgspec.Struct):
    error: msgspec.Raw
    original_message: msgspec.Raw


def _row(record: ErrorRecord) -> str:
    """The parts that a layout picks from."""
    body = decode_json(record.body, _Body)
    error, original = _visible(bytes(body.error)), bytes(body.original_message)
    if _NUL.search(original):
        error, original = _sealed(error, original)
    return _joined(record.id, record.flow, error, original, _visible(record.metadata).decode())


def _joined(id_: str, flow: str, error: bytes, original: bytes, metadata: str) -> str:
    told, message = error.decode(), original.decode()
    return json.dumps([id_, flow, told, message, whole_record((told, message)), metadata])


def _resealed(row: str) -> str:
    """A row with its original as base64, whatever it was."""
    id_, flow, error, original, _, metadata = json.loads(row)
    if original.startswith('{"original_data_base64":'):
        return row
    return _joined(id_, flow, *_sealed(error.encode(), original.encode()), metadata)


def _sealed(error: bytes, original: bytes) -> tuple[bytes, bytes]:
    """Both with the message as base64: of `original_data` the text itself."""
    told, message = parse(error), original
    if told["encoding"] == "text":
        message = msgspec.json.decode(original)["original_data"].encode()
    kept = {"original_data_base64": base64.b64encode(message).decode()}
    return encode({**told, "encoding": "base64"}), encode(kept)


def _visible(text: bytes) -> bytes:
    """NUL as the six characters of its escape: neither text nor jsonb can hold it."""
    return _NUL.sub(rb"\1\\\\u0000", text)
