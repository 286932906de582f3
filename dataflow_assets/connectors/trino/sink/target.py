"""The table that rows go to, as a session of the sink finds or makes it."""

from __future__ import annotations

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.options import TrinoSinkOptions
from dataflow_assets.connectors.trino.sink.empty_table import holds_rows
from dataflow_assets.connectors.trino.table import capabilities, create_table
from dataflow_assets.connectors.trino.table.capabilities import Capabilities
from dataflow_assets.connectors.trino.table.table import TrinoPlace, TrinoTable, find
from dataflow_assets.contracts import TargetTable
from dataflow_assets.sdk.server_failure import translate_errors


class TrinoSinkTarget(TargetTable):
    """The table of one branch, with what its catalog can do."""

    def __init__(self, client: TrinoClient, sink: TrinoSinkOptions, flow: str) -> None:
        self.client, self._sink, self._flow = client, sink, flow
        self.place = TrinoPlace(sink.catalog or "", *sink.place())
        self.found: TrinoTable | None = None
        self.able = Capabilities(snapshots=False, merge=False)

    def find(self) -> None:
        """Looks for the table. Called when a session opens, and once the table is made."""
        self.found, sink = find(self.client, self.place), self._sink
        if self.found is None:
            if not sink.auto_create_table:
                raise sink.no_table()
            return
        self.able = capabilities.ask(self.client, self.found, sink.key)
        if sink.upsert_mode:
            capabilities.check_upsert(self.found, self.able, sink.key)
            capabilities.check_mark(self.found, sink.soft)

    def warn(self) -> None:
        """Tells people what the catalog cannot do."""
        if self.found is not None and not self._sink.upsert_mode:
            capabilities.warn(self.found, self.able, self._flow)

    @property
    @override
    def identity(self) -> str | None:
        return self.found.identity if self.found else None

    @override
    def schema(self) -> pa.Schema | None:
        # Read once: a table altered under a run shows as an error, and the next run reads anew.
        return self.found.schema(self._sink.key) if self.found else None

    @override
    def create(self, sample: pa.Schema) -> None:
        with translate_errors(f"creating {self._sink.address()}"):
            create_table.create(self.client, self._sink, self.place, sample)
            self.find()
        self.warn()

    @override
    def holds_rows(self) -> bool:
        with translate_errors(f"looking into {self._sink.address()}"):
            return self.found is not None and holds_rows(self.client, self.place)
