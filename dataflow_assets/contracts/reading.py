"""The way of a span's records to the tasks: promises beside `Source` and `SourceSession`.

A source or session names the classes that it keeps among its bases; the file in the comment above a
class asks for it by `isinstance`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from dataflow_assets.contracts.slices import OffsetSlice, Slice, Span
from dataflow_assets.contracts.source import Source

if TYPE_CHECKING:  # a manifest is loaded without Spark
    from pyspark.sql import DataFrame, SparkSession


# micro_batch/parts.py
class ReadsParts(ABC):
    """A source of columns or entries, whose parts the tasks read."""

    @abstractmethod
    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        """Reads one part inside a task; ends only when the part is complete.

        Called once for each part.

        Args:
            piece: the part.
            metadata: what is wanted of `metadata_columns`: each becomes a column marked METADATA,
                its Arrow name none of the table's. OP and ABSENT may be beside them, a column
                marked LACKS where values of ABSENT are not known (the sink keeps those that it
                has), one marked UNFIT where values do not fit their columns (each branch reads such
                a row as JSON, and rejects it where its sink cannot take it either), and always a
                column marked PLACE: a struct whose values name the row whenever,
                and in whatever part, it is read. Rejected records have their ids by the values;
                without the column by a digest of the row, so that a row that was altered is another
                record.

        Returns:
            Typed rows: bool, integers, floats, decimals, string (with a Kind), binary, date32,
            time64 in us, timestamp in us or ns, naive or UTC, lists and structs of these, null. The
            largest and the smallest integer of a date or timestamp is infinity. At least one batch,
            be it without rows, tells the schema. Entries: a column `body` of binary, and those that
            are marked METADATA; `key` and `headers` as in MESSAGES where there are any.

        Raises:
            TransientError when the part cannot be read to its end.
        """


# micro_batch/parts.py
class ReadsInOrder(ReadsParts):
    """A source where a key may come in several parts, and the last of its records counts."""

    def reads_in_order(self, span: Span, *, upserts: bool) -> bool:  # noqa: ARG002 - what overrides need
        """Returns whether one task reads all parts of a span, in the order of their plan.

        Asked by the driver for each job that reads parts of a span.

        Args:
            span: what is read, as `SourceSession.plan` made it or as a sink has recorded it.
            upserts: whether a branch upserts.

        Returns:
            By default True where a branch upserts.
        """
        return upserts

    def batches_in_order(
        self, pieces: Sequence[Slice], metadata: frozenset[str]
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        """Reads parts that one task stores one after the other.

        Called inside a task, once for all parts of a span that the task reads; a part is asked for
        when all batches of the one before it were taken and its writers are closed: whether its
        rows are visible by then depends on the sink. By default each is read by itself.
        The sample for a table that is still to be made reads so too, and ends early.

        Args:
            pieces: the parts, in the order in which they are planned; some of the span may be
                missing where they are stored already.
            metadata: as for `batches`.

        Returns:
            For each part what `batches` would give. What reads ahead of the part that is asked for
            says how much it keeps in memory, and ends when the iterator is closed.

        Raises:
            As `batches`, by the part that cannot be read.
        """
        for piece in pieces:
            yield self.batches(piece, metadata)


# micro_batch/parts.py
class FormsMessages(ABC):
    """A source of columns whose rows are not themselves the objects that steps read."""

    @abstractmethod
    def message_form(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Typed rows as batches whose columns are the keys of their messages.

        Called inside tasks for each batch, only where steps or a sink need messages.

        Args:
            batch: as `batches` gave it: the table's columns, and those of metadata.

        Returns:
            As many rows in the same order.
        """


