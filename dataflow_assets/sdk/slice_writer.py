"""One slice in one transaction of its target: what is skipped, counted, committed and dropped."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.contracts import (
    Chunk,
    OffsetSlice,
    Position,
    Receipt,
    Rejection,
    Sent,
    Slice,
    Ticket,
    Totals,
    Writer,
)
from dataflow_assets.sdk.sink.decide import without_covered


class SliceTransaction(Writer):
    """Begun with the first chunk; rows, rejected records and checkpoint are one commit.

    What the stored checkpoint covers already is skipped. A part is committed as a whole or not at
    all, of offsets the prefix that was seen. All methods are called inside the task of the slice,
    by one thread: `begin` once, `take` for each chunk, then `commit` or `roll_back`, `release`.
    """

    loading: ClassVar[str]
    """The failpoint behind each chunk."""

    def __init__(self, ticket: Ticket, piece: Slice) -> None:
        failpoints.arm(ticket.failpoint)
        self._ticket, self._piece = ticket, piece
        self._begun = False
        self._seen: int | None = None
        self._rejected: list[Rejection] = []
        self._rows = self._size = 0

    @abstractmethod
    def begin(self) -> None:
        """Begins the transaction and reads the stored checkpoint under it.

        Called once, before the first chunk, or at the end of a slice without any.

        Raises:
            TakenOver: the epoch of the ticket is over.
            TransientError: the target cannot be reached.
        """

    @abstractmethod
    def stored_position(self) -> Position | None:
        """The position of the partition, once the transaction has begun.

        Called for each chunk, and after the commit for the receipt.

        Returns:
            The stored position, after `commit` the new one; None where none is stored.
        """

    @abstractmethod
    def take(self, rows: pa.RecordBatch, sent: Mapping[int, Sent]) -> Sequence[Rejection]:
        """Takes rows into the transaction.

        Called for each chunk that holds anything new.

        Args:
            rows: typed rows, none of which the checkpoint covers.
            sent: by the number of a row, the message that it was made from.

        Returns:
            The rows that the target refuses; the others are in the transaction.
        """

    @abstractmethod
    def commit(self, position: Position) -> None:
        """Commits what was taken and the checkpoint at once.

        Called at most once, at the end of the slice.

        Args:
            position: the checkpoint of the partition from now on.
        """

    @abstractmethod
    def roll_back(self) -> None:
        """Ends the transaction without a trace.

        Called where there is nothing to commit, and for a part whose end is in doubt.
        """

    @abstractmethod
    def release(self) -> None:
        """Gives the connection back, if there is one.

        Called once, at the end of the slice.
        """

    @abstractmethod
    def staged(self) -> tuple[str, ...]:
        """Returns what the receipt tells the driver.

        Called once, at the end of the slice.

        Returns:
            Texts that the sink's session understands, such as names of files.
        """

    @abstractmethod
    def guard(self) -> AbstractContextManager[None]:
        """Any error inside ends the transaction and becomes one of ours.

        Called around each of the other methods.

        Returns:
            A context; leaving it raises TransientError or PermanentError for what a client raised.
        """

    @override
    def write(self, chunk: Chunk) -> None:
        with self.guard():
            left = without_covered(chunk, self._piece, self._position())
            if left is None:
                return
            refused = self.take(left.rows, left.sent)
            self._rejected += [*left.rejected, *refused]
            self._rows += left.rows.num_rows - len(refused)
            self._size += left.size
            self._seen = chunk.seen
        failpoints.reach(self.loading)

    @override
    def close(self, complete: bool) -> Receipt:
        offsets = isinstance(self._piece, OffsetSlice)
        with self.guard():
            ended = self._begun if offsets else complete  # else the end of a part is in doubt
            reached = self._end_of_slice() if ended else None
            if reached is not None:
                self.commit(reached)
            elif self._begun:
                self._drop()
            self.release()
        position = self.stored_position() if self._begun else None
        branch, partition = self._ticket.target.branch, self._piece.partition
        return Receipt(branch, partition, position, self._totals, self.staged())

    def _drop(self) -> None:
        self.roll_back()
        self._rejected, self._rows, self._size = [], 0, 0

    def _end_of_slice(self) -> Position | None:
        position = self._position()
        if isinstance(self._piece, OffsetSlice):
            return self._seen
        return None if position == self._piece.upto else self._piece.upto

    def _position(self) -> Position | None:
        if not self._begun:
            self.begin()
            self._begun = True
        return self.stored_position()

    @property
    def _totals(self) -> Totals:
        return Totals(self._rows, len(self._rejected), self._size)
