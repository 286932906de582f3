"""The table that rows go to, as a session of the sink finds, makes and changes it."""

from __future__ import annotations

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.clickhouse.client import Client, query_rows
from dataflow_assets.connectors.clickhouse.options import ClickhouseSinkOptions
from dataflow_assets.connectors.clickhouse.sink import empty_table
from dataflow_assets.connectors.clickhouse.sink.upsert_rules import UpsertRules
from dataflow_assets.connectors.clickhouse.table import create_table
from dataflow_assets.connectors.clickhouse.table.table import ClickhouseTable, find
from dataflow_assets.contracts import AddsColumns, ChecksTarget, CountsRows, TargetTable
from dataflow_assets.sdk.server_failure import translate_errors


class ClickhouseSinkTarget(TargetTable, AddsColumns, ChecksTarget, CountsRows):
    """The table of one branch, and how rows are upserted into it."""

    def __init__(self, client: Client, sink: ClickhouseSinkOptions) -> None:
        self._client, self._sink = client, sink
        self.found: ClickhouseTable | None = None
        self.upsert = UpsertRules()

    def find(self) -> ClickhouseTable | None:
        """Looks for the table. Called when a session opens, and once the table has changed."""
        self.found, self.upsert = find(self._client, *self._sink.place()), UpsertRules()
        if self.found is not None:
            self.found.check()
            self.upsert = UpsertRules.of(self._sink, self.found)
        return self.found

    @property
    @override
    def identity(self) -> str | None:
        return self.found.uuid if self.found else None

    @override
    def schema(self) -> pa.Schema | None:
        # Read once: a table altered under a run shows as an error, and the next run reads anew.
        if self.found is None:
            return None
        return self.found.schema(self.upsert.key, self.upsert.own_columns)

    @override
    def row_count(self) -> int | None:
        if self.found is None or self.found.replaces:
            return None
        query = "SELECT total_rows FROM system.tables WHERE uuid = {u:UUID}"
        with translate_errors(f"counting the rows of {self._sink.address()}"):
            found = query_rows(self._client, query, {"u": self.found.uuid})
        return found[0][0] if found else None

    @override
    def check_target(self) -> None:
        if self.found is None and not self._sink.auto_create_table:
            raise self._sink.no_table()

    @override
    def create(self, sample: pa.Schema) -> None:
        self.check_target()
        with translate_errors(f"creating {self._sink.address()}"):
            create_table.create(self._client, self._sink, sample)
            self.find()

    @override
    def statement(self, columns: pa.Schema) -> str:
        return create_table.adding(self._sink, columns)

    @override
    def add_columns(self, columns: pa.Schema) -> None:
        with translate_errors(f"adding columns to {self._sink.address()}"):
            create_table.add_columns(self._client, self._sink, columns)
            self.find()

    @override
    def holds_rows(self) -> bool:
        with translate_errors(f"counting the rows of {self._sink.address()}"):
            return self.found is not None and empty_table.holds_rows(self._client, self.found)
