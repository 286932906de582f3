"""Rejected records of `<table>_rejected` that wait for a replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.clickhouse.client import Client, connect, literal, query_rows, quote
from dataflow_assets.connectors.clickhouse.errors import failing
from dataflow_assets.connectors.clickhouse.options import ClickhouseSinkOptions
from dataflow_assets.connectors.clickhouse.rejected.table import place, version, widen
from dataflow_assets.contracts import Entries, Entry
from dataflow_assets.sdk.rejected_rows import row_entry
from dataflow_assets.sdk.server_failure import translated

_AT_ONCE = 500  # ids in one statement
_THERE = "SELECT 1 FROM system.tables WHERE database = {d:String} AND name = {t:String}"
_PENDING = """
SELECT id, branch, stage, n, body, body_encoding, key, key_encoding, source, partition, offset,
    metadata, rows, intDiv(_version, 2)
FROM {r} FINAL WHERE flow = {{flow:String}} AND _version % 2 = 0 AND rejected_at >= {since}
ORDER BY rejected_at, offset, n, id LIMIT {{most:UInt64}}
"""
_REPLAYED = """
INSERT INTO {r} SELECT * REPLACE (now64(6) AS replayed_at, _version + 1 AS _version) FROM (
    SELECT * FROM {r} FINAL WHERE _version % 2 = 0 AND (id, _version) IN ({named}))
"""


class ClickhouseReplay(Entries):
    """Those beside the sink's table."""

    def __init__(self, sink: ClickhouseSinkOptions) -> None:
        self._sink = sink
        self._database, self._table = sink.place()
        self._where = place(self._database, self._table)
        self._place = quote(*self._where)

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> list[Entry]:
        with self._client("reading") as client:
            if not query_rows(client, _THERE, dict(zip("dt", self._where, strict=True))):
                return []
            widen(client, self._where)
            query = _PENDING.format(r=self._place, since=moment(since))
            rows = query_rows(client, query, {"flow": flow, "most": most})
        return [row_entry(row) for row in rows]

    @override
    def replayed(self, entries: Sequence[Entry]) -> None:
        failpoints.reach("clickhouse.replayed")
        with self._client("noting a replay in") as client:
            note_replayed(client, self._place, entries)

    @contextmanager
    def _client(self, what: str) -> Iterator[Client]:
        where = f"{self._place} of {self._sink.address()}"
        with (
            translated(f"{what} {where}"),
            connect(self._sink.dsn(), "dataflow replay") as client,
        ):
            yield client


def note_replayed(client: Client, place: str, entries: Sequence[Entry]) -> None:
    """Notes that these have had their replay; may be repeated. Raises Failure."""
    named = [f"({literal(one.id)}, {version(one.reading)})" for one in entries]
    for first in range(0, len(named), _AT_ONCE):
        query = _REPLAYED.format(r=place, named=", ".join(named[first : first + _AT_ONCE]))
        with failing():
            client.command(query, settings={"async_insert": 0})


def moment(since: datetime | None) -> str:
    """A moment as SQL; without one the first that there is."""
    at = (since or datetime(1970, 1, 1, tzinfo=UTC)).astimezone(UTC)
    return f"toDateTime64({literal(at.strftime('%Y-%m-%d %H:%M:%S.%f'))}, 6, 'UTC')"
