"""The driver's connections to both ends of a flow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dataflow_assets.contracts.checkpoint import Checkpoint, Lag
from dataflow_assets.contracts.slices import (
    Cut,
    Limit,
    PartSlice,
    Position,
    Positions,
    Span,
)
from dataflow_assets.contracts.tasks import Receipt, Ticket
from dataflow_assets.errors import PermanentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SourceSession(ABC):
    """The driver's connection to a source: fixes bounds first, then names what to read."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """The id of the topic or table itself: another one after it was recreated."""

    @abstractmethod
    def start(self) -> Positions:
        """Where a flow without a checkpoint begins, for every partition there is now."""

    @abstractmethod
    def seek(self, where: str) -> Positions:
        """Positions for `earliest`, `latest` or an ISO 8601 timestamp (launchpad, reset)."""

    @abstractmethod
    def ends(self) -> Positions:
        """Where each partition ends right now."""

    @abstractmethod
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        """The next span after `after`, its upper bounds fixed now and not beyond `until`.

        A partition missing in `after` starts at its beginning, and what is gone of one that was
        added since is lost. Every partition has a slice, the
        empty ones too. Raises PermanentError naming what was lost when the next offset is gone,
        unless the source says to continue.
        """

    @abstractmethod
    def frame(self, spark: SparkSession, span: Span, columns: frozenset[str]) -> DataFrame:
        """The span's records, each Spark partition holding rows of exactly one slice, in order.

        Columns: `_at` int64 = offset * len(span.slices) + index of the slice, `body` binary, then
        the wanted ones of `key` binary, `timestamp` timestamp, `headers` as in MESSAGES.
        """

    @abstractmethod
    def release(self, upto: Positions) -> None:
        """Tells the server what every branch has committed; may be repeated, may be skipped."""

    @abstractmethod
    def lag(self, after: Positions) -> Lag:
        """How far `after` is behind the ends."""

    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:  # noqa: ARG002 - what overrides need
        """At most the first `limit` records from `after` on in each partition, for a look.

        Without Spark, and nothing is consumed: no checkpoint, no consumer group, no server moves.
        The columns of `frame`, all of them; `_at` is the offset. A partition missing in `after` is
        read from its beginning, and what is gone by now is passed over.
        """
        raise PermanentError(
            "this source cannot be looked into without moving on; give records with --input FILE"
        )

    def behind(self, partition: str, position: Position | None, end: Position) -> bool:  # noqa: ARG002 - what overrides need
        """True while `position` (None: nothing yet) of a partition has not reached `end`.

        Integers are compared. What else a position says only its source knows: without an override
        two that differ are behind one another.
        """
        if isinstance(position, int) and isinstance(end, int):
            return position < end
        return position != end and not (position is None and end == 0)

    def smaller(self, piece: PartSlice, limit: Limit) -> Sequence[str]:  # noqa: ARG002 - what overrides need
        """The borders of parts that have the rows of this one together, each within the limit.

        Its own border alone where it is, or where the source cannot cut it.
        """
        return (piece.part,)

    def adopt(self, document: Mapping[str, Any]) -> Positions:  # noqa: ARG002 - what overrides need
        """Positions from a checkpoint of the DataFlow Operator, the object of this source's type.

        Raises PermanentError when it is none.
        """
        raise PermanentError("this source takes over no checkpoint of the DataFlow Operator")

    def fold(self, positions: Positions) -> Positions:
        """Finished parts folded into the positions to keep; offset sources keep all."""
        return positions

    @abstractmethod
    def close(self) -> None:
        """Frees the connection; safe twice."""


class SinkSession(ABC):
    """The driver's connection to one branch's target, holding one epoch.

    Opening it takes a new epoch: sessions and tasks of older epochs can commit nothing any more
    and stop with TakenOver ("flow X was taken over by run R on host H").
    """

    @property
    @abstractmethod
    def checkpoint(self) -> Checkpoint:
        """The stored checkpoint as of the last `begin`, `restart` or `finish` of this session."""

    @property
    @abstractmethod
    def identity(self) -> str | None:
        """The id of the target table itself (oid, uuid); None while there is no table."""

    @abstractmethod
    def schema(self) -> pa.Schema | None:
        """The target's columns with their metadata (KIND and so on) set; None: no table yet."""

    def row_count(self) -> int | None:
        """The table's rows in all, where that is exact and costs nothing; None elsewhere."""
        return None

    @abstractmethod
    def create(self, sample: pa.Schema) -> None:
        """Makes the table from the manifest's `columns` and the JSON types of a sample.

        Raises PermanentError when that is not allowed, or when no column is known at all (an empty
        sample, and no `columns`), with what to do.
        The sample's types, of messages: null, bool, int64, float64, string, struct, list, and
        pa.json_() where records disagree beyond widening. Of typed rows: those of the source, as
        `Source.batches` may deliver them.
        """

    @abstractmethod
    def holds_rows(self) -> bool:
        """Whether anything is in the target; True where that cannot be found out."""

    @abstractmethod
    def adopt(self) -> None:
        """Stores the target as it is now as the one that the checkpoint is about.

        Raises PermanentError where the checkpoint leaves open which rows the target holds.
        """

    @abstractmethod
    def restart(self, positions: Positions, source: str, *, empty: bool = False) -> None:
        """Stores these positions and identities as the new start, under this epoch.

        `empty` takes every row out of the table in the same commit (launchpad `table: truncate`).
        Raises PermanentError where rows of other flows would go as well (`refuse_shared`).
        """

    @abstractmethod
    def begin(self, span: Span) -> Span:
        """Stores what must survive a crash before anything is read.

        Start positions of partitions not known yet; the parts of a bounded read. Hands back the
        recorded unfinished span instead where there is one; parts of it that are committed are
        empty and not read again, offsets of it that must be read to their end are `whole`. Asserts
        the epoch.
        """

    @abstractmethod
    def divide(self, span: Span, cut: Cut) -> Span:
        """Records smaller parts for those of an unfinished span that `begin` has handed back.

        Only for parts of which nothing can be committed any more under their own name. Returns
        what to read now. Asserts the epoch.
        """

    @abstractmethod
    def ticket(self) -> Ticket:
        """What this epoch's tasks need."""

    def stage(  # noqa: B027 - most sinks have nothing to prepare
        self, span: Span, receipts: Sequence[Receipt], spark: Callable[[], SparkSession]
    ) -> None:
        """Between the pass and `finish`: what a sink prepares with Spark jobs of its own (MERGE).

        Nothing of it is visible to readers; doing it twice changes nothing.
        """

    @abstractmethod
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        """After the whole pass succeeded: publishes what waits, steps over gaps, folds parts.

        `span` ends where tasks have stopped reading, which may be before its planned end.

        Asserts the epoch; doing it twice changes nothing.
        """

    @abstractmethod
    def forget(self) -> None:
        """Removes the branch's checkpoint (`dataflow reset`); the rows stay."""

    @abstractmethod
    def close(self) -> None:
        """Frees the connection; safe twice."""
