"""Snapshots cut into parts: ranges of rows of data files, recorded before anything is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import msgspec

from dataflow_assets.connectors.iceberg.source.data_files import SourceFile
from dataflow_assets.connectors.iceberg.table.position import SnapshotPosition
from dataflow_assets.records.decoding import decode_json

MOST_FILES = 200  # ranges of one span: the sink's checkpoint records them all


class IcebergRange(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rows `low <= row < high` of one data file, counted before deletes are applied."""

    path: str
    low: int
    high: int
    snapshot: str
    sequence: int
    deletes: tuple[str, ...] = ()
    values: dict[str, str] = {}

    @property
    def rows(self) -> int:
        return self.high - self.low


class IcebergPart(msgspec.Struct, frozen=True):
    """Files for one task, in this order; `table` is the identity of the table.

    The columns are those of the moment of reading: who mends a table that was altered under a run
    mends what is recorded too.
    """

    table: str
    ranges: tuple[IcebergRange, ...]

    @classmethod
    def parse(cls, text: str) -> IcebergPart:
        return decode_json(text, cls)

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


@dataclass(frozen=True)
class IcebergBounds:
    """The most that a part and a span may hold. `part_bytes` gives way to whole row groups."""

    parts: int
    part_rows: int
    part_bytes: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class IcebergPiece:
    """A snapshot, or what is left of it. `start` is inside it, or behind where nothing is to do.

    `stop`: where to end inside it; None: read it to its end.
    """

    start: SnapshotPosition
    files: tuple[SourceFile, ...] = ()
    stop: SnapshotPosition | None = None

    @property
    def end(self) -> SnapshotPosition:
        """Returns where a reader stands once it is done."""
        return self.stop or replace(self.start, scan=None, file=0, row=0, done=0)

    def remaining_files(self) -> Iterator[tuple[int, int, int]]:
        """The files from the start on, by index, each with its first row and its end."""
        stop = (self.stop.file, self.stop.row) if self.stop else (len(self.files), 0)
        for index in range(self.start.file, len(self.files)):
            rows = self.files[index].rows
            low = self.start.row if index == self.start.file else 0
            high = rows if index < stop[0] else min(rows, stop[1])
            if index <= stop[0] and low < high:
                yield index, low, high

    @property
    def rows(self) -> int:
        return sum(high - low for _, low, high in self.remaining_files())

    @property
    def bytes(self) -> int:
        """About how many bytes of the files are left."""
        return sum(
            self.files[index].size(high - low) for index, low, high in self.remaining_files()
        )

    def range(self, index: int, low: int, high: int) -> IcebergRange:
        file, at = self.files[index], self.start
        return IcebergRange(
            file.path, low, high, str(at.snapshot), at.sequence, file.deletes, file.values
        )


@dataclass(frozen=True)
class IcebergCut:
    """Parts to read side by side, where a reader stands behind all of them, and what is left."""

    parts: tuple[tuple[IcebergRange, ...], ...]
    end: SnapshotPosition
    more: bool


Groups = Callable[[SourceFile], Sequence[int]]


def cut(pieces: Iterator[IcebergPiece], bounds: IcebergBounds, groups: Groups) -> IcebergCut | None:
    """The next parts; None where there is nothing to do.

    A snapshot too long for one part is read alone, in parts side by side. Short ones are read in
    their order, several in one part, so that later rows of a key come later.
    """
    first = next(pieces, None)
    if first is None:
        return None
    if not _short(first, bounds, 0, 0):
        cutter = _Cutter(first, bounds, groups)
        parts: list[tuple[IcebergRange, ...]] = []
        while len(parts) < bounds.parts and (part := tuple(cutter.part())):
            parts.append(part)
        reached = cutter.position()
        return IcebergCut(tuple(parts), reached or first.end, more=reached is not None)
    return _in_order(first, pieces, bounds)


def _short(piece: IcebergPiece, bounds: IcebergBounds, rows: int, size: int) -> bool:
    most_rows, most_bytes = min(bounds.part_rows, bounds.rows), min(bounds.part_bytes, bounds.bytes)
    whole = sum(1 for _ in islice(piece.remaining_files(), MOST_FILES + 1)) <= MOST_FILES
    return whole and rows + piece.rows <= most_rows and size + piece.bytes <= most_bytes


def _in_order(
    first: IcebergPiece, others: Iterator[IcebergPiece], bounds: IcebergBounds
) -> IcebergCut:
    ranges = [first.range(*one) for one in first.remaining_files()]
    rows, size, end = first.rows, first.bytes, first.end
    for piece in others:
        more = [piece.range(*one) for one in piece.remaining_files()]
        fits = _short(piece, bounds, rows, size) and len(ranges) + len(more) <= MOST_FILES
        if more and not fits:
            return IcebergCut((tuple(ranges),), end, more=True)
        ranges += more
        rows, size, end = rows + piece.rows, size + piece.bytes, piece.end
    return IcebergCut((tuple(ranges),), end, more=False)


class _Cutter:
    """Goes through the files of a piece, part by part."""

    def __init__(self, piece: IcebergPiece, bounds: IcebergBounds, groups: Groups) -> None:
        self._piece, self._bounds, self._groups = piece, bounds, groups
        self._left = deque(piece.remaining_files())
        self._files = self._rows = self._bytes = 0

    def position(self) -> SnapshotPosition | None:
        """Returns how far it got; None: to the end."""
        if not self._left:
            return None
        file, row, _ = self._left[0]
        start = self._piece.start
        return replace(start, file=file, row=row, done=start.done + self._rows)

    def part(self) -> Iterator[IcebergRange]:
        """The next part; nothing where the piece ends or the span has no room."""
        rows = size = 0
        while self._left and self._files < MOST_FILES:
            rows_taken = self._next(rows, size)
            if rows_taken <= 0:
                return
            rows += rows_taken
            size += self._piece.files[self._left[0][0]].size(rows_taken)
            yield self._take(rows_taken)

    def _next(self, rows: int, size: int) -> int:
        index, low, high = self._left[0]
        file = self._piece.files[index]
        room = min(self._bounds.part_rows - rows, self._span_room(file))
        fitting = file.rows_in(self._bounds.part_bytes - size)
        if high - low <= min(room, fitting):
            return high - low
        ends = [end - low for end in self._groups(file) if low < end < high]
        near = [end for end in ends if end <= min(room, fitting)]
        if near or rows:
            return max(near, default=0)
        return min([room, high - low, *(end for end in ends if end > fitting)])

    def _span_room(self, file: SourceFile) -> int:
        """Rows of this file that the span has room for; a span has one row at least."""
        by_bytes = file.rows_in(self._bounds.bytes - self._bytes)
        return min(self._bounds.rows - self._rows, max(by_bytes, not self._rows))

    def _take(self, rows: int) -> IcebergRange:
        index, low, high = self._left.popleft()
        if low + rows < high:
            self._left.appendleft((index, low + rows, high))
        self._files += 1
        self._rows += rows
        self._bytes += self._piece.files[index].size(rows)
        return self._piece.range(index, low, low + rows)
