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
    """The driver's connection to a source: fixes bounds first, then names what to read.

    `Source.open` makes one for each attempt of a run, and one for each flow in the process of the
    sensors. It is used by one thread at a time.
    """

    @property
    @abstractmethod
    def identity(self) -> str:
        """The id of the topic or table itself: another id after it was re-created.

        Called by the driver once for each attempt, and by sensors.
        """

    @abstractmethod
    def start(self) -> Positions:
        """Where a flow without a checkpoint begins.

        Called by the driver once, when a branch opens that has no checkpoint.

        Returns:
            A position for every partition that there is now.

        Raises:
            TransientError when the source cannot be reached.
        """

    @abstractmethod
    def seek(self, where: str) -> Positions:
        """Positions for a place that a person named.

        Called by the driver when a run rewinds (launchpad, `--from`, `--until`).

        Args:
            where: `earliest`, `latest`, or a time in ISO 8601.

        Returns:
            A position for every partition that there is now.

        Raises:
            PermanentError when `where` is none of these, or when the source has no times.
        """

    @abstractmethod
    def ends(self) -> Positions:
        """Where each partition ends right now.

        Called by the driver once at the start of a run, and by sensors every few seconds: it must
        be cheap.

        Returns:
            A position for every partition that there is now.

        Raises:
            TransientError when the source cannot be reached.
        """

    @abstractmethod
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        """The next span after `after`, its upper bounds fixed now and not beyond `until`.

        Called by the driver once for each micro-batch, before anything is read.

        Args:
            after: what is done. A partition that is missing starts at its beginning, and what is
                gone of a partition that was added since is lost.
            limit: the most records and bytes of one slice.
            until: positions that the run must not pass; None for no such bound.

        Returns:
            A span with a slice for every partition, the empty ones too.

        Raises:
            PermanentError naming what was lost when the next offset is gone, unless the source says
            to continue; TransientError when the source cannot be reached.
        """

    @abstractmethod
    def frame(self, spark: SparkSession, span: Span, columns: frozenset[str]) -> DataFrame:
        """The span's records, each Spark partition holding rows of exactly one slice, in order.

        Called by the driver once for each micro-batch, only where `Source.delivers` is `messages`.

        Args:
            spark: a live session.
            span: as `plan` made it, or as a sink has recorded it.
            columns: the metadata that somebody reads: of `key` binary, `timestamp` timestamp,
                `headers` as in MESSAGES.

        Returns:
            A lazy frame with `_at` int64 = offset * len(span.slices) + index of the slice, `body`
            binary, then the wanted columns.
        """

    @abstractmethod
    def release(self, upto: Positions) -> None:
        """Reports to the server what every branch has committed.

        Called by the driver after each micro-batch. It may be repeated and may be skipped: nothing
        rests on it.

        Args:
            upto: the lowest position of all branches, by partition.
        """

    @abstractmethod
    def lag(self, after: Positions) -> Lag:
        """How far `after` is behind the ends.

        Called by the driver with each report, and by the lag sensor.

        Args:
            after: positions of one branch.

        Returns:
            Records, seconds since the oldest unread record, and the ends.
        """

    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:  # noqa: ARG002 - what overrides need
        """The first records from `after` on in each partition, for a look.

        Called by `dataflow preview`. Without Spark, and nothing is consumed: no checkpoint, no
        consumer group, no server moves.

        Args:
            after: a partition that is missing is read from its beginning; what is gone by now is
                passed over.
            limit: the most records of a partition.

        Returns:
            By partition the columns of `frame`, all of them; `_at` is the offset.

        Raises:
            PermanentError where the source cannot be looked into without moving on.
        """
        raise PermanentError(
            "this source cannot be looked into without moving on; give records with --input FILE"
        )

    def behind(self, partition: str, position: Position | None, end: Position) -> bool:  # noqa: ARG002 - what overrides need
        """True while a position of a partition has not reached `end`.

        Called by the driver in each turn of the loop, and by sensors. Integers are compared. What
        else a position says only its source knows: without an override two that differ are behind
        one another.

        Args:
            partition: its name.
            position: None for nothing yet.
            end: as `ends` returned it.
        """
        if isinstance(position, int) and isinstance(end, int):
            return position < end
        return position != end and not (position is None and end == 0)

    def smaller(self, piece: PartSlice, limit: Limit) -> Sequence[str]:  # noqa: ARG002 - what overrides need
        """The borders of parts that have the rows of this part together, each within the limit.

        Called by the driver for each part of an unfinished span, before it is read again.

        Args:
            piece: a part that was recorded and not committed.
            limit: the most records and bytes of one part.

        Returns:
            Borders for `PartSlice.part`; the part's own border alone where it is within the limit,
            or where the source cannot cut it.
        """
        return (piece.part,)

    def adopt(self, document: Mapping[str, Any]) -> Positions:  # noqa: ARG002 - what overrides need
        """Positions from a checkpoint of the DataFlow Operator.

        Called by `dataflow reset --checkpoint`.

        Args:
            document: the object of this source's type in the operator's checkpoint.

        Returns:
            Positions to start from.

        Raises:
            PermanentError when it is no such checkpoint.
        """
        raise PermanentError("this source takes over no checkpoint of the DataFlow Operator")

    def fold(self, positions: Positions) -> Positions:
        """Finished parts folded into the positions to keep; sources with offsets keep all.

        Called by `SinkSession.finish`, inside the commit.

        Args:
            positions: those of the checkpoint and of the finished parts.

        Returns:
            The positions that the checkpoint stores.
        """
        return positions

    @abstractmethod
    def close(self) -> None:
        """Frees the connection; safe twice.

        Called by whoever opened the session, on the same machine.
        """


