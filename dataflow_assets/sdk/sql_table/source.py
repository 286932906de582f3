"""A polled source of a database that speaks SQL: its session on the driver, its reads in tasks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.contracts import metadata_column
from dataflow_assets.sdk.polling import Part, PolledSession, PolledSource
from dataflow_assets.sdk.polling.seek import check_kinds
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sql_table.dialect import Binds
from dataflow_assets.sdk.sql_table.polled import PolledSqlTable
from dataflow_assets.sdk.sql_table.relation import SqlColumn, SqlRelation


@dataclass(frozen=True)
class Selection:
    """One column of an answer: its SQL, its field, and the column whose type its values have."""

    sql: str
    field: pa.Field
    column: Any


class PolledSqlSource(PolledSource):
    """Options of a source that can be read by SQL; a connector's declared class has the hooks."""

    @abstractmethod
    def connect_task(self) -> AbstractContextManager[Any]:
        """Connects for one part. Raises the client's error."""

    @abstractmethod
    def describe(self, client: Any) -> PolledSqlTable[Any]:
        """Returns the table or query as of now. Raises PermanentError if it is not readable so."""

    @abstractmethod
    def fetch(
        self, client: Any, query: str, binds: Binds, columns: Sequence[Selection]
    ) -> Iterator[pa.RecordBatch]:
        """Yields the answer as it comes. Ends only when all of it came.

        Called in tasks, once for each part.

        Args:
            client: of `connect_task`.
            query: selects the columns.
            binds: what the query binds.
            columns: of the answer, in their order.
        """

    @override
    def read(
        self, part: Part, metadata: frozenset[str], most: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        with translate_errors(f"reading {self.title}"), self.connect_task() as client:
            table = self.describe(client)
            if table.identity != part.identity:
                raise self.recreated_error()
            check_kinds(table, part.by)
            failpoints.reach(f"{self.type}.read")
            columns = [Selection(c.selection, c.field(c.name), c) for c in table.relation.columns]
            columns += self.metadata_selections(table.relation, metadata)
            query, binds = table.select(part.rows, [column.sql for column in columns], most)
            empty = True
            for batch in self.fetch(client, query, binds, columns):
                yield batch
                failpoints.reach(f"{self.type}.read-batch")
                empty = False
            if empty:
                schema = pa.schema([column.field for column in columns])
                yield pa.RecordBatch.from_pylist([], schema=schema)

    def metadata_selections(
        self, relation: SqlRelation[Any], names: frozenset[str]
    ) -> list[Selection]:
        """Returns what is selected for the metadata of rows.

        Called in tasks, once for each part.

        Args:
            relation: what is read.
            names: the metadata that a sink needs.
        """
        if "id" not in names or relation.order is None:
            return []
        return [metadata_selection("id", relation.order.selection, relation.order)]


def metadata_selection(name: str, sql: str, column: SqlColumn) -> Selection:
    """Returns a column of metadata, whose values have the type of a column.

    Called in tasks by `PolledSqlSource.metadata_selections`, once for each part.
    """
    field = column.field(name)
    return Selection(sql, metadata_column(name, field.type, field.metadata), column)


class PolledSqlSession(PolledSession):
    """One table or query; each answer is of its own moment."""

    def __init__(
        self,
        source: PolledSqlSource,
        flow: str,
        connection: AbstractContextManager[Any],
        identify: Callable[[Any], str | None],
    ) -> None:
        """Opens a session; `close` ends its connection.

        Args:
            source: what is read.
            flow: its name.
            connection: the client; entered here. Raises the client's error.
            identify: the id of the table itself; None where there is no such table.
        """
        super().__init__(source, flow)
        self._ask = source.describe
        with ExitStack() as held:
            with translate_errors(f"connecting to {source.title}"):
                self._client = held.enter_context(connection)
            with translate_errors(f"opening {source.title}"):
                identity = "query" if source.query else identify(self._client)
            if identity is None:
                raise source.no_table()
            self._identity, self._held = identity, held.pop_all()

    @property
    @override
    def identity(self) -> str:
        return self._identity

    @override
    def close(self) -> None:
        self._held.close()

    @override
    @contextmanager
    def asking(self) -> Iterator[PolledSqlTable[Any]]:
        with translate_errors(f"looking for new rows in {self._source.title}"):
            table = self._ask(self._client)
            if table.identity not in {None, self._identity}:
                raise self._source.recreated_error()
            yield table
