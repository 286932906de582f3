"""A source that polls a table or a query, as a manifest declares it."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import pyarrow as pa
from pydantic import Field, PrivateAttr
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.contracts import PartSlice, Slice, Source, SourceTraits
from dataflow_assets.contracts.reading import ReadsParts
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.sdk.database import ColumnName, NamedTable
from dataflow_assets.sdk.place import named_by
from dataflow_assets.sdk.polling.seek import check_kinds
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sql_table import Binds, PolledSqlTable, Selection, SqlRelation
from dataflow_assets.sdk.sql_table.positions import Part
from dataflow_assets.sdk.sql_table.relation import metadata_selection
from dataflow_assets.spec import Addition

C = TypeVar("C")
_ONCE = (
    "is read once, since its rows are appended: then the flow is complete. For rows that come or "
    "change later set changeTrackingColumn, or upsertMode in the sink, which has the query read "
    "again every pollInterval"
)


class PolledSource(NamedTable, Source, ReadsParts):
    """Reads new and changed rows, in the order of their changes."""

    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "columns"

    query: str | None = None
    """A SELECT to read instead of the table. With `changeTrackingColumn` it is read like a table
    and must select that column and `orderByColumn`. Without it, each read takes all of its rows:
    every `pollInterval` where all sinks upsert, and once where all sinks append."""
    poll_interval: int = Field(default=5, ge=0)
    """The shortest time between two looks for new rows, in seconds; a run reads at once."""
    read_batch_size: int = Field(default=0, ge=0)
    """The most rows of a part of a micro-batch; with 0 only `maxRecordsPerBatch` and
    `maxBytesPerBatch` limit it. A lower value also divides parts that were begun and not
    committed."""
    change_tracking_column: ColumnName
    order_by_column: ColumnName = "id"
    _once: bool = PrivateAttr(default=False)

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if self.query is not None and not self.query.strip(" ;\n\t"):
            yield "query is empty"

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        if self.verbatim:
            for name in ("order_by_column", "read_batch_size"):
                yield name, "has no effect without changeTrackingColumn: the query runs as it is"
        if self.once:
            yield "query", _ONCE

    @property
    @override
    def does_without_table(self) -> bool:
        return self.query is not None

    @property
    def verbatim(self) -> bool:
        """True for a query that nothing orders: every read is of all its rows."""
        return self.query is not None and "change_tracking_column" not in self.model_fields_set

    @property
    def once(self) -> bool:
        """True for a query that nothing orders and whose rows are appended: it is read once."""
        return self._once

    def for_branches(self, *, upserts: bool) -> Self:
        """The source as its flow needs it.

        Called when a manifest is loaded, once its branches are known.

        Args:
            upserts: whether a branch does.
        """
        found = self.model_copy()
        found._once = self.verbatim and not upserts  # noqa: SLF001 - a copy of its own
        return found

    @property
    @override
    def traits(self) -> SourceTraits:
        there = {"id": not self.verbatim, "table": self.names_table}
        query = "a query without changeTrackingColumn, as long as one sink of the flow upserts"
        return SourceTraits(
            rereads=query if self.verbatim and not self.once else "",
            absent_metadata=frozenset(name for name, is_there in there.items() if not is_there),
            poll_seconds=float(self.poll_interval),
            incremental=not self.verbatim,
        )

    @property
    @override
    def connection_group(self) -> Hashable:
        """The table: one that is locked, or large without an index, holds up no other."""
        return self.address()

    @property
    def overlap(self) -> int:
        """Seconds of which rows may come late and are read again."""
        return 0

    @property
    def title(self) -> str:
        """Returns what is read, for people."""
        return f"{'query' if self.query else 'table'} of {self.address()}"

    @override
    def metadata(self, piece: Slice) -> dict[str, Any]:
        return {"table": self.table} if self.table else {}

    @override
    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        assert isinstance(piece, PartSlice)  # noqa: S101 - this source plans nothing else
        found = self.read(Part.parse(piece.part), metadata)
        if self.verbatim:
            return found
        columns = self.order_by_column, self.change_tracking_column
        return (named_by(batch, columns) for batch in found)

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

    def read(
        self, part: Part, metadata: frozenset[str], most: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yields the part's rows in its order, at least one batch; `most`: no more rows than that.

        Called by `batches` in tasks, and by previews. Ends only when all rows came. Raises
        TransientError where the table is another one.
        """
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

    @override
    def address_name(self) -> tuple[str | None, str]:
        if self.names_table:
            return super().address_name()
        digest = hashlib.sha256((self.query or "").encode()).hexdigest()
        return None, f"query_{digest[:8]}"

    def bare_query(self) -> str:
        """Returns what stands behind FROM for the query."""
        return f"({(self.query or '').strip().rstrip(';').rstrip()}\n) AS __dataflow_src"

    def order_column(self, columns: Mapping[str, C]) -> C:
        """The column that tells rows apart. Raises PermanentError where it is missing."""
        order = columns.get(self.order_by_column)
        if order is None:
            raise PermanentError(
                f"{self.title} has no column {self.order_by_column}: set orderByColumn to a "
                f"unique column; it has {', '.join(columns)}"
            )
        return order

    def change_column(self, columns: Mapping[str, C]) -> C | None:
        """The column that tells changes, if one does. Raises PermanentError for a missing one."""
        if self.change_tracking_column == self.order_by_column:
            return None
        change = columns.get(self.change_tracking_column)
        if change is None and "change_tracking_column" in self.model_fields_set:
            raise PermanentError(
                f"{self.title} has no column {self.change_tracking_column}, which "
                f"changeTrackingColumn names; it has {', '.join(columns)}. Without such a "
                f"column, set it to {self.order_by_column}: only new rows are read then"
            )
        return change

    def no_table(self) -> PermanentError:
        """Why there is nothing to read, and the ways out."""
        return PermanentError(
            f"{self.title} does not exist: it was dropped, or never made. Create it, or fix `table`"
        )

    def recreated_error(self) -> TransientError:
        """Why what was read so far is no part of the table that is there now."""
        return TransientError(f"{self.title} was re-created while the flow ran")


class ReadsAgain(PolledSource):
    """A polled source of a server whose transactions commit late, with times of before."""

    overlap_seconds: Annotated[int, Field(ge=0), Addition()] = 0
    """Read the rows of so many seconds again: for transactions that commit late. The sink must
    upsert."""

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if self.overlap_seconds and self.verbatim:
            yield (
                "overlapSeconds needs changeTrackingColumn: without it a query is read as a whole"
            )

    @property
    @override
    def traits(self) -> SourceTraits:
        polled = super().traits
        again = self.overlap and not polled.rereads
        return replace(polled, rereads="overlapSeconds") if again else polled

    @property
    @override
    def overlap(self) -> int:
        return self.overlap_seconds