# micro_batch/tasks.py
class SparkFrames(ABC):
    """A session of messages that Spark's own reader may read."""

    @abstractmethod
    def frame(self, spark: SparkSession, span: Span, columns: frozenset[str]) -> DataFrame:
        """The span's records, each Spark partition holding rows of exactly one slice, in order.

        Called by the driver once for each micro-batch, where `ChoosesReader` says nothing else.

        Args:
            spark: a live session.
            span: as `plan` made it, or as a sink has recorded it.
            columns: the metadata that somebody reads: of `key` binary, `timestamp` timestamp,
                `headers` as in MESSAGES.

        Returns:
            A lazy frame with `_at` int64 = offset * len(span.slices) + index of the slice, `body`
            binary, then the wanted columns. A source may leave out the values of a large record,
            so that no batch exceeds the memory of a task: its row keeps its place, `_at` is -1
            minus the value above, all other columns are null, and the task reads the record with
            `ReadsLargeRecords.large_records`.
        """

    def frame_failed(self, reason: str) -> bool:  # noqa: ARG002 - what overrides need
        """Returns whether tasks can read what the reader of `frame` could not.

        Called by the driver when a job over a frame has failed. The span is then read by tasks.

        Args:
            reason: what Spark says, as one sentence.

        Returns:
            True where the reason is a record that the reader cannot take; `ChoosesReader.reader`
            is not `spark` from then on. By default another attempt may succeed.
        """
        return False


SpanReader = Literal["spark", "tasks", "driver"]
"""Who reads a span of messages: Spark's reader, or a task for each slice; or also one task for many
spans, or the driver: it has few records, none known to be large, all there as far as is known."""


# micro_batch/tasks.py
class ChoosesReader(ABC):
    """A session of messages that tasks may read by `ReadsMessages`."""

    @abstractmethod
    def reader(self, span: Span) -> SpanReader:
        """Returns who reads a span fastest, and may read it.

        Called by the driver for each micro-batch.

        Args:
            span: as `plan` made it in this session, or as a sink has recorded it.
        """


@dataclass(frozen=True)
class Asked:
    """One slice of messages that a task reads together with others."""

    source: Source
    identity: str
    """Of the topic for which the span was planned."""
    piece: OffsetSlice
    columns: frozenset[str]
    """The metadata that somebody reads, as for `SparkFrames.frame`."""
    index: int
    """Of the slice in its span."""
    slices: int
    """How many there are in the span: `_at` = offset * slices + index."""


# micro_batch/task_messages.py
class ReadsMessages(ABC):
    """A source of messages that tasks read themselves."""

    @classmethod
    @abstractmethod
    def messages_together(
        cls, asked: Sequence[Asked]
    ) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """Reads slices of several sources at once, be they of one flow or of many.

        Called inside a task once for all slices of sources of this class whose
        `connection_group` is equal, and by the driver for the sample of a table that is still to
        be made; only where `ChoosesReader.reader` of their spans was not `spark`.

        Args:
            asked: at least one; the same partition of the same topic may be asked for twice, by two
                flows.

        Returns:
            Each of `asked` exactly once, by its index there, with its batches; those that were read
            first come first. The caller reads the batches to their end, or drops them, before it
            asks for the next slice. Nothing but a mistake of ours is raised between two slices:
            what is wrong with a slice is raised by its own batches, and touches no other. The
            batches have the columns of `SparkFrames.frame`, large records included, `_at` as
            there; none is empty, and none is larger than a task can bear. Their end without an
            error promises that every record of the slice was delivered, up to `piece.upto`, and
            that the topic was still the one of `identity` afterwards, so that
            `ConfirmsTopics.confirm` need not be asked.

        Raises:
            By the batches: TransientError when the slice cannot be read to its end; PermanentError
            when a person must act, for instance where the topic is gone.
        """


# micro_batch/large_records.py
class ReadsLargeRecords(ABC):
    """A source whose frames leave out the values of large records."""

    @abstractmethod
    def large_records(self, partition: str, offsets: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Reads the large records whose values `SparkFrames.frame` has left out.

        Called inside a task, once for each batch in which values are missing.

        Args:
            partition: of the slice.
            offsets: of these records, ascending, at least one.

        Returns:
            A batch of one record for each offset, in this order: `body` and every column that
            `frame` can deliver, under the same names; `_at` is ignored. The caller reads to the
            end, or stops early where the slice is cut off.

        Raises:
            TransientError when a record cannot be read, or was removed since the frame was read.
        """


# micro_batch/fused.py
class ConfirmsTopics(ABC):
    """A source that is read by its name, under which another topic may come meanwhile."""

    @abstractmethod
    def confirm(self, identity: str) -> None:
        """Makes sure that what was read is the topic's own.

        Called inside a task, after the last record of a slice was read and before its commit.

        Args:
            identity: of the topic for which the span was planned.

        Raises:
            TransientError when the topic is no longer that one: what was read may be another one's
            records.
        """
