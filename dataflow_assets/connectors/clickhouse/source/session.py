"""The driver's connection to a table or query of ClickHouse that is polled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override

from dataflow_assets.connectors.clickhouse.options import ClickhouseSourceOptions
from dataflow_assets.connectors.clickhouse.shared_client import Lease
from dataflow_assets.connectors.clickhouse.source.planning import PolledTable
from dataflow_assets.connectors.clickhouse.source.relation import describe, identity
from dataflow_assets.sdk.polling import PolledSession
from dataflow_assets.sdk.server_failure import translated


class ClickhouseSourceSession(PolledSession):
    """One table or query; each answer is of its own moment."""

    _source: ClickhouseSourceOptions

    def __init__(self, source: ClickhouseSourceOptions, flow: str) -> None:
        super().__init__(source, flow)
        with translated(f"connecting to {self._source.title}"):
            self._lease = Lease(source.dsn())
        self._client = self._lease.client
        try:
            with translated(f"opening {self._source.title}"):
                self._identity = self._found()
        except BaseException:
            self.close()
            raise

    @property
    @override
    def identity(self) -> str:
        return self._identity

    @override
    def close(self) -> None:
        self._lease.close()

    def _found(self) -> str:
        if self._source.query:
            return "query"
        found = identity(self._client, self._source)
        if found is None:
            raise self._source.no_table()
        return found

    @override
    @contextmanager
    def asking(self) -> Iterator[PolledTable]:
        with translated(f"looking for new rows in {self._source.title}"):
            relation = describe(self._client, self._source)
            if relation.identity not in {None, self._identity}:
                raise self._source.recreated()
            yield PolledTable(self._client, relation, self._source.title)
