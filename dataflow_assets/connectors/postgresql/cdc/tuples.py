"""Messages of pgoutput about one table as columns of text: numpy passes, nothing per row.

Positions of a tuple's values follow from the sizes of those before them, so a batch is walked
column by column, all rows at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow_assets.connectors.postgresql.cdc.errors import AGAIN, not_logged
from dataflow_assets.connectors.postgresql.cdc.reader import HEADER
from dataflow_assets.contracts import DELETE, INSERT, UPDATE
from dataflow_assets.errors import PermanentError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

_MARK = HEADER + 5  # behind the kind and the id of the table
_TUPLE = HEADER + 8  # behind the mark and the number of columns
_UPDATE, _DELETE, _INSERT = map(ord, "UDI")
_OLD, _NEW = ord("O"), ord("N")
_TEXT, _UNCHANGED = ord("t"), ord("u")
_PADDING = bytes(16)


@dataclass(frozen=True)
class CdcColumn:
    """Places of one column's values: what each is (n, u or t), where it begins, its bytes."""

    kind: Bytes
    start: Ints
    size: Ints

    def take(self, rows: Ints) -> CdcColumn:
        return CdcColumn(self.kind[rows], self.start[rows], self.size[rows])

    def where(self, mask: Bools, other: CdcColumn) -> CdcColumn:
        """`other` where the mask is set; it has as many rows as the mask is set."""
        if not mask.any():
            return self
        both = CdcColumn(self.kind.copy(), self.start.copy(), self.size.copy())
        both.kind[mask], both.start[mask], both.size[mask] = (
            other.kind,
            other.start,
            other.size,
        )
        return both


