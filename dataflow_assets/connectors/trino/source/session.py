"""The driver's connection to a table or query of Trino that is polled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override

from dataflow_assets.connectors.trino.client import Client
from dataflow_assets.connectors.trino.options import TrinoSourceOptions
from dataflow_assets.connectors.trino.source.planning import PolledTable
from dataflow_assets.connectors.trino.source.relation import describe, place_of
from dataflow_assets.connectors.trino.table.table import find
from dataflow_assets.sdk.polling import PolledSession
from dataflow_assets.sdk.server_failure import translated


class TrinoSourceSession(PolledSession):
    """One table or query; each answer is of its own moment."""

    _source: TrinoSourceOptions

    def __init__(self, source: TrinoSourceOptions, flow: str) -> None:
        super().__init__(source, flow)
        self._client = Client(source, "dataflow-assets")
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
        self._client.close()

    def _found(self) -> str:
        if self._source.query:
            return "query"
        table = find(self._client, place_of(self._source))
        if table is None:
            raise self._source.no_table()
        return table.identity

    @override
    @contextmanager
    def asking(self) -> Iterator[PolledTable]:
        with translated(f"looking for new rows in {self._source.title}"):
            relation = describe(self._client, self._source)
            if relation.identity not in {None, self._identity}:
                raise self._source.recreated()
            yield PolledTable(self._client, relation, self._source.title)
