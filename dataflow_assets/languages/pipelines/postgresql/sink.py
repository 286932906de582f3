"""The PostgreSQL sink of SingleStore's pipelines.

In a package of its own by the import contract: `sink` must not know the languages that use it.
"""

from __future__ import annotations

from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.connectors.postgresql.pool import lend, transaction
from dataflow_assets.connectors.postgresql.sink.sink import PostgresqlSink
from dataflow_assets.connectors.postgresql.table import checkpoint_tables
from dataflow_assets.contracts import Run, SinkSession, Target
from dataflow_assets.languages.pipelines.postgresql import functions, monitoring, table
from dataflow_assets.languages.pipelines.postgresql.session import PostgresqlPipelineSession
from dataflow_assets.languages.pipelines.rows.table import PipelineTable
from dataflow_assets.sdk.server_failure import translate_errors

_APPLICATION = "dataflow-pipeline"


class PipelinePostgresqlSink(PostgresqlSink):
    """Appends to a table that its file declares.

    Made by the manifest language `pipelines`; DataFlow manifests do not name it.
    """

    definition: InstanceOf[PipelineTable]
    """Columns and indexes, as the statements of the file say."""
    pipeline: str | None = None
    """Its name, by which the views tell of it; None for a further table of the same pipeline."""
    config_json: str = "{}"
    """Its settings without secrets, for the views."""

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        place, dsn = self.place(), self.dsn()
        with translate_errors(f"making {self.address()}"), transaction(dsn, _APPLICATION) as link:
            functions.prepare(link, place[0])
            table.prepare(link, place, self.definition)
        if self.pipeline is None:
            return super().open(target, run)
        with translate_errors(f"making views beside {self.address()}"):
            with lend(dsn) as link:
                checkpoint_tables.prepare(link, place[0])
            with transaction(dsn, _APPLICATION) as link:
                monitoring.prepare(link, place[0])
        return PostgresqlPipelineSession(self, self.pipeline, self.config_json, target, run)