class CdcChanges:
    """Inserts, updates and deletes of one table, in their order.

    A change of the key is a deletion of the old key, then an insert.
    """

    def __init__(self, data: bytes, sizes: Sequence[int], width: int, key: Sequence[int]) -> None:
        """Walks over the tuples.

        Args:
            data: messages with their headers, one behind the other.
            sizes: of each message.
            width: how many columns the table has.
            key: indexes of the columns that name a row for its target.
        """
        self._data = data
        self._buffer: Bytes = np.frombuffer(data + _PADDING, np.uint8)
        starts = np.zeros(len(sizes), np.int64)
        np.cumsum(sizes[:-1], out=starts[1:])
        self._kinds = self._buffer[starts + HEADER]
        self._marks = self._buffer[starts + _MARK]
        self._check_width(starts + _TUPLE, width)
        self._first, end = self._walk(starts + _TUPLE, width)
        self._paired = (self._kinds == _UPDATE) & (self._marks != _NEW)
        self._second, _ = self._walk(end[self._paired] + 3, width)
        self._changed = self._key_changes(key)
        gone = np.flatnonzero((self._kinds == _DELETE) | self._changed)
        kept = np.flatnonzero(self._kinds != _DELETE)
        order = np.sort(np.concatenate([gone * 2, kept * 2 + 1]))
        self.message: Ints = order // 2
        """Of each row the number of its message."""
        self._is_new: Bools = order % 2 == 1

    def __len__(self) -> int:
        return len(self.message)

    @cached_property
    def operations(self) -> npt.NDArray[np.int8]:
        """INSERT, UPDATE or DELETE for each row."""
        inserted = (self._kinds == _INSERT) | self._changed
        upserts = np.where(inserted[self.message], INSERT, UPDATE)
        return np.where(self._is_new, upserts, DELETE).astype(np.int8)

    def keep(self, rows: Bools) -> None:
        """Leaves the other rows out. Called before anything else is asked for."""
        self.message, self._is_new = self.message[rows], self._is_new[rows]
        self.__dict__.pop("operations", None)

    @property
    def is_deleted(self) -> Bools:
        return ~self._is_new

    @property
    def key_only(self) -> Bools:
        """Returns whether of a row that was deleted no more than the key is known."""
        mask: Bools = ~self._is_new & (self._marks[self.message] != _OLD)
        return mask

    @property
    def of_old_key(self) -> Bools:
        """Returns whether a row is deleted because it has another key from then on."""
        mask: Bools = ~self._is_new & self._changed[self.message]
        return mask

    @property
    def has_old(self) -> Bools:
        """Returns whether a row was updated under the same key, and the old row is known."""
        paired = self._paired & ~self._changed & (self._marks == _OLD)
        mask: Bools = self._is_new & paired[self.message]
        return mask

    def image(self, index: int) -> CdcColumn:
        """A column of the rows as they are after the change, of deleted ones as they were."""
        column = self._first[index].take(self.message)
        newer = self._is_new & self._paired[self.message]
        if not newer.any():
            return column
        place = np.cumsum(self._paired) - 1
        second = self._second[index].take(place[self.message[newer]])
        # What an update has left as it was is in the old row, where the table logs all of it, or in
        # the old key. A null is no value there: all other columns of an old key are null, and a new
        # partition logs its key alone, and is announced as its root.
        before = column.take(np.flatnonzero(newer))
        same = (before.kind == _TEXT) & (second.kind == _UNCHANGED)
        second = second.where(same, before.take(np.flatnonzero(same)))
        return column.where(newer, second)

    def old_image(self, index: int) -> CdcColumn:
        """A column of the old rows, of those rows that have one by `has_old`."""
        return self._first[index].take(self.message[self.has_old])

    def absent_rows(self, column: CdcColumn, *, is_key: bool) -> Bools:
        """Marks rows in which a value is not known: not logged, as it is large and unchanged."""
        unknown: Bools = column.kind == _UNCHANGED
        return unknown if is_key else unknown | self.key_only

    def check_known(self, absent: Bools, table: str, name: str) -> None:
        """Raises PermanentError where a row got another key and a value is not in the log.

        Args:
            absent: whether a value is not known, of each row.
            table: as statements name it.
            name: of the column.
        """
        if (absent & self._is_new & self._changed[self.message]).any():
            raise PermanentError(
                f"the key of a row was changed, and the row under its new key would lack a value: "
                f"{not_logged(table, [name])}. Then load the tables again: {AGAIN}"
            )

    def texts(self, column: CdcColumn) -> pa.Array:
        """The values as PostgreSQL writes them; null where there is none."""
        valid = column.kind == _TEXT
        bounds = np.empty(2 * len(valid) + 1, np.int64)
        bounds[0:-1:2], bounds[1::2] = column.start, column.start + column.size
        bounds[-1] = bounds[-2] if len(valid) else 0
        if (np.diff(bounds) < 0).any():
            # Value by value: these do not lie one behind the other.
            pairs = zip(column.start.tolist(), column.size.tolist(), valid.tolist(), strict=True)
            values = [
                self._buffer[at : at + size].tobytes() if there else None
                for at, size, there in pairs
            ]
            return _as_text(pa.array(values, pa.binary()))
        # Every second one of the pieces that the values cut the data into.
        buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(self._data)]
        pieces = pa.Array.from_buffers(pa.binary(), 2 * len(valid), buffers)
        places = pa.array(np.arange(0, 2 * len(valid), 2), mask=~valid)
        return _as_text(pieces.take(places))

    def _check_width(self, at: Ints, width: int) -> None:
        """Values of other columns would be read as those of ours, without an error."""
        counts = self._buffer[at - 2].astype(np.int64) << 8 | self._buffer[at - 1]
        if (counts != width).any():
            raise PermanentError(
                f"the log has changes of {counts.max()} columns of a table that it has announced "
                f"with {width}: please report this"
            )

    def _walk(self, at: Ints, width: int) -> tuple[list[CdcColumn], Ints]:
        columns = []
        buffer = self._buffer
        for _ in range(width):
            kind = buffer[at]
            has = kind == _TEXT
            size = np.zeros(len(at), np.int64)
            for byte in range(1, 5):
                size = (size << 8) | buffer[at + byte]
            size = np.where(has, size, 0)
            start = np.where(has, at + 5, at)
            columns.append(CdcColumn(kind, start, size))
            at = np.where(has, at + 5 + size, at + 1)
        return columns, at

    def _key_changes(self, key: Sequence[int]) -> Bools:
        """Returns whether an update has changed the key: the log has the old one, or the old row.

        It has the old key also where the key is as it was, if a value of it is stored apart.
        """
        changed = np.zeros(len(self._kinds), np.bool_)
        rows = self._paired & (self._marks == _OLD)
        keys = self._paired & ~rows
        for mask, indexes in ((rows, key), (keys, range(len(self._first)))):
            if mask.any():
                changed[mask] = self._differ(mask, indexes)
        return changed

    def _differ(self, mask: Bools, indexes: Iterable[int]) -> Bools:
        rows = np.flatnonzero(mask)
        place = (np.cumsum(self._paired) - 1)[rows]
        whole = self._marks[rows] == _OLD  # else a null is no value
        differs = np.zeros(len(rows), np.bool_)
        for index in indexes:
            old, new = self._first[index].take(rows), self._second[index].take(place)
            comparable = (new.kind != _UNCHANGED) & (whole | (old.kind == _TEXT))
            if comparable.any():
                one, other = (
                    self.texts(column).to_numpy(zero_copy_only=False) for column in (old, new)
                )
                differs |= comparable & (one != other)
        return differs


def _as_text(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        raise PermanentError(
            "a text is not valid UTF-8: the database's encoding is SQL_ASCII, which checks none"
        ) from None
