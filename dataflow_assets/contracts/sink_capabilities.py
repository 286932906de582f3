"""Capabilities: the contract's other half, which a sink has in part.

A session, or a declared sink, inherits from those that it has. The file that calls one asks for it
by `isinstance`; its name is above the class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from dataflow_assets.contracts.slices import Positions, Span
from dataflow_assets.contracts.tasks import Receipt

if TYPE_CHECKING:  # a manifest is loaded without Spark
    from pyspark.sql import SparkSession


# Of sessions. runs/open_branches.py
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


# runs/open_branches.py
class NotesEnd(ABC):
    """Shows people why an attempt has ended."""

    @abstractmethod
    def note_end(self, error: BaseException | None) -> None:
        """Notes for people why the attempt ends; nothing that is stored depends on it.

        Called by the driver once at the end of each attempt, before `close`. It must not raise.

        Args:
            error: what the attempt ends with; None where it ends by itself.
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
