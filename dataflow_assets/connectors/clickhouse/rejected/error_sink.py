"""A ClickHouse table as an error sink: for `FINAL` each record once, known by its id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.clickhouse.client import (
    Client,
    connect,
    insert_rows,
    inserting,
    query_rows,
    quote,
)
from dataflow_assets.connectors.clickhouse.errors import failing
from dataflow_assets.connectors.clickhouse.options import ClickhouseSinkOptions
from dataflow_assets.connectors.clickhouse.rejected.replay import moment, note_replayed
from dataflow_assets.connectors.clickhouse.rejected.table import (
    REPLAYED,
    statement,
    token,
    version,
    widen,
)
from dataflow_assets.connectors.clickhouse.table.table import find
from dataflow_assets.contracts import Entry, ErrorRecord, ErrorStore
from dataflow_assets.decoding import decode_json
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.wrapped import METADATA
from dataflow_assets.sdk.raw_rows import DATA
from dataflow_assets.sdk.rejected_records import HELD, entry, oldest_first
from dataflow_assets.sdk.rejected_rows import whole_record
from dataflow_assets.sdk.server_failure import translated

_ID = {"id": "String", "flow": "String"}
_AT = {"created_at": "DateTime64(6, 'UTC') DEFAULT now64(6)"}
_APART = {**_ID, "error": "String", "original_message": "String", METADATA: "String", **_AT}
_WHOLE = {**_ID, DATA: "String", METADATA: "String", **_AT}
_PENDING = """
SELECT {body} FROM {t} FINAL WHERE flow = {{flow:String}} AND _version % 2 = 0
AND NOT endsWith(id, '{held}') AND created_at >= {since}
ORDER BY created_at, id LIMIT {{most:UInt64}}
"""


class _Body(msgspec.Struct):
    error: msgspec.Raw
    original_message: msgspec.Raw


class ClickhouseErrors(ErrorStore):
    """Stores error records in the sink's table: `error` and `original_message`, or raw `data`."""

    def __init__(self, sink: ClickhouseSinkOptions) -> None:
        self._sink = sink
        self._columns = _WHOLE if sink.raw_mode else _APART
        self._place = quote(*sink.place())

    @override
    def prepare(self) -> None:
        with self._client("preparing") as client:
            if self._sink.auto_create_table:
                with failing():
                    client.command(statement(self._place, self._columns))
            self._check(client)

    @override
    def store(self, records: Sequence[ErrorRecord]) -> None:
        failpoints.reach("clickhouse.errors")
        rows = [self._row(one) for one in records]
        with self._client("storing rejected records in") as client:
            insert_rows(client, self._place, rows, inserting(token(rows)))
        failpoints.reach("clickhouse.errors-stored")

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> list[Entry]:
        body = DATA if self._sink.raw_mode else "error, original_message"
        query = _PENDING.format(t=self._place, body=body, since=moment(since), held=HELD)
        with self._client("reading") as client:
            if find(client, *self._sink.place()) is None:
                return []
            self._check(client)
            rows = query_rows(client, query, {"flow": flow, "most": most})
        return oldest_first(entry(whole_record(row)) for row in rows)

    @override
    def replayed(self, entries: Sequence[Entry]) -> None:
        failpoints.reach("clickhouse.replayed")
        with self._client("noting a replay in") as client:
            note_replayed(client, self._place, entries)

    def _row(self, record: ErrorRecord) -> dict[str, Any]:
        row = {
            "id": record.id,
            "flow": record.flow,
            METADATA: record.metadata.decode(),
            "_version": version(record.reading),
        }
        if self._sink.raw_mode:
            return row | {DATA: record.body.decode()}
        body = decode_json(record.body, _Body)
        error, original = bytes(body.error).decode(), bytes(body.original_message).decode()
        return row | {"error": error, "original_message": original}

    def _check(self, client: Client) -> None:
        table = find(client, *self._sink.place())
        if table is None:
            raise PermanentError(f"the error sink's {self._sink.no_table()}")
        wanted = self._columns | REPLAYED
        if missing := sorted(set(wanted) - table.names):
            raise PermanentError(
                f"the error sink's table {'.'.join(self._sink.place())} cannot take error records: "
                f"it has no {', '.join(missing)}; name a new table and set autoCreateTable: true, "
                f"or run: {statement(self._place, self._columns)}"
            )
        widen(client, self._sink.place(), ())

    @contextmanager
    def _client(self, what: str) -> Iterator[Client]:
        where = f"the error sink {self._sink.address()}"
        with (
            translated(f"{what} {where}"),
            connect(self._sink.dsn(), "dataflow errors") as client,
        ):
            yield client
