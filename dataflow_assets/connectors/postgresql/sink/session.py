"""The driver's side of the sink: one epoch of one branch."""

from __future__ import annotations

from collections.abc import Callable

from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.sink.checkpoint import PostgresqlCheckpoints
from dataflow_assets.connectors.postgresql.sink.target import PostgresqlLinks, PostgresqlSinkTarget
from dataflow_assets.connectors.postgresql.table import checkpoint_tables
from dataflow_assets.contracts import Run, Target
from dataflow_assets.sdk.sink.session import TransactionalSession


class PostgresqlSinkSession(TransactionalSession):
    """The checkpoint is kept in memory: an idle loop asks nothing."""

    _sink: PostgresqlSinkOptions

    def __init__(
        self,
        sink: PostgresqlSinkOptions,
        target: Target,
        run: Run,
        table_of: Callable[[PostgresqlLinks], PostgresqlSinkTarget] = PostgresqlSinkTarget,
    ) -> None:
        """`table_of`: makes the table of the target."""
        self._links = PostgresqlLinks(sink, target)
        table = table_of(self._links)
        with self._links.lend("opening") as link:
            checkpoint_tables.prepare(link, sink.place()[0])
            checkpoint_tables.end_older(link, target)
        super().__init__(sink, target, run, table, PostgresqlCheckpoints(self._links, run, table))
        with self._links.lend("opening") as link:
            table.find(link)
