"""Tables of rejected records behind Trino: rows are only ever added.

A record that is stored twice counts once, by its id; the one of the latest reading counts. A row
that says when, or only that, it was replayed says so of the record of its reading.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from typing_extensions import override

from dataflow_assets.connectors.trino import types
from dataflow_assets.connectors.trino.client import (
    TrinoClient,
    literal,
    name_list,
    quote,
    rows_of,
    rows_of_json,
    unnest,
)
from dataflow_assets.connectors.trino.errors import ANY
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.table import stage
from dataflow_assets.connectors.trino.table.table import TrinoPlace, column_names
from dataflow_assets.contracts import EntryName, Rejection, Slice, Target
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.wrapped import METADATA
from dataflow_assets.sdk.raw_rows import DATA
from dataflow_assets.sdk.rejected_records import HELD, error_record
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sql_table.rejected import (
    APART,
    REJECTED,
    ErrorTable,
    RejectedRows,
    RejectedTable,
    Row,
    error_row,
    rejected_row,
)

_STAMP = "timestamp(6)"  # without a zone, which not every catalog has: in UTC
BESIDE = {field.name: types.declaration(field) for field in REJECTED} | {
    "rejected_at": _STAMP,
    "replayed_at": _STAMP,
}
_FIRST = dict.fromkeys(("id", "flow", "reason"), "varchar")
_LAST = {METADATA: "varchar", "reading": "bigint", "replayed": "boolean", "created_at": _STAMP}
_APART = {**_FIRST, **dict.fromkeys(APART, "varchar"), **_LAST}
_WHOLE = {**_FIRST, DATA: "varchar", **_LAST}
_OWN = {"rejected_at", "replayed_at", "replayed", "created_at"}
"""Columns that are filled by the statement."""
_GIVEN = 200_000  # characters of records in one statement
_AT_ONCE = 500  # ids in one statement


@dataclass(frozen=True)
class TrinoRejected(RejectedRows):
    """One table. Methods raise Failure."""

    client: TrinoClient
    sink: TrinoSinkOptions
    place: TrinoPlace
    columns: Mapping[str, str]
    """With their types."""
    known: frozenset[str]
    """The columns that it has; none where there is no table."""
    owner: str = ""
    """Whose stages may be dropped: `Target.id`; of an error sink the flow."""

    @classmethod
    def beside(cls, client: TrinoClient, sink: TrinoSinkOptions, owner: str = "") -> TrinoRejected:
        """The table beside the sink's own; one of an earlier version has error records."""
        place = _place(sink, "_rejected")
        names = column_names(client, place)
        return cls(client, sink, place, _APART if "error" in names else BESIDE, names, owner)

    @override
    def prepare(self) -> None:
        if self.sink.auto_create_table or self._beside:
            self.client.create(self._statement)
        names = column_names(self.client, self.place)
        if not names:
            raise PermanentError(f"the error sink's {self.sink.no_table()}")
        if missing := sorted(self.columns.keys() - names):
            raise PermanentError(
                f"the error sink's table {self.place} cannot take error records: it has no "
                f"{', '.join(missing)}; name a new table and set autoCreateTable: true, or run: "
                f"{self._statement}"
            )

    @override
    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        """Adds records of any length, in as many statements as are needed."""
        longest, waiting, length = min(_GIVEN, stage.room(self._most)), list[str](), 0
        for row in rows:
            text = msgspec.json.encode(self._values(row)).decode()
            size = stage.length_of(text)
            if length + size > longest:
                self._insert(waiting)
                waiting, length = [], 0
            if size > stage.room(self._most):
                self._insert_long(f"[{text}]", row["flow"])
            else:
                waiting.append(text)
                length += size
        self._insert(waiting)

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> Iterator[Row]:
        if not self.known:
            return
        names = [
            n
            for n in self._record_columns
            if n not in {"id", "flow", "reason", "reading", METADATA}
        ]
        done = "replayed_at IS NOT NULL" if self._beside else "coalesce(replayed, false)"
        waits = f"FILTER (WHERE NOT ({done}))"
        latest = "".join(f"max_by({quote(n)}, reading) {waits} AS {quote(n)}, " for n in names)
        grouped = (
            f"SELECT id, {latest}min({self._at}) {waits} AS since, max(reading) {waits} AS latest, "  # noqa: S608 - quoted
            f"coalesce(max(reading) FILTER (WHERE {done}), -1) AS done "
            f"FROM {self.place.quoted_name} WHERE flow = {literal(flow)} GROUP BY id"
        )
        moment = since.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f") if since else ""
        late = f" AND since >= TIMESTAMP {literal(moment)}" if since else ""
        order = 'since, "offset", n, id' if self._beside else "since, id"
        query = (
            f"SELECT id, latest, {name_list(names)} FROM ({grouped}) WHERE latest > done "  # noqa: S608
            f"AND id NOT LIKE {literal('%' + HELD)}{late} ORDER BY {order} LIMIT {most}"
        )
        for row in self.client.rows(query):
            yield dict(zip(["id", "reading", *names], row, strict=True))

    @override
    def mark_replayed(self, names: Sequence[EntryName]) -> None:
        types = {"flow": "varchar", "id": "varchar", "reading": "bigint"}
        note, value = ("replayed_at", "localtimestamp") if self._beside else ("replayed", "true")
        rows = [[_flow(id_), id_, reading] for id_, reading in names]
        for first in range(0, len(rows), _AT_ONCE):
            some = rows_of(types, rows[first : first + _AT_ONCE])
            self._insert_from(types, some, {note: value})

    def _insert(self, rows: Sequence[str]) -> None:
        if rows:
            self._insert_rows(rows_of_json(self._record_columns, f"[{','.join(rows)}]"))

    def _insert_long(self, text: str, flow: str) -> None:
        pieces = self.place.beside(stage.name(self.owner or flow, 0, uuid.uuid4().hex[:8]))
        half = stage.room(self._most) // 2  # a character counts as two at most
        stage.create(self.client, pieces)
        try:
            for number, first in enumerate(range(0, len(text), half)):
                values = f"'', {number}, {literal(text[first : first + half])}"
                self.client.run(f"INSERT INTO {pieces.quoted_name} VALUES ({values})")  # noqa: S608 - quoted
            joined = (
                f"SELECT array_join(array_agg(body ORDER BY chunk), '') FROM {pieces.quoted_name}"  # noqa: S608
            )
            rows = unnest(self._record_columns, "text")
            self._insert_rows(f"({joined}) AS pieces (text) CROSS JOIN {rows}")
        finally:
            with suppress(*ANY):
                stage.drop(self.client, pieces)

    def _insert_rows(self, rows: str) -> None:
        self._insert_from(self._record_columns, rows, {} if self._beside else {"replayed": "false"})

    def _insert_from(self, given: Mapping[str, str], rows: str, more: Mapping[str, str]) -> None:
        names, filled = name_list(list(given)), {**more, self._at: "localtimestamp"}
        self.client.run(
            f"INSERT INTO {self.place.quoted_name} ({names}, {', '.join(filled)}) "  # noqa: S608 - quoted
            f"SELECT {names}, {', '.join(filled.values())} FROM {rows}"
        )

    def _values(self, row: Row) -> list[Any]:
        if not self._beside:  # text of PostgreSQL cannot hold U+0000, which a reason may quote
            reason = json.loads(row["error"]).get("message", "").replace("\0", "\\u0000")
            row = {**row, "reason": reason}
        return [row[name] for name in self._record_columns]

    @property
    def _beside(self) -> bool:
        return self.columns is BESIDE

    @property
    def _at(self) -> str:
        return "rejected_at" if self._beside else "created_at"

    @property
    def _record_columns(self) -> dict[str, str]:
        return {name: kind for name, kind in self.columns.items() if name not in _OWN}

    @property
    def _most(self) -> int:
        return self.sink.max_statement_length

    @property
    def _statement(self) -> str:
        body = ", ".join(f"{quote(name)} {kind}" for name, kind in self.columns.items())
        return f"CREATE TABLE IF NOT EXISTS {self.place.quoted_name} ({body})"


