"""The driver's side of a table that JustOne's connector has filled so far."""

from __future__ import annotations

import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.pool import lend
from dataflow_assets.connectors.postgresql.sink.session import PostgresqlSinkSession
from dataflow_assets.contracts import Positions, Run, TakesOver, Target
from dataflow_assets.languages.justone.postgresql import state_table
from dataflow_assets.languages.justone.postgresql.text_columns import text_schema
from dataflow_assets.sdk.server_failure import translate_errors


class JustOneSession(PostgresqlSinkSession, TakesOver):
    """Its columns are text, and it begins at the offsets that JustOne has stored."""

    def __init__(
        self, sink: PostgresqlSinkOptions, names: tuple[str, ...], target: Target, run: Run
    ) -> None:
        """`names`: of the columns that are written."""
        self._names = names
        self._texts: pa.Schema | None = None
        with translate_errors(f"opening {sink.address()}"), lend(sink.dsn()) as link:
            state_table.check_version(link, str(sink.address()))
        super().__init__(sink, target, run)

    @override
    def schema(self) -> pa.Schema | None:
        if self._texts is None and self._table is not None:
            self._texts = text_schema(self._table, self._names, str(self._sink.address()))
        return self._texts

    @override
    def inheritance(self) -> Positions:
        topic = self._target.source
        reading = f"reading JustOne's state of {self._sink.address()}"
        with translate_errors(reading), lend(self._sink.dsn()) as link:
            offsets = state_table.offsets(link, self._schema, self._name, topic)
        failpoints.reach("justone.inherited")
        return {str(partition): offset for partition, offset in sorted(offsets.items())}
