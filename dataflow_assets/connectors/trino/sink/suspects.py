"""Which record a refused statement is narrowed down to: by smaller micro-batches.

Trino has no transaction in which rows could be tried. So the halves are ordinary micro-batches:
what is stored of them stays stored, with its checkpoint. Only slices of offsets may end early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.trino.errors import TrinoFailure
from dataflow_assets.connectors.trino.table.stage import TrinoStaged
from dataflow_assets.contracts import OFFSET, Chunk, OffsetSlice, Receipt, Span
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.decoding import decode_json
from dataflow_assets.sdk.server_failure import Fault
from dataflow_assets.sdk.sink.slice_commit import rejections


class RefusedSpan(Exception):
    """The statement of a span was refused, and a record may be at fault."""

    def __init__(self, failure: TrinoFailure, what: str) -> None:
        """`what`: was written, and to which table."""
        self.failure = failure
        self.error = PermanentError(str(failure.error(what)))  # the same rows are refused again
        super().__init__(str(self.error))


Publish = Callable[[Span, Sequence[Receipt]], object]


@dataclass(frozen=True)
class TrinoBound:
    """What a writer takes of one partition."""

    records: int | None = None
    """So many at the most; None: all."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """By the offset why the target refuses a record."""


@dataclass
class _Search:
    """In one partition: of `left` records ahead one is refused; 0: none is known to be."""

    most: int
    whole: int
    left: int

    def is_over(self, records: int) -> bool:
        """Whether as many can be stored again as were refused at first; so many are stored now."""
        self.left = max(self.left - records, 0)
        self.most = max(self.left // 2, 1) if self.left else 2 * self.most
        return self.most >= self.whole


class Suspects:
    """The searches of one session. Another one begins anew."""

    def __init__(self) -> None:
        self._searches = dict[str, _Search]()
        self._refused = dict[str, dict[int, str]]()
        self._stored = False

    @property
    def bounds(self) -> Mapping[str, TrinoBound]:
        """By partition, for the writers of the next span."""
        return {
            name: TrinoBound(
                self._searches[name].most if name in self._searches else None,
                self._refused.get(name, {}),
            )
            for name in {*self._searches, *self._refused}
        }

    def store(self, span: Span, receipts: Sequence[Receipt], publish: Publish) -> None:
        """Stores a span, or what of it the target takes.

        What is left, because a record in it is searched for, is read again by the next span.

        Args:
            span: as it was read.
            receipts: of the branch.
            publish: stores the receipts of a part of the span. Raises RefusedSpan, and what is no
                matter of records.

        Raises:
            PermanentError: the target refuses the rows, and no record is known to be at fault.
        """
        if not self._searches:
            self._stored = False
        self._store(self._up_to_bounds(span, receipts), receipts, publish)

    def _store(self, span: Span, receipts: Sequence[Receipt], publish: Publish) -> None:
        """The halves of the partitions where all are refused; of one partition less of it."""
        try:
            publish(span, receipts)
        except RefusedSpan as refusal:
            if not all(isinstance(piece, OffsetSlice) for piece in span.slices):
                raise refusal.error from None
            if len(span.slices) == 1:
                self._narrow(receipts[0], refusal)
                return
        else:
            self._count(span, receipts)
            return
        middle = len(span.slices) // 2
        for slices in (span.slices[:middle], span.slices[middle:]):
            names = {piece.partition for piece in slices}
            theirs = [one for one in receipts if one.partition in names]
            self._store(replace(span, slices=slices), theirs, publish)

    def _up_to_bounds(self, span: Span, receipts: Sequence[Receipt]) -> Span:
        """The span up to where writers have come that were bounded."""
        ends = {one.partition: one.position for one in receipts if one.partition in self._searches}
        slices = tuple(
            replace(piece, upto=end)
            if isinstance(piece, OffsetSlice) and isinstance(end := ends.get(piece.partition), int)
            else piece
            for piece in span.slices
        )
        return replace(span, slices=slices)

    def _narrow(self, receipt: Receipt, refusal: RefusedSpan) -> None:
        """The next span has half of the records.

        Raises the error of the refusal where one record is alone, and may not be at fault.
        """
        staged, name = _parse_staged(receipt), receipt.partition
        if staged.records > 1:
            known = self._searches.get(name)
            whole = max(staged.records, known.whole if known else 0)
            self._searches[name] = _Search(staged.records // 2, whole, staged.records)
            return
        if refusal.failure.fault is not Fault.ROW and not self._stored:
            raise refusal.error from None
        search = self._searches.setdefault(name, _Search(1, 2, 0))
        search.most, search.left = 1, 0
        self._refused.setdefault(name, {})[staged.first] = refusal.failure.reason

    def _count(self, span: Span, receipts: Sequence[Receipt]) -> None:
        """The rows of a part of a span are stored."""
        records = {one.partition: _parse_staged(one).records for one in receipts}
        self._stored = self._stored or any(records.values())
        for name in (piece.partition for piece in span.slices):
            search = self._searches.get(name)
            if search is not None and search.is_over(records.get(name, 0)):
                del self._searches[name]
                self._refused.pop(name, None)


def _parse_staged(receipt: Receipt) -> TrinoStaged:
    return decode_json(receipt.staged[0], TrinoStaged) if receipt.staged else TrinoStaged("", 0)


def bound_chunk(chunk: Chunk, bound: TrinoBound, taken: int) -> tuple[Chunk, int]:
    """Returns what a writer takes of a chunk, and how many records with rows that are.

    Called inside tasks, for each chunk of a partition in which a record is searched for.

    Args:
        chunk: of an offset slice.
        bound: of its partition.
        taken: records with rows that were taken before.

    Returns:
        The chunk up to the first record that is too much, whose offset it has seen then; refused
        records are rejected.
    """
    offsets = chunk.rows.column(OFFSET).to_numpy()
    fine = offsets[~np.isin(offsets, [*bound.refused])]
    records = np.unique(fine)
    left = len(records) if bound.records is None else bound.records - taken
    seen = int(records[left]) if len(records) > left else chunk.seen
    rows = chunk.rows.slice(0, int(np.searchsorted(offsets, seen)))
    is_bad = pc.is_in(rows.column(OFFSET), pa.array([*bound.refused], pa.int64()))
    bad = rows.filter(is_bad)
    reasons = {row: bound.refused[at] for row, at in enumerate(bad.column(OFFSET).to_pylist())}
    rejected = [one for one in chunk.rejected if one.offset < seen]
    rejected += rejections(bad, reasons, chunk.sent)
    kept = replace(chunk, rows=rows.filter(pc.invert(is_bad)), rejected=rejected, seen=seen)
    return kept, min(left, len(records))
