"""Error records as rows of the store: those of an error sink, and those beside a table."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.memory.store import Store
from dataflow_assets.contracts import Entry, ErrorRecord, ErrorStore
from dataflow_assets.sdk.rejected_records import entry, waiting

_STORE = """
insert into errors values (?, ?, ?, ?, ?, ?, 0) on conflict (id) do update
set body = excluded.body, reading = excluded.reading, replayed = 0
where excluded.reading > errors.reading
"""


def beside(table: str) -> str:
    """Returns what the records rejected beside a table are called among the error records."""
    return f"rejected beside {table}"


def store_records(
    connection: sqlite3.Connection, name: str, records: Sequence[ErrorRecord]
) -> None:
    """Stores them in the caller's transaction; a known id stays, unless it is read once more."""
    rows = (
        (one.id, name, one.flow, one.body.decode(), one.metadata.decode(), one.reading)
        for one in records
    )
    connection.executemany(_STORE, rows)


class MemoryErrors(ErrorStore):
    """The error records of one name."""

    def __init__(self, store: str, name: str) -> None:
        self._store, self._name = Store(store), name

    @override
    def prepare(self) -> None:
        self._store.create()

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> list[Entry]:
        self._store.create()
        sql = "select body from errors where flow = ? and name = ? and not replayed order by rowid"
        found = self._store.query(sql, flow, self._name)
        return waiting((entry(body) for (body,) in found), since, most)

    @override
    def mark_replayed(self, entries: Sequence[Entry]) -> None:
        failpoints.reach("memory.replayed")
        sql = "update errors set replayed = 1 where id = ? and reading <= ?"
        with self._store.transaction() as connection:
            connection.executemany(sql, [one.name for one in entries])

    @override
    def store(self, records: Sequence[ErrorRecord]) -> None:
        failpoints.reach("memory.errors")
        with self._store.transaction() as connection:
            store_records(connection, self._name, records)
