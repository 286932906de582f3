"""Finds the rows that a target refuses, by halving: the same for every sink.

No list of codes decides alone. Of some codes it is known that a row is at fault (`Fault.ROW`): a
short way. After any other failure that trying again does not fix, the rows are halved until each
stands alone. Where others are stored without it, the row was at fault, and is rejected; where none
is, it is the table or a right, and the flow stops with the first of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.contracts import Rejection, Slice
from dataflow_assets.errors import DataflowError, Defect
from dataflow_assets.errors.defects import describe, is_defect
from dataflow_assets.sdk.record_ids import record_place
from dataflow_assets.sdk.server_failure import Fault, ServerFailure

HALVED = 1_000  # refusals of a slice up to which every run is halved to its end
SHORT = 128  # rows
MOST_DOUBTS = 32  # rows that are refused alone while none is stored: then it is the target
SAMPLE = 32  # rows, from all over those that wait, that may speak for the target after a thousand

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


@dataclass(frozen=True)
class RefusedRow(Generic[Rows]):
    """One row that cannot be stored."""

    at: int
    """Its index among the rows that were tried, where these were cut in their order."""
    row: Rows
    failure: ServerFailure


class CodeFailure(ServerFailure):
    """A mistake of our own code, or of a library, at some of the rows."""

    def __init__(self, error: Exception) -> None:
        super().__init__(describe(error))

    @property
    @override
    def fault(self) -> Fault:
        return Fault.OPEN

    @override
    def error(self, what: str) -> DataflowError:
        return Defect(f"{what}: {self.reason}; this is a defect of dataflow-assets: report it")


class NoneStored(ServerFailure):
    """Each row is refused: the target is at fault, not the rows."""

    def __init__(self, failure: ServerFailure, place: str, seen: str) -> None:
        self.failure, self.place, self.seen = failure, place, seen
        super().__init__(failure.reason)

    @override
    def error(self, what: str) -> DataflowError:
        return self.failure.error(f"{what}: {self.seen}, the first one is {self.place}")


class SuspectRows:
    """The search within one slice: what was stored of it is evidence for all of its rows."""

    def __init__(self) -> None:
        self.refused = 0
        self._stored = self._ended = False
        self._doubts: list[tuple[Rejection, ServerFailure]] = []

    def search(
        self,
        rows: Rows,
        attempt: Callable[[Rows], ServerFailure | None],
        cut: Callable[[Rows, ServerFailure], Sequence[Rows]] | None = None,
        *,
        in_order: bool = False,
        passes: Callable[[Rows], bool] | None = None,
    ) -> list[RefusedRow[Rows]]:
        """Stores what can be stored, and returns the rows that cannot.

        Called inside tasks by writers, once for the rows of each statement.

        Args:
            rows: all of them are tried at once first.
            attempt: stores some of them, all or none; returns why not, and raises what is no
                matter of rows.
            cut: what to try next of rows that were refused; by default the two halves.
            in_order: rows are tried in their order only. Else, while nothing is stored, they are
                tried all over the batch: the first thousand may be alike.
            passes: whether rows would be stored; nothing of it stays. Asked where rows that are
                tried in order are refused by the thousand, of some behind them.

        Returns:
            Each refused row, by its index.

        Raises:
            ServerFailure: what `attempt` raises.
        """
        waiting, found = deque([(0, rows)]), list[RefusedRow[Rows]]()
        doubtful: list[RefusedRow[Rows]] = []
        while waiting:
            at, part = waiting.pop()
            failure = attempt(part)
            if failure is None:
                self._stored = self._stored or part.num_rows > 0
            elif part.num_rows > 1:
                parts = list(_number(at, (cut or self.cut)(part, failure)))
                waiting.extend(reversed(parts))
            else:
                self.refused += 1
                one = RefusedRow(at, part, failure)
                if failure.fault is Fault.ROW or self._stored:
                    found.append(one)
                    continue
                doubtful.append(one)
                waiting.rotate(0 if in_order else -1)
                if waiting and len(doubtful) >= (HALVED if in_order else MOST_DOUBTS):
                    self._stored = passes is not None and any(map(passes, _sample(waiting)))
                    if not self._stored:
                        self._ended = True  # for the whole slice: what waits here is never tried
                        break
        # What was refused while nothing was stored may have met what has passed since then.
        again = doubtful if self._stored and not in_order else []
        stored = {one.at for one in again if attempt(one.row) is None}
        self.refused -= len(stored)
        found += [one for one in doubtful if one.at not in stored]
        return sorted(found, key=lambda one: one.at)

    def doubt(self, rejection: Rejection, failure: ServerFailure) -> None:
        """Notes which record a refused row is.

        Called inside tasks by writers, for each row that `search` has found.

        Args:
            rejection: of the record.
            failure: why the row is refused.
        """
        if failure.fault is not Fault.ROW:
            self._doubts.append((rejection, failure))

    def check(self, source: str, piece: Slice) -> None:
        """Checks that rows were at fault, and not the target.

        Called inside tasks by writers, before refused rows are settled.

        Args:
            source: of the flow, for people.
            piece: the slice that the rows are of.

        Raises:
            NoneStored: it is the target, since none of the rows was stored.
        """
        if not self._doubts or (self._stored and not self._ended):
            return
        rejection, failure = min(self._doubts, key=lambda one: (one[0].offset, one[0].n))
        if len(self._doubts) > 1 or failure.fault is Fault.OPEN:
            refused = f"{len(self._doubts):,} rows were refused before one was taken"
            seen = refused if self._ended else "no row is taken"
            raise NoneStored(failure, f"{source}, {record_place(rejection, piece)}", seen)

    def cut(self, rows: Rows, failure: ServerFailure) -> Sequence[Rows]:
        """Returns what to try next of rows that were refused together.

        Called by `search`, and by writers that cut other failures in another way.

        Args:
            rows: two of them at least.
            failure: why they are refused.

        Returns:
            Two halves. Past a thousand refusals short runs go row by row: where many are refused,
            halving costs more than it saves.
        """
        many = self.refused >= HALVED and rows.num_rows <= SHORT
        return rows_of(rows) if many and failure.fault is Fault.ROW else halves(rows)


def halves(rows: Rows) -> list[Rows]:
    """Two parts of the rows, in their order."""
    half = rows.num_rows // 2
    return [rows.slice(0, half), rows.slice(half)]


def rows_of(rows: Rows) -> list[Rows]:
    """Each row alone."""
    return [rows.slice(index, 1) for index in range(rows.num_rows)]


def attempt_rows(call: Callable[[], None]) -> CodeFailure | None:
    """Runs what encodes and sends rows; a mistake of code becomes a failure.

    Called inside tasks by writers, within `attempt`.

    Args:
        call: raises ServerFailure where the server refuses.

    Returns:
        None where all went well.
    """
    try:
        call()
    except (ServerFailure, DataflowError):
        raise
    except Exception as error:
        if not is_defect(error):
            raise
        return CodeFailure(error)
    return None


def _sample(parts: Collection[tuple[int, Rows]]) -> Iterator[Rows]:
    """Single rows from all over the parts."""
    step = max(1, sum(part.num_rows for _, part in parts) // SAMPLE)
    for _, part in parts:
        for index in range(0, part.num_rows, step):
            yield part.slice(index, 1)


def _number(at: int, parts: Sequence[Rows]) -> Iterator[tuple[int, Rows]]:
    for part in parts:
        yield at, part
        at += part.num_rows
