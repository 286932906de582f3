"""The table of error records, beside a target or of an error sink: rows are only ever added.

A record that is stored twice counts once, by its id; the one of the latest reading counts. A row
with `replayed` says that the record of this reading has had its replay.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from dataflow_assets.connectors.trino.client import Client, literal, quote, rows_of
from dataflow_assets.connectors.trino.errors import MISSING, Failure
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.table.table import Place
from dataflow_assets.contracts import ErrorRecord, Rejection, Slice, Target
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
    """The DDL of the table."""
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
    records = [error_record(target, piece, one) for one in rejections]
    try:
        add(client, place, APART, records)
    except Failure as failure:
        if failure.name not in MISSING:
            raise
        client.run(statement(place, APART))
        add(client, place, APART, records)


def add(
    client: Client, place: Place, columns: dict[str, str], records: Sequence[ErrorRecord]
) -> None:
    """Adds records to the table, in as many statements as are needed. Raises Failure."""
    waiting: list[list[Any]] = []
    length = 0
    for record in records:
        row = _row(record, whole=DATA in columns)
        size = sum(len(str(value)) for value in row)
        if waiting and length + size > _GIVEN:
            _insert(client, place, columns, waiting)
            waiting, length = [], 0
        waiting.append(row)
        length += size
    if waiting:
        _insert(client, place, columns, waiting)


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
    listed = ", ".join(map(quote, body))
    grouped = (
        f"SELECT id, {latest}, min(created_at) FILTER (WHERE {_WAITS}) AS since, "  # noqa: S608 - quoted
        f"max(reading) FILTER (WHERE {_WAITS}) AS latest, "
        f"coalesce(max(reading) FILTER (WHERE replayed), -1) AS done "
        f"FROM {place.quoted} WHERE flow = {literal(flow)} GROUP BY id"
    )
    late = f" AND since >= TIMESTAMP {literal(since)}" if since else ""
    ends = f"id NOT LIKE {literal('%' + held)}"
    return (
        f"SELECT {listed} FROM ({grouped}) WHERE latest > done AND {ends}{late} "  # noqa: S608
        "ORDER BY since, id"
    )


_WAITS = "coalesce(replayed, false) = false"


def _insert(
    client: Client, place: Place, columns: dict[str, str], rows: Sequence[Sequence[Any]]
) -> None:
    names = [name for name in columns if name not in {"replayed", "created_at"}]
    given = {name: columns[name] for name in names}
    listed = ", ".join(map(quote, names))
    client.run(
        f"INSERT INTO {place.quoted} ({listed}, replayed, created_at) "  # noqa: S608 - quoted
        f"SELECT {listed}, false, localtimestamp FROM {rows_of(given, rows)}"
    )


def _row(record: ErrorRecord, *, whole: bool) -> list[Any]:
    body = msgspec.json.decode(record.body, type=_Body)
    reason = json.loads(bytes(body.error)).get("message", "")
    texts = (
        [record.body.decode()]
        if whole
        else [bytes(body.error).decode(), bytes(body.original_message).decode()]
    )
    return [record.id, record.flow, reason, *texts, record.metadata.decode(), record.reading]
