"""Capabilities: the contract's other half, which a sink has in part.

A target table, a session or a declared sink inherits from those that it has: the first three are
of tables, the next three of sessions. The file that calls one asks for it by `isinstance`; its name
is above the class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.contracts.checkpoint import Checkpoint
from dataflow_assets.contracts.sink import Sink
from dataflow_assets.contracts.slices import Positions, Span
from dataflow_assets.contracts.target import Target
from dataflow_assets.contracts.tasks import Receipt, Shape
from dataflow_assets.errors import DataflowError, raise_if_error

if TYPE_CHECKING:  # a manifest is loaded without Spark
    from pyspark.sql import SparkSession


# runs/open_branches.py
class ChecksTarget(ABC):
    """Tells before a row is there whether rows can be written."""

    @abstractmethod
    def check_target(self) -> None:
        """Looks whether rows can be written, as far as the target tells without a row.

        Called by the driver when a branch without a checkpoint opens, only where the source will
        hold log (its slot is not created for a target that takes nothing) and no step may drop all
        of its records; and by `create`.

        Raises:
            PermanentError where the target is missing and may not be created, or the role may not
            write to it.
        """


# runs/new_columns.py
class AddsColumns(ABC):
    """Can add columns to a table that exists; its declared sink says so by `adds_columns`."""

    fills_columns: ClassVar[bool] = False
    """Whether it gives the rows that are there the value that FILLED says."""

    def statement(self, columns: pa.Schema) -> str:  # noqa: ARG002 - what overrides need
        """Returns the statement by which a person would add columns; empty where there is none.

        Called by the driver where rows have columns that the target lacks.

        Args:
            columns: with the types of the source, as for `create`.
        """
        return ""

    @abstractmethod
    def add_columns(self, columns: pa.Schema) -> None:
        """Adds columns to the table, which may be null; those that the table has by now stay.

        Called by the driver between two micro-batches; it may be repeated. `schema` has the columns
        afterwards.

        Args:
            columns: with the types of the source, as for `create`.

        Raises:
            PermanentError where the role may not alter the table; TransientError when the target
            cannot be reached, or others keep the table locked.
        """


# runs/report.py
class CountsRows(ABC):
    """Knows how many rows its table has."""

    @abstractmethod
    def row_count(self) -> int | None:
        """The table's rows in all; None where that would not be exact, or would cost something.

        Called by the driver with each report.
        """


# runs/open_branches.py
class NotesEnd(ABC):
    """Shows people why an attempt has ended."""

    @abstractmethod
    def note_end(self, error: BaseException | None) -> None:
        """Notes for people why the attempt ends; nothing that is stored depends on it.

        Called by the driver once at the end of each attempt, before `close`. It must not raise.

        Args:
            error: the attempt's; None where it ends by itself.
        """


# runs/start_positions.py
class TakesOver(ABC):
    """Goes on in a table that another program has filled."""

    @abstractmethod
    def inheritance(self) -> Positions:
        """Positions that another program has stored beside the table, together with its rows.

        Called by the driver once, when a branch begins that has no checkpoint, and by `dataflow
        reset --checkpoint`.

        Returns:
            A position for each partition that is known, which may be none.

        Raises:
            TransientError while the other program still writes; PermanentError when a person must
            act.
        """


# runs/attempt.py
class StagesWithSpark(ABC):
    """Needs Spark jobs of its own before it can publish."""

    @abstractmethod
    def stage(
        self, span: Span, receipts: Sequence[Receipt], spark: Callable[[], SparkSession]
    ) -> None:
        """Prepares, with Spark jobs of the sink's own, what `finish` publishes (Iceberg upserts).

        Called by the driver once for each micro-batch, between the pass and `finish`. Nothing of it
        is visible to readers; doing it twice changes nothing.

        Args:
            span: what was read.
            receipts: of this branch's writers, by partition.
            spark: gives a live session.

        Raises:
            TransientError when Spark fails.
        """


# contracts/sink_capabilities.py
class ShapesRecords(ABC):
    """Stores something else of a record than its body (raw mode)."""

    @abstractmethod
    def shape(self, schema: pa.Schema | None) -> Shape | None:
        """Returns what is stored where it is not the body itself, in a table of these columns.

        Called inside tasks once for each slice, and on the driver when a branch opens.

        Args:
            schema: of the table; None for the shape from which a table that does not exist yet gets
                its types: values may then be times too.

        Raises:
            PermanentError where the table does not fit.
        """


def shape_of(sink: Sink, schema: pa.Schema | None) -> Shape | None:
    """Returns the shape of any sink; None where records are stored as their bodies.

    Called as `ShapesRecords.shape`; without a schema also when manifests are loaded.
    """
    return sink.shape(schema) if isinstance(sink, ShapesRecords) else None


# runs/questions.py
class PeeksTogether(Sink):
    """Answers for many branches of one server by one connection, or one query."""

    @override
    def peek(self, target: Target) -> Checkpoint | None:
        return raise_if_error(self.peek_together([(self, target)])[0])

    @classmethod
    @abstractmethod
    def peek_together(
        cls, asked: Sequence[tuple[Self, Target]]
    ) -> list[Checkpoint | DataflowError | None]:
        """The stored checkpoints of many branches whose sinks have an equal `connection_group`.

        Called by whoever looks at many flows.

        Args:
            asked: each branch with its sink.

        Returns:
            For each what `peek` would have returned, or the error that it would have raised: what
            is wrong with one table is no other's error.

        Raises:
            DataflowError where none of them could be asked.
        """


# runs/statuses.py, cli/preview/live.py
class ShowsInheritance(ABC):
    """Shows people where the program has stopped whose table it takes over."""

    @abstractmethod
    def inheritance(self, target: Target) -> Positions | None:
        """Returns where the program has stopped that has filled the table so far; takes nothing.

        Called by `dataflow status` and `preview` for a branch without a checkpoint.

        Returns:
            A position for each partition that is known; None where nothing is.

        Raises:
            TransientError, PermanentError: the sink cannot be asked.
        """


# manifests/stored_tables.py
class ChecksStored(ABC):
    """Declares its table, and changes it as the declaration changes."""

    @abstractmethod
    def stored_problems(self) -> Iterator[tuple[str | None, str]]:
        """Returns what is declared and cannot be done to what is stored.

        Called by `dataflow check` alone, which may take the time to look at the table.

        Returns:
            The id of a declared field, `partitioning`, or None for the columns as a whole, and a
            sentence about it.

        Raises:
            TransientError, PermanentError: the table cannot be looked at.
        """


# reference/types.py
class MakesColumns(ABC):
    """Makes tables with typed columns."""

    @classmethod
    @abstractmethod
    def stored_type(cls, column: pa.Field) -> str:
        """The type that `SinkSession.create` gives an interchange column, for docs/types.md.

        Called when the reference is generated, for each row of the table of types.

        Returns:
            The type as the system writes it; of text that is more than text by the metadata KIND.
        """

    @classmethod
    def keeps_type(cls, column: pa.Field) -> bool:  # noqa: ARG003 - what overrides need
        """Returns whether a table made for a column of the same system has its very type.

        Called when the reference is generated, for sources of the sink's own type.

        Returns:
            True where the type is not that of `stored_type`, but the one that the source has read.
        """
        return False


# manifests/neighbours.py
class WritesFiles(ABC):
    """Writes files to a folder."""

    @abstractmethod
    def folder(self) -> tuple[str, ...]:
        """The folder that this sink writes files to, in which no other flow's may lie.

        Called when manifests are loaded.

        Returns:
            The store and the folders, from the outermost one.
        """
