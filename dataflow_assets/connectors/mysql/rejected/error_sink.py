"""Tables of rejected records: `dataflow_rejected` beside targets, and those of error sinks.

A record is known by its id: one that is stored twice is one row, and a later reading of it waits
for a replay once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.mysql.client import MysqlClient, quote
from dataflow_assets.connectors.mysql.options import MysqlSinkOptions
from dataflow_assets.connectors.mysql.pool import lend
from dataflow_assets.connectors.mysql.table.create_table import make_table
from dataflow_assets.contracts import EntryName
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.wrapped import METADATA
from dataflow_assets.sdk.raw_rows import DATA
from dataflow_assets.sdk.rejected_records import HELD
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sql_table.rejected import (
    APART,
    REJECTED,
    ErrorTable,
    RejectedRows,
    RejectedTable,
    Row,
)

_TEXT, _STAMP = "LONGTEXT", "DATETIME(6)"  # in UTC
_ID = "VARCHAR(768) NOT NULL PRIMARY KEY"
_KINDS = {pa.int32(): "INT", pa.int64(): "BIGINT", pa.string(): _TEXT}
_BESIDE = {
    **{field.name: _KINDS.get(field.type, _STAMP) for field in REJECTED},
    "id": _ID,
    "replayed_at": _STAMP,
}
_LAST = {"reading": "BIGINT", "rejected_at": _STAMP, "replayed_at": _STAMP}
_APART = {"id": _ID, "flow": _TEXT, **dict.fromkeys(APART, _TEXT), **_LAST}
_WHOLE = {"id": _ID, "flow": _TEXT, DATA: _TEXT, METADATA: _TEXT, **_LAST}
_OWN = {"rejected_at", "replayed_at"}
_COLUMNS = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = %(schema)s AND table_name = %(name)s
"""


@dataclass(frozen=True)
class MysqlRejected(RejectedRows):
    """One table, in the transaction that the client is in. Methods raise Failure."""

    client: MysqlClient
    place: tuple[str, str]
    columns: Mapping[str, str]
    """With their types."""
    makes: bool = True
    """Whether the table may be made."""

    @classmethod
    def beside(cls, client: MysqlClient, sink: MysqlSinkOptions) -> MysqlRejected:
        """The table beside the sink's own."""
        return cls(client, (sink.place()[0], "dataflow_rejected"), _BESIDE)

    @override
    def prepare(self) -> None:
        known = self._column_names()
        if not known and self.makes:
            make_table(self.client, self._statement)
            known = self._column_names()
        if missing := sorted(self.columns.keys() - known):
            found = f"has no {', '.join(missing)}" if known else "does not exist"
            raise PermanentError(
                f"the table of rejected records {'.'.join(self.place)} {found}: name a new one and "
                f"set autoCreateTable: true, or run: {self._statement}"
            )

    @override
    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        names = [name for name in self.columns if name not in _OWN]
        listed = ", ".join(quote(name) for name in (*names, "rejected_at"))
        values = ", ".join(f"%({name})s" for name in names)
        # In this order: each sees what those before it have set.
        changes = {
            name: f"VALUES({quote(name)})" for name in names if name not in {"id", "reading"}
        }
        changes |= {"rejected_at": "UTC_TIMESTAMP(6)", "replayed_at": "NULL"}
        changes["reading"] = "VALUES(reading)"
        sets = ", ".join(
            f"{quote(name)} = IF(VALUES(reading) > COALESCE(reading, -1), {value}, {quote(name)})"
            for name, value in changes.items()
        )
        statement = (
            f"INSERT INTO {self._table} ({listed}) VALUES ({values}, UTC_TIMESTAMP(6)) "  # noqa: S608 - quoted
            f"ON DUPLICATE KEY UPDATE {sets}"
        )
        for row in rows:
            self.client.run(statement, {name: row.get(name) for name in names})

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> Iterator[Row]:
        if not self._column_names():
            return
        names = [name for name in self.columns if name not in _OWN]
        order = "rejected_at, `offset`, n, id" if "offset" in self.columns else "rejected_at, id"
        late = " AND rejected_at >= %(since)s" if since else ""
        query = (
            f"SELECT {', '.join(map(quote, names))} FROM {self._table} "  # noqa: S608 - quoted
            f"WHERE flow = %(flow)s AND replayed_at IS NULL AND id NOT LIKE %(held)s{late} "
            f"ORDER BY {order} LIMIT {most}"
        )
        moment = since.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f") if since else ""
        binds = {"flow": flow, "held": f"%{HELD}", "since": moment}
        for row in self.client.rows(query, binds):
            yield dict(zip(names, row, strict=True))

    @override
    def mark_replayed(self, names: Sequence[EntryName]) -> None:
        statement = (
            f"UPDATE {self._table} SET replayed_at = UTC_TIMESTAMP(6) "  # noqa: S608 - quoted
            "WHERE id = %(id)s AND reading <= %(reading)s AND replayed_at IS NULL"
        )
        for id_, reading in names:
            self.client.run(statement, {"id": id_, "reading": reading})

    def _column_names(self) -> set[str]:
        schema, name = self.place
        found = self.client.rows(_COLUMNS, {"schema": schema, "name": name})
        return {column for (column,) in found}

    @property
    def _table(self) -> str:
        return quote(*self.place)

    @property
    def _statement(self) -> str:
        body = ", ".join(f"{quote(name)} {kind}" for name, kind in self.columns.items())
        return (
            f"CREATE TABLE IF NOT EXISTS {self._table} ({body}) ENGINE=InnoDB "
            "DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        )


def rejected_table(sink: MysqlSinkOptions) -> RejectedTable:
    """The table beside the sink's own."""
    return RejectedTable("mysql", partial(_open, sink, beside=True))


def error_table(sink: MysqlSinkOptions) -> ErrorTable:
    """The sink's own table as an error sink: `error` and `original_message`, or raw `data`."""
    return ErrorTable("mysql", partial(_open, sink, beside=False))


@contextmanager
def _open(sink: MysqlSinkOptions, what: str, *, beside: bool) -> Iterator[MysqlRejected]:
    place = f"dataflow_rejected beside {sink.address()}" if beside else sink.address()
    with (
        translate_errors(f"cannot {what} {'' if beside else 'the error sink '}{place}"),
        lend(sink) as client,
    ):
        if beside:
            yield MysqlRejected.beside(client, sink)
        else:
            columns = _WHOLE if sink.raw_mode else _APART
            yield MysqlRejected(client, sink.place(), columns, sink.auto_create_table)
