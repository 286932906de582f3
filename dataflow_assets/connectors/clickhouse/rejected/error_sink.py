"""Tables of rejected records in ClickHouse: for `FINAL` each record once, known by its id."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from typing_extensions import override

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.client import (
    Client,
    connect,
    insert_rows,
    inserting,
    literal,
    name_list,
    query_rows,
    quote,
)
from dataflow_assets.connectors.clickhouse.errors import failing
from dataflow_assets.connectors.clickhouse.options import ClickhouseSinkOptions
from dataflow_assets.connectors.clickhouse.table.table import WINDOW
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

_STAMP = "DateTime64(6, 'UTC') DEFAULT now64(6)"
_TEXTS = ("id", "flow", *APART, METADATA)
BESIDE = {field.name: types.declaration(field) for field in REJECTED} | {"rejected_at": _STAMP}
_APART = dict.fromkeys(_TEXTS, "String") | {"created_at": _STAMP}
_WHOLE = dict.fromkeys(("id", "flow", DATA, METADATA), "String") | {"created_at": _STAMP}
_REPLAYED = {"replayed_at": "Nullable(DateTime64(6, 'UTC'))", "_version": "UInt64"}
"""A row's version is twice its reading of the source, and one more once it was replayed.

A replay adds the row once more with that version, and a later reading with one that is higher
still: FINAL shows the last of them.
"""
_ADDED = ("rows", "metadata")
"""Columns that a table of an earlier version gets; without `reading` the version tells it."""
_COLUMNS = """
SELECT name, type FROM system.columns WHERE database = {d:String} AND table = {t:String}
"""
_WIDEN = "ALTER TABLE {place} {columns} MODIFY COLUMN _version UInt64"
_PENDING = """
SELECT {names} FROM {place} FINAL WHERE flow = {{flow:String}} AND _version % 2 = 0
AND NOT endsWith(id, '{held}') AND {at} >= {since} ORDER BY {order} LIMIT {{most:UInt64}}
"""
_MARK = """
INSERT INTO {r} SELECT * REPLACE (now64(6) AS replayed_at, _version + 1 AS _version) FROM (
    SELECT * FROM {r} FINAL WHERE _version % 2 = 0 AND (id, _version) IN ({named}))
