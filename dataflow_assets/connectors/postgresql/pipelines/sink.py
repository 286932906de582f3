"""The PostgreSQL sink of SingleStore's pipelines."""

from __future__ import annotations

from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.connectors.postgresql.pipelines import functions, table
from dataflow_assets.connectors.postgresql.pool import transaction
from dataflow_assets.connectors.postgresql.sink.sink import PostgresqlSink
from dataflow_assets.contracts import Run, SinkSession, Target
from dataflow_assets.pipelines.table import Table
from dataflow_assets.sdk.server_failure import translated

_APPLICATION = "dataflow-pipeline"


class PipelinePostgresqlSink(PostgresqlSink):
    """Appends to a table that its file declares.

    Made by the manifest language `pipelines`; DataFlow manifests do not name it.
    """

    definition: InstanceOf[Table]
    """Columns and indexes, as the statements of the file say."""

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        place, dsn = self.place(), self.dsn()
        with translated(f"making {self.address()}"), transaction(dsn, _APPLICATION) as link:
            functions.prepare(link, place[0])
            table.prepare(link, place, self.definition)
        return super().open(target, run)
