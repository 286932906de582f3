"""What a source does inside tasks: it reads the slices of a span."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from dataflow_assets.contracts.connector import Connector
from dataflow_assets.contracts.slices import OffsetSlice, Slice


@dataclass(frozen=True)
class Asked:
    """One slice of messages that a task reads together with others."""

    source: SourceReader
    identity: str
    """Of the topic for which the span was planned."""
    piece: OffsetSlice
    columns: frozenset[str]
    """The metadata that somebody reads, as for `SourceSession.frame`."""
    index: int
    """Of the slice in its span."""
    slices: int
    """How many there are in the span: `_at` = offset * slices + index."""


class SourceReader(Connector):
    """The half of a declared source that travels to the tasks; `Source` is the whole."""

    metadata_keys: ClassVar[Mapping[str, str]] = {}
    """For docs/connectors: each key of a record's metadata, and what it holds."""
    metadata_columns: ClassVar[frozenset[str]] = frozenset()
    """Metadata that `frame` or `batches` delivers as columns, on request."""

    @property
    def metadata_names(self) -> tuple[str, ...]:
        """The keys of `metadata_keys` that records have with these options.

        Read when manifests are loaded.
        """
        return tuple(self.metadata_keys)

    def metadata(self, piece: Slice) -> dict[str, Any]:  # noqa: ARG002 - what overrides need
        """The metadata that all records of a slice share.

        Called inside tasks, once for each slice.

        Args:
            piece: the slice.

        Returns:
            Values by the keys of `metadata_keys`; those of single records are columns instead.
        """
        return {}

    def confirm(self, identity: str) -> None:
        """Makes sure that what was read is the topic's own.

        Called inside a task, after the last record of a slice was read and before its commit.
        Sources that read by identity need not ask.

        Args:
            identity: of the topic for which the span was planned.

        Raises:
            TransientError when the topic is no longer that one: what was read may be another one's
            records.
        """

    def large_records(self, partition: str, offsets: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Reads the large records whose values `SourceSession.frame` has left out.

        Called inside a task, once for each batch in which values are missing; never where `frame`
        leaves none out, which is the default.

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
        raise NotImplementedError(f"{self.type}: frame leaves no records out")

    @classmethod
    def messages_together(
        cls, asked: Sequence[Asked]
    ) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """Reads slices of several sources at once, be they of one flow or of many.

        Called inside a task once for all slices of sources of this class whose `shared` is
        equal, and by the driver for the sample of a table that is still to be made; only where
        `SourceSession.reads_in_tasks` was True for their spans.

        Args:
            asked: at least one; the same partition of the same topic may be asked for twice, by two
                flows.

        Returns:
            Each of `asked` exactly once, by its index there, with its batches; those that were read
            first come first. The caller reads the batches to their end, or drops them, before it
            asks for the next slice. Nothing but a mistake of ours is raised between two slices:
            what is wrong with a slice is raised by its own batches, and touches no other. The
            batches have the columns of `SourceSession.frame`, large records included, `_at` as
            there; none is empty, and none is larger than a task can bear. Their end without an
            error promises that every record of the slice was delivered, up to `piece.upto`, and
            that the topic was still the one of `identity` afterwards, so that `confirm` need not
            be asked.

        Raises:
            By the batches: TransientError when the slice cannot be read to its end; PermanentError
            when a person must act, for instance where the topic is gone.
        """
        raise NotImplementedError(f"{cls.type}: no span is read in tasks")

    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        """Reads one part inside a task; ends only when the part is complete.

        Called once for each part, only where `delivers` is not `messages`.

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
        raise NotImplementedError(f"{self.type} delivers messages")

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

    def message_form(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Typed rows as batches whose columns are the keys of their messages.

        Called inside tasks for each batch, only where steps or a sink need messages.

        Args:
            batch: as `batches` gave it: the table's columns, and those of metadata.

        Returns:
            As many rows in the same order; by default the batch itself.
        """
        return batch
