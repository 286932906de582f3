"""One slice inside one task: what is skipped, counted, committed and dropped.

A sink says how it stores, in four verbs; what is asked of it when, `SliceWriter` decides.

| verb | when | what it does |
|---|---|---|
| `begin` | before the first chunk | asserts the epoch, reads the stored position under it |
| `add` | for each chunk | takes the rows that no checkpoint covers |
| `commit` | at most once, at the end | rows, rejected records and position at once, or not at all |
| `end` | last, and after any error | drops what is not committed, frees the connection |

A sink whose driver commits (`commits = "span"`) stages in `commit`, and names there what waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace

import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.contracts import (
    OFFSET,
    Chunk,
    N,
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
from dataflow_assets.sdk.sink.decide import is_covered, without_covered


@dataclass(frozen=True)
class SliceCommit:
    """The end of one slice: its position, and what is counted of it."""

    position: Position
    """Of its partition."""
    rows: int = 0
    rejected: Sequence[Rejection] = ()
    bytes: int = 0
    staged: tuple[str, ...] = ()
    """What the receipt tells the driver: texts that the sink's session understands."""

    @property
    def totals(self) -> Totals:
        """Returns what the checkpoint counts of it."""
        return Totals(self.rows, len(self.rejected), self.bytes)

    def refuse(self, found: Sequence[Rejection]) -> SliceCommit:
        """Moves rows to the rejected ones.

        Called in `commit` by stores whose target refuses rows only there.

        Args:
            found: of rows that `add` has taken.

        Returns:
            The same slice with these rejected.
        """
        return replace(self, rows=self.rows - len(found), rejected=[*self.rejected, *found])


class SliceStore(ABC):
    """Stores the rows of one slice. Called by one thread, inside the task of the slice."""

    def begin(self) -> SliceCommit | None:
        """Begins, and reads what is stored under the epoch of the ticket.

        Called once, before the first chunk, or at the end of a slice without any. Stores whose
        driver commits leave it out: the ticket has the positions.

        Returns:
            The stored position, and what the receipt says where nothing is left to commit; None
            where nothing is stored.

        Raises:
            TakenOver: the epoch of the ticket is over.
            TransientError: the target cannot be reached.
        """
        return None

    @abstractmethod
    def add(self, chunk: Chunk) -> Sequence[Rejection]:
        """Takes rows.

        Called for each chunk that holds anything new.

        Args:
            chunk: from the checkpoint on.

        Returns:
            The rows that the target refuses, without those rejected before.
        """

    @abstractmethod
    def commit(self, commit: SliceCommit) -> SliceCommit:
        """Settles what was rejected, then commits it with the rows and the position.

        Called at most once, at the end of the slice.

        Args:
            commit: the position from now on, what was added, and what was rejected.

        Returns:
            The same with what the target has refused at last, and what the receipt says.
        """

    @abstractmethod
    def end(self) -> None:
        """Leaves no trace of what is not committed, and gives the connection back.

        Called at the end of the slice, and after any error; safe twice.
        """

    def errors(self) -> AbstractContextManager[None]:
        """Makes errors of the engine's of what a client raises.

        Called around each verb but `end`.

        Returns:
            A context; leaving it raises TransientError, PermanentError or TakenOver.
        """
        return nullcontext()


class SliceWriter(Writer):
    """Writes one slice into a store.

    What the stored checkpoint covers already is skipped. A part is committed as a whole or not at
    all, of offsets the prefix that was seen.
    """

    def __init__(self, ticket: Ticket, piece: Slice, store: SliceStore) -> None:
        failpoints.arm(ticket.failpoint)
        self._ticket, self._piece, self._store = ticket, piece, store
        self._open = False
        self._stored: SliceCommit | None = None
        self._seen: int | None = None
        self._rejected: list[Rejection] = []
        self._rows = self._size = 0

    @override
    def write(self, chunk: Chunk) -> None:
        with self._ending_on_errors():
            left = without_covered(chunk, self._piece, self._position())
            if left is None:
                return
            refused = self._store.add(left)
            self._rejected += [*left.rejected, *refused]
            self._rows += left.rows.num_rows - len(refused)
            self._size += left.size
            self._seen = left.seen

    @override
    def close(self, complete: bool) -> Receipt:
        with self._ending_on_errors():
            upto = self._end_of_slice(complete)
            if upto is not None:
                found = SliceCommit(upto, self._rows, self._rejected, self._size)
                self._stored = self._store.commit(found)
        self._store.end()
        branch, partition = self._ticket.target.branch, self._piece.partition
        if (made := self._stored) is None:
            return Receipt(branch, partition, None, Totals())
        return Receipt(branch, partition, made.position, made.totals, made.staged)

    @override
    def abort(self) -> None:
        self._store.end()

    def _end_of_slice(self, complete: bool) -> Position | None:
        """Up to where there is anything to commit."""
        if isinstance(self._piece, OffsetSlice):
            return self._seen
        done = not complete or is_covered(self._piece, self._position())
        return None if done else self._piece.upto

    def _position(self) -> Position | None:
        if not self._open:
            self._stored, self._open = self._store.begin(), True
        known = self._ticket.positions.get(self._piece.partition)
        return known if self._stored is None else self._stored.position

    @contextmanager
    def _ending_on_errors(self) -> Iterator[None]:
        try:
            with self._store.errors():
                yield
        except BaseException:
            with suppress(Exception):  # what has failed before is the error to tell
                self._store.end()
            raise


def rejections(
    rows: pa.RecordBatch | pa.Table, reasons: Mapping[int, str], *sent: Mapping[int, Sent]
) -> list[Rejection]:
    """Rejections of rows that a target refuses.

    Called inside tasks by stores, where there are any.

    Args:
        rows: with their offsets.
        reasons: by the index of a row.
        sent: by offset, the messages that rows were made from; the first that has one counts.

    Returns:
        In the order of the rows.
    """
    offsets = rows.column(OFFSET)
    numbers = rows.column(N) if N in rows.schema.names else None
    found = []
    for at, reason in sorted(reasons.items()):
        offset, n = offsets[at].as_py(), 0 if numbers is None else numbers[at].as_py() or 0
        known = (messages.get(offset) for messages in sent)
        message = next((one for one in known if one is not None), Sent(None))
        found.append(Rejection(offset, "sink", reason, None, n).of(message))
    return found
