"""The one pass: large records filled in -> decode -> encode -> writer.

Inside a task: over the rows of one Spark partition, or over slices that the task reads itself. Its
only output is receipts.

No row travels back into the JVM. An error of ours travels back as a receipt too, so that the
driver meets the same class again and Spark does not repeat what cannot succeed. The end of the
input proves nothing (when the JVM side fails in mid-slice, the iterator simply ends), hence offset
slices are closed with `complete=False`: writers commit what was seen, never what was planned.
So a slice that turns out much larger than planned simply ends early, and the driver is told where.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa

from dataflow_assets import failpoints
from dataflow_assets.contracts import Chunk, OffsetSlice, Receipt, Slice, Source, Span, Writer
from dataflow_assets.contracts.reading import ConfirmsTopics
from dataflow_assets.errors import DataflowError, PermanentError, blame
from dataflow_assets.formats.message_format import MessageFormat
from dataflow_assets.micro_batch import unknown_values
from dataflow_assets.micro_batch.batch_bytes import fitting
from dataflow_assets.micro_batch.branches import BranchSteps, PassBranch
from dataflow_assets.micro_batch.defects import blaming_record, place, report_defects
from dataflow_assets.micro_batch.large_records import with_large_values
from dataflow_assets.micro_batch.message_metadata import (
    TIMESTAMP,
    MetadataRows,
    as_messages,
    metadata_to_read,
    with_ordinals,
)
from dataflow_assets.micro_batch.parts import are_in_order, message_form, read_in_order
from dataflow_assets.micro_batch.places import Places
from dataflow_assets.micro_batch.rejected_share import RejectedShare
from dataflow_assets.micro_batch.results import Result, TaskReport, encode
from dataflow_assets.micro_batch.routed_rows import RoutedRows, are_routed
from dataflow_assets.micro_batch.task_failures import TaskFailure
from dataflow_assets.micro_batch.tasks import spare_worker
from dataflow_assets.micro_batch.transform import reader
from dataflow_assets.micro_batch.typed_rows import type_chunks

log = logging.getLogger(__name__)

Shares = Generator[list[Chunk], None, None]
"""For each batch what each branch's writer gets; closed, it lets go of what it reads from."""
Chunks = tuple[Slice, Shares]
"""A slice, and what its writers get."""

# A slice is planned by a guess at its records' sizes, and one that is a little larger than planned
# may go on: a task that ends before its input does costs Spark a warm Python worker.
_SLACK = 2


