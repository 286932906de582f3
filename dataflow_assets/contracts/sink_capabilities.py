"""Capabilities: the contract's other half, which a sink has in part.

A target table, a session or a declared sink inherits from those that it has: the first three are
of tables, `StagesWithSpark` of sessions. The file that calls one asks for it by `isinstance`; its
name is above the class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.contracts.checkpoint import Checkpoint
from dataflow_assets.contracts.sink import Sink
from dataflow_assets.contracts.slices import Span
from dataflow_assets.contracts.target import Target
from dataflow_assets.contracts.tasks import Receipt
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


# runs/report.py
class CountsFiles(ABC):
    """Knows in how many files its table is."""

    @abstractmethod
    def file_count(self) -> int | None:
        """The table's data files; None where that would cost something.

        Called by the driver with each report.
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