"""
_AT_ONCE = 500  # ids in one statement


def place(database: str, table: str) -> tuple[str, str]:
    """Database and name of the table beside this one."""
    return database, f"{table}_rejected"


def statement(name: str, columns: Mapping[str, str]) -> str:
    """The DDL of a table that holds each record once under `flow` and `id`."""
    body = ", ".join(f"{quote(column)} {kind}" for column, kind in {**columns, **_REPLAYED}.items())
    return (
        f"CREATE TABLE IF NOT EXISTS {name} ({body}) ENGINE = ReplacingMergeTree(_version) "
        f"ORDER BY (flow, id) SETTINGS non_replicated_deduplication_window = {WINDOW}"
    )


@dataclass(frozen=True)
class ClickhouseRejected(RejectedRows):
    """One table. Methods raise Failure."""

    client: Client
    sink: ClickhouseSinkOptions
    where: tuple[str, str]
    columns: Mapping[str, str]

    @classmethod
    def beside(cls, client: Client, sink: ClickhouseSinkOptions) -> ClickhouseRejected:
        return cls(client, sink, place(*sink.place()), BESIDE)

    @override
    def prepare(self) -> None:
        if self.sink.auto_create_table or self._beside:
            with failing():
                self.client.command(statement(quote(*self.where), self.columns))
        self._check(self._known())

    @override
    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        names = [name for name in self.columns if name in rows[0]]
        # A table of an earlier version lacks this column; any other is the server's error.
        if "reading" in names and "reading" not in self._known():
            names.remove("reading")
        stored = [{n: r[n] for n in names} | {"_version": 2 * r["reading"]} for r in rows]
        ids = [f"{r['id']}@{r['_version']}" if r["_version"] else r["id"] for r in stored]
        token = hashlib.sha256("\n".join(ids).encode()).hexdigest()
        insert_rows(self.client, quote(*self.where), stored, inserting(token))

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> Iterator[Row]:
        types = self._known()
        if not types:
            return
        self._check(types)
        at = "rejected_at" if self._beside else "created_at"
        names = [n for n in self.columns if n not in {"flow", "reason", "reading", METADATA, at}]
        query = _PENDING.format(
            names=f"{name_list(names)}, intDiv(_version, 2)",
            place=quote(*self.where),
            held=HELD,
            at=at,
            since=_moment(since),
            order=f"{at}, offset, n, id" if self._beside else f"{at}, id",
        )
        for row in query_rows(self.client, query, {"flow": flow, "most": most}):
            yield dict(zip([*names, "reading"], row, strict=True))

    @override
    def mark_replayed(self, names: Sequence[EntryName]) -> None:
        tuples = [f"({literal(id_)}, {2 * reading})" for id_, reading in names]
        for first in range(0, len(tuples), _AT_ONCE):
            some = ", ".join(tuples[first : first + _AT_ONCE])
            with failing():
                query = _MARK.format(r=quote(*self.where), named=some)
                self.client.command(query, settings={"async_insert": 0})

    @property
    def _beside(self) -> bool:
        return self.columns is BESIDE

    def _known(self) -> dict[str, str]:
        """The columns with their types; empty where there is no table."""
        where = dict(zip("dt", self.where, strict=True))
        return dict(query_rows(self.client, _COLUMNS, where))

    def _check(self, known: Mapping[str, str]) -> None:
        """Gives the table of an earlier version what it lacks."""
        if not known:
            raise PermanentError(f"the error sink's {self.sink.no_table()}")
        missing = {*self.columns, *_REPLAYED} - known.keys()
        if unfit := sorted(missing - {*_ADDED, "reading"}):
            raise PermanentError(
                f"the error sink's table {'.'.join(self.where)} cannot take error records: "
                f"it has no {', '.join(unfit)}; name a new table and set autoCreateTable: true, "
                f"or run: {statement(quote(*self.where), self.columns)}"
            )
        added = [name for name in _ADDED if name in missing]
        if added or known["_version"] != _REPLAYED["_version"]:
            columns = "".join(f"ADD COLUMN IF NOT EXISTS {quote(n)} {BESIDE[n]}, " for n in added)
            with failing():
                self.client.command(_WIDEN.format(place=quote(*self.where), columns=columns))


def _moment(since: datetime | None) -> str:
    """A moment as SQL; without one the first that there is."""
    at = (since or datetime(1970, 1, 1, tzinfo=UTC)).astimezone(UTC)
    return f"toDateTime64({literal(at.strftime('%Y-%m-%d %H:%M:%S.%f'))}, 6, 'UTC')"


def error_table(sink: ClickhouseSinkOptions) -> ErrorTable:
    """The sink's own table as an error sink: `error` and `original_message`, or raw `data`."""
    columns = _WHOLE if sink.raw_mode else _APART
    name = f"the error sink {sink.address()}"
    return ErrorTable("clickhouse", partial(_open, sink, sink.place(), columns, name))


def rejected_table(sink: ClickhouseSinkOptions) -> RejectedTable:
    """The table beside the sink's own."""
    where = place(*sink.place())
    name = f"{quote(*where)} of {sink.address()}"
    return RejectedTable("clickhouse", partial(_open, sink, where, BESIDE, name))


@contextmanager
def _open(
    sink: ClickhouseSinkOptions,
    where: tuple[str, str],
    columns: Mapping[str, str],
    name: str,
    what: str,
) -> Iterator[ClickhouseRejected]:
    with (
        translate_errors(f"cannot {what} {name}"),
        connect(sink.dsn(), "dataflow errors") as client,
    ):
        yield ClickhouseRejected(client, sink, where, columns)
