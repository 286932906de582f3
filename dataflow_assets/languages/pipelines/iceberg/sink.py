"""The Iceberg sink of SingleStore's pipelines.

In a package of its own by the import contract: `sink` must not know the languages that use it.
"""

from __future__ import annotations

import pyarrow as pa
from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.connectors.iceberg.sink.sink import IcebergSink
from dataflow_assets.contracts import AddsColumns, Kind, Run, SinkSession, Target
from dataflow_assets.languages.pipelines.rows.table import PipelineColumn, PipelineTable

_TYPES = {
    "TINYINT": pa.int32(),
    "SMALLINT": pa.int32(),
    "MEDIUMINT": pa.int32(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float64(),
    "DOUBLE": pa.float64(),
    "BOOL": pa.bool_(),
    "DATE": pa.date32(),
    "DATETIME": pa.timestamp("us"),
}


class PipelineIcebergSink(IcebergSink):
    """Appends to a table that its file declares.

    Made by the manifest language `pipelines`; DataFlow manifests do not name it.
    """

    definition: InstanceOf[PipelineTable]
    """Columns, as the statements of the file say."""

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        session = super().open(target, run)
        table = session.table
        schema = table.schema()
        columns = [field(column) for column in self.definition.columns]
        if schema is None:
            table.create(pa.schema(columns))
            return session
        missing = [one.with_nullable(True) for one in columns if one.name not in schema.names]
        if missing and isinstance(table, AddsColumns):
            table.add_columns(pa.schema(missing))
        return session


def field(column: PipelineColumn) -> pa.Field:
    """A column with its type in Arrow."""
    nullable = column.nullable or column.computed is not None
    if column.type.kind == "decimal":
        return pa.field(column.name, pa.decimal128(column.type.length, column.type.scale), nullable)
    kind = _TYPES.get(column.type.name, pa.string())
    metadata = Kind.JSON.mark if column.type.kind == "json" else None
    return pa.field(column.name, kind, nullable, metadata)
