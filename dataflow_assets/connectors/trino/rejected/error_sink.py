"""Error records as rows of a table: those of an error sink, and those beside a target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime

from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.trino.client import Client
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.rejected.table import (
    APART,
    WHOLE,
    ErrorTable,
    beside,
    note_replayed,
    pending_sql,
    statement,
)
from dataflow_assets.connectors.trino.table.table import Place, find
from dataflow_assets.contracts import Entry, ErrorRecord, ErrorStore
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.raw_rows import DATA
from dataflow_assets.sdk.rejected_records import HELD, entry, oldest_first
from dataflow_assets.sdk.rejected_rows import whole_record
from dataflow_assets.sdk.server_failure import translated


class TrinoErrors(ErrorStore):
    """Error records in one table: `error` and `original_message`, or raw `data`.

    At least once: a record that is stored twice has one id, and counts once for a replay.
    """

    def __init__(self, sink: TrinoSinkOptions, place: Place, *, whole: bool) -> None:
        self._sink, self._place = sink, place
        self._what = f"{place} of {sink.address()}"
        self._columns = WHOLE if whole else APART

    @classmethod
    def of(cls, sink: TrinoSinkOptions) -> TrinoErrors:
        """The sink's own table as an error sink."""
        schema, name = sink.place()
        store = cls(sink, Place(sink.catalog or "", schema, name), whole=sink.raw_mode)
        store._what = f"the error sink {sink.address()}"
        return store

    @classmethod
    def beside(cls, sink: TrinoSinkOptions) -> TrinoErrors:
        """The table of rejected records beside the sink's own."""
        return cls(sink, beside(sink), whole=False)

    @override
    def prepare(self) -> None:
        with self._client("preparing") as client:
            if self._sink.auto_create_table:
                client.create(statement(self._place, self._columns))
            self._check(client)

    @override
    def store(self, records: Sequence[ErrorRecord]) -> None:
        failpoints.reach("trino.errors")
        with self._client("storing rejected records in") as client:
            most, flow = self._sink.max_statement_length, records[0].flow
            ErrorTable(client, self._place, self._columns, most, flow).add(records)
        failpoints.reach("trino.errors-stored")

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> list[Entry]:
        body = [DATA] if DATA in self._columns else ["error", "original_message"]
        at = since.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f") if since else ""
        query = pending_sql(self._place, body, flow, at, HELD)
        with self._client("reading") as client:
            if find(client, self._place) is None:
                return []
            rows = client.rows(f"{query} LIMIT {most}")
        return oldest_first(entry(whole_record(row)) for row in rows)

    @override
    def replayed(self, entries: Sequence[Entry]) -> None:
        failpoints.reach("trino.replayed")
        names = [(_flow(one.id), one.id, one.reading) for one in entries]
        with self._client("noting a replay in") as client:
            note_replayed(client, self._place, names)

    def _check(self, client: Client) -> None:
        table = find(client, self._place)
        if table is None:
            raise PermanentError(f"the error sink's {self._sink.no_table()}")
        known = {column.name for column in table.columns}
        if missing := sorted(set(self._columns) - known):
            raise PermanentError(
                f"the error sink's table {self._place} cannot take error records: it has no "
                f"{', '.join(missing)}; name a new table and set autoCreateTable: true, or run: "
                f"{statement(self._place, self._columns)}"
            )

    @contextmanager
    def _client(self, what: str) -> Iterator[Client]:
        with (
            translated(f"{what} {self._what}"),
            closing(Client(self._sink, "dataflow-errors")) as client,
        ):
            yield client


def _flow(name: str) -> str:
    """The flow of an entry: namespace and name, which its id begins with."""
    return "/".join(name.split("/")[:2])
