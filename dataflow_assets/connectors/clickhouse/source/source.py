"""The `clickhouse` source as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.options import ClickhouseSourceOptions
from dataflow_assets.connectors.clickhouse.source.read import read
from dataflow_assets.connectors.clickhouse.source.session import ClickhouseSourceSession
from dataflow_assets.contracts import TypeRow
from dataflow_assets.contracts.declared import ListsTypes
from dataflow_assets.sdk.polling import Part


class ClickhouseSource(ClickhouseSourceOptions, ListsTypes):
    """Reads a table or a query by polling: new and changed rows, in the order of their changes.

    A row is read again each time its change value has grown. Rows whose change value is the current
    second of a DateTime, or the current day of a Date, are read after that second or day.
    """

    type: ClassVar = "clickhouse"
    guarantee: ClassVar[str] = (
        "Each row exactly once per change value, as far as its change column shows: bounds are "
        "fixed before anything is read, by the server's clock, and a part is stored whole or not "
        "at all. Values are compared to the last digit, so rows of one change value are neither "
        "skipped nor repeated. Deletes are not seen, nor rows that are inserted with a change "
        "value that was already passed."
    )
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"id"})
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "table": "the table as the manifest names it",
        "id": "the row's value of `orderByColumn`",
    }

    @override
    @classmethod
    def types(cls) -> tuple[TypeRow, ...]:
        return types.rows()

    @override
    def open(self, flow: str) -> ClickhouseSourceSession:
        return ClickhouseSourceSession(self, flow)

    @override
    def read(
        self, part: Part, metadata: frozenset[str], most: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        return read(self, part, metadata, most)
