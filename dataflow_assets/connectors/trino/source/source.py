"""The `trino` source as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.trino import types
from dataflow_assets.connectors.trino.options import TrinoSourceOptions
from dataflow_assets.connectors.trino.source.read import read
from dataflow_assets.connectors.trino.source.session import TrinoSourceSession
from dataflow_assets.contracts import Slice, TypeRow
from dataflow_assets.contracts.declared import ListsTypes
from dataflow_assets.sdk.polling import Part


class TrinoSource(TrinoSourceOptions, ListsTypes):
    """Reads a table or a query by polling: new and changed rows, in the order of their changes.

    A row is read again each time its change value has grown. Rows whose change value is the current
    second of a timestamp(0), or the current day of a date, are read after that second or day.
    """

    type: ClassVar = "trino"
    guarantee: ClassVar[str] = (
        "Each row exactly once for each of its change values: bounds are fixed before anything is "
        "read, by the coordinator's clock, and a part is stored whole or not at all. Values are "
        "compared to the last digit. Each part is a query of its own, which sees one state of the "
        "table if the catalog has snapshots. Deletes are not seen, nor are rows that are committed "
        "with a change value that was already passed."
    )
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"id"})
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "catalog": "the catalog as the manifest names it",
        "schema": "the schema as the manifest names it",
        "table": "the table as the manifest names it",
        "id": "the row's value of `orderByColumn`",
    }

    @override
    @classmethod
    def types(cls) -> tuple[TypeRow, ...]:
        return types.rows()

    @override
    def open(self, flow: str) -> TrinoSourceSession:
        return TrinoSourceSession(self, flow)

    @override
    def metadata(self, piece: Slice) -> dict[str, Any]:
        where = {"catalog": self.catalog, "schema": self.namespace}
        return {**where, **super().metadata(piece)}

    @override
    def read(
        self, part: Part, metadata: frozenset[str], most: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        return read(self, part, metadata, most)