class SinkSession(ABC):
    """The driver's connection to one branch's target, holding one epoch.

    Opening it takes a new epoch: sessions and tasks of older epochs can commit nothing any more
    and stop with TakenOver ("flow X was taken over by run R on host H").
    """

    @property
    @abstractmethod
    def checkpoint(self) -> Checkpoint:
        """The stored checkpoint as of the last `begin`, `restart` or `finish` of this session.

        Read by the driver in each turn of the loop: it costs nothing.
        """

    @property
    @abstractmethod
    def identity(self) -> str | None:
        """The id of the target table itself (oid, uuid); None while there is no table.

        Called by the driver when a branch opens.
        """

    @abstractmethod
    def schema(self) -> pa.Schema | None:
        """The target's columns with their metadata (KIND and so on) set.

        Called by the driver when a branch opens, and once for each micro-batch.

        Returns:
            None while there is no table.

        Raises:
            PermanentError where the target cannot be written to (a view, a foreign table).
        """

    def row_count(self) -> int | None:
        """The table's rows in all, where that is exact and costs nothing; None elsewhere.

        Called by the driver with each report.
        """
        return None

    @abstractmethod
    def create(self, sample: pa.Schema) -> None:
        """Makes the table from the manifest's `columns` and the types of a sample.

        Called by the driver once, when the first records have arrived.

        Args:
            sample: of messages the JSON types null, bool, int64, float64, string, struct, list, and
                pa.json_() where records disagree beyond widening; of typed rows the types of the
                source, as `Source.batches` may deliver them.

        Raises:
            PermanentError when tables may not be made, or when no column is known at all (an empty
            sample, and no `columns`), with what to do.
        """

    @abstractmethod
    def holds_rows(self) -> bool:
        """Whether anything is in the target; True where that cannot be found out.

        Called by the driver when the target's identity is not the one of the checkpoint.
        """

    @abstractmethod
    def adopt(self) -> None:
        """Stores the target as it is now as the one that the checkpoint is about.

        Called by the driver once, for `table: adopt`.

        Raises:
            PermanentError where the checkpoint leaves open which rows the target holds; TakenOver.
        """

    @abstractmethod
    def restart(self, positions: Positions, source: str, *, empty: bool = False) -> None:
        """Stores these positions and identities as the new start, under this epoch.

        Called by the driver when a branch begins, when a run rewinds, and when the source was
        re-created.

        Args:
            positions: where to begin, by partition.
            source: the identity of the source.
            empty: takes every row out of the table in the same commit (`table: truncate`).

        Raises:
            PermanentError where rows of other flows would go as well (`refuse_shared`); TakenOver.
        """

    @abstractmethod
    def begin(self, span: Span) -> Span:
        """Stores what must survive a crash before anything is read.

        Called by the driver once for each micro-batch, between `SourceSession.plan` and the pass.
        Stores start positions of partitions that are not known yet, and the parts of a bounded
        read.

        Args:
            span: as planned.

        Returns:
            The same span; or the recorded unfinished one, of which committed parts are empty and
            not read again, and offsets that must be read to their end are `whole`.

        Raises:
            TakenOver when a newer session has the epoch.
        """

    @abstractmethod
    def divide(self, span: Span, cut: Cut) -> Span:
        """Records smaller parts for those of an unfinished span that `begin` has handed back.

        Called by the driver before an unfinished span is read again. Only for parts of which
        nothing can be committed any more under their own name.

        Args:
            span: as `begin` returned it.
            cut: from a part to the borders of the parts that replace it.

        Returns:
            The span to read now.

        Raises:
            TakenOver when a newer session has the epoch.
        """

    @abstractmethod
    def ticket(self) -> Ticket:
        """What the tasks of this epoch need.

        Called by the driver once for each micro-batch; the ticket is pickled to the workers.
        """

    def stage(  # noqa: B027 - most sinks have nothing to prepare
        self, span: Span, receipts: Sequence[Receipt], spark: Callable[[], SparkSession]
    ) -> None:
        """Prepares, with Spark jobs of the sink's own, what `finish` publishes (Iceberg upserts).

        Called by the driver once for each micro-batch, between the pass and `finish`. Nothing of it
        is visible to readers; doing it twice changes nothing.

        Args:
            span: what was read.
            receipts: of this branch's writers, by partition.
            spark: gives a live session.

        Raises:
            TransientError when Spark fails.
        """

    @abstractmethod
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        """Publishes what the writers have staged, steps over gaps, folds parts: one commit.

        Called by the driver once for each micro-batch, only after the whole pass succeeded. Doing
        it twice changes nothing.

        Args:
            span: what was read; it ends where tasks have stopped reading, which may be before its
                planned end.
            receipts: of this branch's writers, by partition.
            source: folds the positions.

        Returns:
            The checkpoint that is stored now.

        Raises:
            TakenOver when a newer session has the epoch; TransientError when the answer is lost:
            the next attempt finds out what was committed.
        """

    @abstractmethod
    def forget(self) -> None:
        """Removes the branch's checkpoint; the rows stay.

        Called by `dataflow reset`.
        """

    @abstractmethod
    def close(self) -> None:
        """Frees the connection; safe twice.

        Called by the driver at the end of each attempt.
        """