def store(
    client: TrinoClient,
    sink: TrinoSinkOptions,
    target: Target,
    piece: Slice,
    rejections: Sequence[Rejection],
) -> None:
    """Stores them beside the target. Called inside tasks, before the commit. Raises Failure."""
    table = TrinoRejected.beside(client, sink, target.id)
    if not table.known:
        table.prepare()
    if table.columns is BESIDE:
        table.append([rejected_row(target, piece, one) for one in rejections])
    else:
        table.append([error_row(error_record(target, piece, one)) for one in rejections])


def error_table(sink: TrinoSinkOptions) -> ErrorTable:
    """The sink's own table as an error sink: `error` and `original_message`, or raw `data`."""
    return ErrorTable("trino", partial(_open_sink, sink))


def rejected_table(sink: TrinoSinkOptions) -> RejectedTable:
    """The table beside the sink's own."""
    return RejectedTable("trino", partial(_open_beside, sink))


@contextmanager
def _open_sink(sink: TrinoSinkOptions, what: str) -> Iterator[TrinoRejected]:
    with _client(sink, f"cannot {what} the error sink {sink.address()}") as client:
        place = _place(sink)
        columns = _WHOLE if sink.raw_mode else _APART
        yield TrinoRejected(client, sink, place, columns, column_names(client, place))


@contextmanager
def _open_beside(sink: TrinoSinkOptions, what: str) -> Iterator[TrinoRejected]:
    with _client(sink, f"cannot {what} {_place(sink, '_rejected')} of {sink.address()}") as client:
        yield TrinoRejected.beside(client, sink)


@contextmanager
def _client(sink: TrinoSinkOptions, what: str) -> Iterator[TrinoClient]:
    with translate_errors(what), closing(TrinoClient(sink, "dataflow-errors")) as client:
        yield client


def _place(sink: TrinoSinkOptions, suffix: str = "") -> TrinoPlace:
    schema, name = sink.place()
    return TrinoPlace(sink.catalog or "", schema, name + suffix)


def _flow(name: str) -> str:
    """The flow of an entry: namespace and name, which its id begins with."""
    return "/".join(name.split("/")[:2])
