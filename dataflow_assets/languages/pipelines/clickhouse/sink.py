"""The ClickHouse sink of SingleStore's pipelines.

In a package of its own by the import contract: `sink` must not know the languages that use it.
"""

from __future__ import annotations

from contextlib import closing

from pydantic import InstanceOf
from typing_extensions import override

from dataflow_assets.connectors.clickhouse.shared_client import ClickhouseLease
from dataflow_assets.connectors.clickhouse.sink.sink import ClickhouseSink
from dataflow_assets.contracts import Run, SinkSession, Target
from dataflow_assets.languages.pipelines.clickhouse import table
from dataflow_assets.languages.pipelines.clickhouse.session import ClickhousePipelineSession
from dataflow_assets.languages.pipelines.rows.table import PipelineTable
from dataflow_assets.sdk.server_failure import translate_errors


class PipelineClickhouseSink(ClickhouseSink):
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
        with (
            translate_errors(f"making {self.address()}"),
            closing(ClickhouseLease(self.dsn())) as lease,
        ):
            table.prepare(lease.client, self.place(), self.definition)
        if self.pipeline is None:
            return super().open(target, run)
        return ClickhousePipelineSession(self, self.pipeline, self.config_json, target, run)
