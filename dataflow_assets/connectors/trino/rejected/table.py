"""The table of error records, beside a target or of an error sink: rows are only ever added.

A record that is stored twice counts once, by its id; the one of the latest reading counts. A row
with `replayed` says that the record of this reading has had its replay.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from dataflow_assets.connectors.trino.client import (
    Client,
    listed,
    literal,
    quote,
    rows_of,
    rows_of_json,
    unnested,
)
from dataflow_assets.connectors.trino.errors import ANY, MISSING, Failure
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.table import stage
from dataflow_assets.connectors.trino.table.table import Place
from dataflow_assets.contracts import ErrorRecord, Rejection, Slice, Target
from dataflow_assets.decoding import decode_json
from dataflow_assets.records.wrapped import METADATA
from dataflow_assets.sdk.raw_rows import DATA
from dataflow_assets.sdk.rejected_records import error_record

_FIRST = {"id": "varchar", "flow": "varchar", "reason": "varchar"}
_LAST = {
    METADATA: "varchar",
    "reading": "bigint",
    "replayed": "boolean",
    "created_at": "timestamp(6)",
}
APART = {**_FIRST, "error": "varchar", "original_message": "varchar", **_LAST}
WHOLE = {**_FIRST, DATA: "varchar", **_LAST}
_GIVEN = 200_000  # characters of records in one statement


class _Body(msgspec.Struct):
    error: msgspec.Raw
    original_message: msgspec.Raw


def beside(sink: TrinoSinkOptions) -> Place:
    """The table of rejected records of a sink's own table."""
    schema, name = sink.place()
    return Place(sink.catalog or "", schema, f"{name}_rejected")


def statement(place: Place, columns: dict[str, str]) -> str:
    body = ", ".join(f"{quote(name)} {kind}" for name, kind in columns.items())
    return f"CREATE TABLE IF NOT EXISTS {place.quoted} ({body})"


def store(
    client: Client,
    sink: TrinoSinkOptions,
    target: Target,
    piece: Slice,
    rejections: Sequence[Rejection],
) -> None:
    """Stores them beside the target. Called inside tasks, before the commit. Raises Failure."""
    place = beside(sink)
    table = ErrorTable(client, place, APART, sink.max_statement_length, target.id)
    records = [error_record(target, piece, one) for one in rejections]
    try:
        table.add(records)
    except Failure as failure:
        if failure.name not in MISSING:
            raise
        client.create(statement(place, APART))
        table.add(records)


@dataclass(frozen=True)
class ErrorTable:
    """A table of error records that exists. Methods raise Failure."""

    client: Client
    place: Place
    columns: dict[str, str]
    """With their types."""
    most: int
    """Characters of a statement."""
    owner: str
    """Whose stages may be dropped: `Target.id`, or a flow."""

    def add(self, records: Sequence[ErrorRecord]) -> None:
        """Adds records of any length, in as many statements as are needed."""
        longest, waiting, length = min(_GIVEN, stage.room(self.most)), list[str](), 0
        for record in records:
            row = msgspec.json.encode(_row(record, whole=DATA in self.columns)).decode()
            size = stage.length_of(row)
            if length + size > longest:
                self._insert(waiting)
                waiting, length = [], 0
            if size > stage.room(self.most):
                self._insert_long(_listed([row]))
            else:
                waiting.append(row)
                length += size
        self._insert(waiting)

    def _insert(self, rows: Sequence[str]) -> None:
        if rows:
            self._insert_from(rows_of_json(self._given, _listed(rows)))

    def _insert_long(self, text: str) -> None:
        pieces = self.place.beside(stage.name(self.owner, 0, uuid.uuid4().hex[:8]))
        half = stage.room(self.most) // 2  # a character counts as two at most
        stage.create(self.client, pieces)
        try:
            for number, first in enumerate(range(0, len(text), half)):
                values = f"'', {number}, {literal(text[first : first + half])}"
                self.client.run(f"INSERT INTO {pieces.quoted} VALUES ({values})")  # noqa: S608 - quoted
            joined = f"SELECT array_join(array_agg(body ORDER BY chunk), '') FROM {pieces.quoted}"  # noqa: S608
            rows = unnested(self._given, "body")
            self._insert_from(f"({joined}) AS pieces (body) CROSS JOIN {rows}")
        finally:
            with suppress(*ANY):
                stage.drop(self.client, pieces)

    def _insert_from(self, rows: str) -> None:
        names = listed(list(self._given))
        self.client.run(
            f"INSERT INTO {self.place.quoted} ({names}, replayed, created_at) "  # noqa: S608 - quoted
            f"SELECT {names}, false, localtimestamp FROM {rows}"
        )

    @property
    def _given(self) -> dict[str, str]:
        own = {"replayed", "created_at"}
        return {name: kind for name, kind in self.columns.items() if name not in own}


def note_replayed(client: Client, place: Place, names: Sequence[tuple[str, str, int]]) -> None:
    """Notes that records have had their replay: flow, id and reading. Raises Failure."""
    given = {"flow": "varchar", "id": "varchar", "reading": "bigint"}
    values = "flow, id, reading, true, localtimestamp"
    for first in range(0, len(names), 500):
        rows = rows_of(given, [list(name) for name in names[first : first + 500]])
        client.run(
            f"INSERT INTO {place.quoted} (flow, id, reading, replayed, created_at) "  # noqa: S608
            f"SELECT {values} FROM {rows}"
        )


def pending_sql(place: Place, body: Sequence[str], flow: str, since: str, held: str) -> str:
    """Error records without a replay, the oldest first: the columns of `body`."""
    latest = ", ".join(
        f"max_by({quote(name)}, reading) FILTER (WHERE {_WAITS}) AS {quote(name)}" for name in body
    )
    names = listed(body)
    grouped = (
        f"SELECT id, {latest}, min(created_at) FILTER (WHERE {_WAITS}) AS since, "  # noqa: S608 - quoted
        f"max(reading) FILTER (WHERE {_WAITS}) AS latest, "
        f"coalesce(max(reading) FILTER (WHERE replayed), -1) AS done "
        f"FROM {place.quoted} WHERE flow = {literal(flow)} GROUP BY id"
    )
    late = f" AND since >= TIMESTAMP {literal(since)}" if since else ""
    ends = f"id NOT LIKE {literal('%' + held)}"
    return (
        f"SELECT {names} FROM ({grouped}) WHERE latest > done AND {ends}{late} "  # noqa: S608
        "ORDER BY since, id"
    )


_WAITS = "coalesce(replayed, false) = false"


def _listed(rows: Sequence[str]) -> str:
    return f"[{','.join(rows)}]"


def _row(record: ErrorRecord, *, whole: bool) -> list[Any]:
    body = decode_json(record.body, _Body)
    # Text of PostgreSQL cannot hold U+0000, which a reason may quote.
    reason = json.loads(bytes(body.error)).get("message", "").replace("\0", "\\u0000")
    texts = (
        [record.body.decode()]
        if whole
        else [bytes(body.error).decode(), bytes(body.original_message).decode()]
    )
    return [record.id, record.flow, reason, *texts, record.metadata.decode(), record.reading]
