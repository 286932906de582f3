"""`IcebergSource` and `NessieSource`: read one table of a catalog, each of its rows once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.iceberg.nessie import NessieConnection
from dataflow_assets.connectors.iceberg.options import TableSourceOptions
from dataflow_assets.connectors.iceberg.rest import RestConnection
from dataflow_assets.contracts import Slice, SourceSession, TypeRow
from dataflow_assets.contracts.reading import FormsMessages, ReadsParts
from dataflow_assets.sdk.types.table import ListsTypes


class _TableSource(TableSourceOptions, ListsTypes, ReadsParts, FormsMessages):
    """The part that tables of any catalog share."""

    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "columns"
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"snapshot_id", "snapshot_sequence"})
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "namespace": "the table's namespace",
        "table": "the table's name",
        "snapshot_id": "with `incrementalBySnapshot`: the snapshot that added the row",
        "snapshot_sequence": "with `incrementalBySnapshot`: that snapshot's sequence number",
    }

    @override
    def metadata(self, piece: Slice) -> dict[str, Any]:
        return {"namespace": self.namespace, "table": self.table}

    @override
    def open(self, flow: str) -> SourceSession:
        from dataflow_assets.connectors.iceberg.source.session import IcebergSourceSession

        return IcebergSourceSession(self, flow)

    @override
    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        from dataflow_assets.connectors.iceberg.source.read import read

        return read(self, piece, metadata)

    @override
    def message_form(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from dataflow_assets.connectors.iceberg.raw_messages import message_form

        return message_form(batch)

    @override
    @classmethod
    def types(cls) -> tuple[TypeRow, ...]:
        from dataflow_assets.connectors.iceberg.source.types import rows

        return rows()


class IcebergSource(RestConnection, _TableSource):
    """Reads the current snapshot of one table once, then what later snapshots append.

    Snapshots follow one another in their order; rows of one snapshot have no order among them.
    Position deletes are applied, equality deletes refused. Columns are found by their field ids,
    under the names and types that they have now.

    A table with `data`, other columns and no `_metadata` is taken as written with
    `flattenMetadataColumns`: where its rows become messages, they are
    `{"value": data, "_metadata": {...}}`, and the keys of `_metadata` are metadata too.
    """

    type: ClassVar[str] = "iceberg"
    guarantee: ClassVar[str] = (
        "Each appended row exactly once: a part of a snapshot is stored whole or not at all, and "
        "its borders are recorded before it is read. Compaction adds nothing; a snapshot that "
        "deletes or replaces rows follows `onSourceRewrite`; expired snapshots that were not read "
        "are an error that says what was lost."
    )


class NessieSource(NessieConnection, _TableSource):
    """Reads a table on a branch of Nessie: its current snapshot once, then what is appended.

    What later snapshots append is found by the history of the branch, for Nessie's Iceberg REST
    catalog shows the current snapshot only. A merge into the branch counts as one snapshot. A table
    on a tag never changes, so it is read once.

    Position deletes are applied, equality deletes refused. Columns are found by their field ids,
    under the names and types that they have now. Tables with `data`, other columns and no
    `_metadata` are taken as written with `flattenMetadataColumns`, as by the source `iceberg`.
    """

    type: ClassVar[str] = "nessie"
    icon: ClassVar[str] = "iceberg"
    guarantee: ClassVar[str] = (
        "Each appended row exactly once: a part of a snapshot is stored whole or not at all, and "
        "its borders are recorded before it is read. Compaction adds nothing; a snapshot that "
        "deletes or replaces rows, and a merge that does, follow `onSourceRewrite`; a branch that "
        "was moved away from what was read, and a history that was cut off before it was read, are "
        "errors."
    )