@dataclass(frozen=True)
class Pass:
    """Takes a span inside tasks; each Spark partition of a frame holds one slice's rows."""

    source: Source
    span: Span
    branches: tuple[PassBranch, ...]
    max_rejected_percent: float
    steps: BranchSteps | None = None
    most_bytes: int | None = None
    """What a slice of offsets is planned for; one that turns out much larger is not read on."""
    format: MessageFormat | None = None
    """What the bodies of messages are written in; None: JSON."""

    @property
    def in_order(self) -> bool:
        """One task reads all parts, one after the other: the last record of a key counts."""
        upserts = any(branch.traits.upserts for branch in self.branches)
        return are_in_order(self.source, self.span, upserts=upserts)

    @property
    def _forwards(self) -> bool:
        """A branch takes messages as they are."""
        return any(branch.sink.takes == "messages" for branch in self.branches)

    @property
    def metadata_to_read(self) -> frozenset[str]:
        """The metadata to read beside the bodies, of what the source offers as columns."""
        reads = self.steps.reads if self.steps else frozenset[str]()
        if self.source.traits.null_messages == "delete":
            reads |= {"key"}
        if any(branch.traits.record_time for branch in self.branches):
            reads |= {TIMESTAMP}
        return metadata_to_read(
            self.source, reads | ({"key", "headers"} if self._forwards else frozenset())
        )

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One batch of `Result`s: a receipt for each branch, or the failure that ended the task."""
        spare_worker()
        report = TaskReport()
        yield encode(self._results(self._from_spark(batches, report), report))

    def over_parts(self, indexes: Sequence[int]) -> list[Result]:
        """Takes parts that the task reads itself, one after the other."""
        report = TaskReport()
        with closing(self._parts(indexes, report)) as parts:
            return self._results(parts, report)

    def over_messages(self, index: int, batches: Iterator[pa.RecordBatch]) -> list[Result]:
        """Takes a slice of messages that the task has read by `messages_together`."""
        report = TaskReport()
        piece = self.span.slices[index]
        bounded = self._bound(index, report.meter.reading(batches), report)
        chunks = self._until_cut(piece, self._messages(index, bounded), report)
        return self._results(iter([(piece, chunks)]), report)

    def _results(self, slices: Iterator[Chunks], report: TaskReport) -> list[Result]:
        failpoints.arm(self.branches[0].ticket.failpoint)
        target = self.branches[0].ticket.target
        try:
            with report_defects(target.flow, target.source):
                results = [Result(receipt) for receipt in self._receipts(slices, report)]
        except DataflowError as error:
            return [Result(failure=TaskFailure.of(error))]
        return [*results, *report.results()]

    def _receipts(self, slices: Iterator[Chunks], report: TaskReport) -> Iterator[Receipt]:
        for piece, chunks in slices:
            names = [branch.ticket.target.branch for branch in self.branches]
            writers: list[Writer] = []
            try:
                for branch in self.branches:
                    with blame(branch.ticket.target.branch):
                        writers.append(branch.sink.writer(branch.ticket, piece))
                with closing(chunks), self._naming(piece):
                    for share in chunks:
                        for name, writer, chunk in zip(names, writers, share, strict=True):
                            report.meter.refuse(chunk)
                            with blame(name), self._naming(piece), report.meter.writing():
                                writer.write(chunk)
                            report.notes.update(f"branch {name}: {note}" for note in chunk.notes)
                with report.meter.writing():
                    receipts = list(self._close(piece, names, writers))
                report.end_slice(receipts)
                yield from receipts
            finally:
                for writer in writers:
                    try:
                        writer.abort()
                    except Exception as error:  # noqa: BLE001 - what has failed before is the error to tell
                        log.warning("a writer could not be ended: %s", error)

    def _naming(self, piece: Slice) -> AbstractContextManager[None]:
        """A mistake of ours inside names the slice."""
        target = self.branches[0].ticket.target
        return report_defects(target.flow, place(target.source, piece))

    def _close(
        self, piece: Slice, names: Sequence[str], writers: Sequence[Writer]
    ) -> Iterator[Receipt]:
        complete = not isinstance(piece, OffsetSlice)
        for name, writer in zip(names, writers, strict=True):
            with blame(name), self._naming(piece):
                receipt = writer.close(complete)
            yield receipt

    def _from_spark(
        self, batches: Iterable[pa.RecordBatch], report: TaskReport
    ) -> Iterator[Chunks]:
        filled = report.meter.reading(with_large_values(batches, self.source, self.span.slices))
        for first in filled:
            index = first.column("_at")[0].as_py() % len(self.span.slices)
            piece = self.span.slices[index]
            bounded = self._bound(index, chain([first], filled), report)
            yield piece, self._confirm_after(self._messages(index, bounded))
            if piece.partition in report.cuts:
                return  # what follows in this Spark partition lies behind the cut

    def _parts(self, indexes: Sequence[int], report: TaskReport) -> Generator[Chunks, None, None]:
        pieces = [self.span.slices[index] for index in indexes]
        each = read_in_order(self.source, pieces, self.metadata_to_read)
        try:
            for piece, batches in zip(pieces, each, strict=True):
                measured = report.meter.reading(batches)
                yield piece, self._confirm_after(self._columns(piece, measured))
        finally:
            if isinstance(each, Generator):
                each.close()

    def _until_cut(self, piece: Slice, chunks: Shares, report: TaskReport) -> Shares:
        """Only of a slice that was read to its end is it known whose records they were."""
        yield from chunks
        if piece.partition in report.cuts:
            self._confirm()

    def _confirm_after(self, chunks: Shares) -> Shares:
        """Before the commit: what was read is the source's own."""
        yield from chunks
        self._confirm()

    def _confirm(self) -> None:
        if isinstance(self.source, ConfirmsTopics):
            self.source.confirm(self.branches[0].ticket.target.source_id)

    def _bound(
        self, index: int, batches: Iterable[pa.RecordBatch], report: TaskReport
    ) -> Iterator[pa.RecordBatch]:
        piece = self.span.slices[index]
        if self.most_bytes is None or self.span.whole or not isinstance(piece, OffsetSlice):
            yield from batches
            return
        left = _SLACK * self.most_bytes
        for batch in batches:
            taken, size = fitting(batch, left)
            yield taken
            left -= size
            upto = taken.column("_at")[-1].as_py() // len(self.span.slices) + 1
            if upto < piece.upto and (left <= 0 or taken.num_rows < batch.num_rows):
                report.cuts[piece.partition] = upto
                return

    def _messages(self, index: int, batches: Iterable[pa.RecordBatch]) -> Shares:
        slices = self.span.slices
        reads = self.steps.reads if self.steps else frozenset[str]()
        rows = MetadataRows(self.source, slices[index], len(slices), reads)
        make = partial(reader, self.steps, self.branches, rows, self.format)
        read = make()
        share = self._share(slices[index])
        for batch in filter(len, batches):  # a shard may have nothing but records of others
            if batch.column("_at")[-1].as_py() % len(slices) != index:
                raise PermanentError("one Spark partition holds rows of two slices")
            offsets = rows.offsets(batch)
            with self._naming(slices[index]):
                chunks = blaming_record(batch, read, make, offsets)
            chunks = unknown_values.with_unknown(chunks, self.branches, batch, offsets)
            share.add(batch.num_rows, chunks)
            yield chunks

    def _columns(self, piece: Slice, batches: Iterator[pa.RecordBatch]) -> Shares:
        index, slices = self.span.slices.index(piece), len(self.span.slices)
        try:
            if self.source.delivers == "entries":
                yield from self._messages(index, with_ordinals(batches, index, slices))
            elif self.steps and are_routed(self.steps, self.source, piece, self.branches):
                routed = RoutedRows(self.steps, self.source, piece, self.branches, Places(piece))
                yield from self._rows(piece, batches, lambda seen, b: routed(b, seen))
            elif self.steps is not None or self._forwards:
                yield from self._messages(
                    index,
                    as_messages(map(partial(message_form, self.source), batches), index, slices),
                )
            else:
                places = Places(piece)
                yield from self._rows(
                    piece, batches, lambda seen, b: type_chunks(b, self.branches, seen, places)
                )
        finally:
            # Left to the garbage collection, a connection would keep its transaction open.
            if isinstance(batches, Generator):
                batches.close()

    def _rows(
        self,
        piece: Slice,
        batches: Iterable[pa.RecordBatch],
        share: Callable[[int, pa.RecordBatch], list[Chunk]],
    ) -> Shares:
        seen, counted = 0, self._share(piece)
        for batch in batches:
            offsets = np.arange(seen, seen + batch.num_rows)
            make = partial(share, seen)
            with self._naming(piece):
                chunks = blaming_record(batch, make, partial(partial, share, seen), offsets)
            chunks = unknown_values.with_unknown(chunks, self.branches, batch, offsets)
            seen += batch.num_rows
            counted.add(batch.num_rows, chunks)
            yield chunks

    def _share(self, piece: Slice) -> RejectedShare:
        return RejectedShare(self.branches[0].ticket.target, piece, self.max_rejected_percent)
