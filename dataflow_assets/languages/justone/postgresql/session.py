"""The driver's side of a table that JustOne's connector has filled so far."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.pool import lend
from dataflow_assets.connectors.postgresql.sink.checkpoint import PostgresqlLinks
from dataflow_assets.connectors.postgresql.sink.session import (
    PostgresqlSinkSession,
    PostgresqlSinkTarget,
)
from dataflow_assets.contracts import Positions, Run, TakesOver, Target
from dataflow_assets.languages.justone.postgresql import state_table
from dataflow_assets.languages.justone.postgresql.text_columns import text_schema
from dataflow_assets.sdk.server_failure import translate_errors


class JustOneTarget(PostgresqlSinkTarget):
    """Its columns are text."""

    def __init__(self, names: tuple[str, ...], links: PostgresqlLinks) -> None:
        """`names`: of the columns that are written."""
        super().__init__(links)
        self._names = names

    @override
    def schema(self) -> pa.Schema | None:
        if self._columns is None and self._table is not None:
            self._columns = text_schema(self._table, self._names, str(self._sink.address()))
        return self._columns


class JustOneSession(PostgresqlSinkSession, TakesOver):
    """It begins at the offsets that JustOne has stored."""

    def __init__(
        self, sink: PostgresqlSinkOptions, names: tuple[str, ...], target: Target, run: Run
    ) -> None:
        """`names`: of the columns that are written."""
        with translate_errors(f"opening {sink.address()}"), lend(sink.dsn()) as link:
            state_table.check_version(link, str(sink.address()))
        super().__init__(sink, target, run, partial(JustOneTarget, names))

    @override
    def inheritance(self) -> Positions:
        with self._links.lend("reading JustOne's state of") as link:
            found = state_table.offsets(link, *self._sink.place(), self._target.source)
        failpoints.reach("justone.inherited")
        return {str(partition): offset for partition, offset in sorted(found.items())}
