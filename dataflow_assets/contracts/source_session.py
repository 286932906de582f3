"""The driver's connection to the source of a flow."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from dataflow_assets.contracts.checkpoint import Lag
from dataflow_assets.contracts.slices import Limit, PartSlice, Positions, Span
from dataflow_assets.contracts.source_positions import SourcePositions
from dataflow_assets.errors import DataflowError, PermanentError, outcome

if TYPE_CHECKING:  # a manifest is loaded without Spark
    from pyspark.sql import DataFrame, SparkSession


class SourceSession(SourcePositions):
    """The driver's connection to a source: fixes bounds first, then names what to read.

    `Source.open` makes one for each attempt of a run, and one for each flow in the process of the
    sensors. It is used by one thread at a time.
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

    def prepare(self, span: Span, spark: Callable[[], SparkSession]) -> Span:  # noqa: ARG002 - what overrides need
        """Returns what must be done before the span is recorded, such as to compute its parts.

        Called by the driver once for each micro-batch, between `plan` and `SinkSession.begin`. What
        was prepared counts only once `begin` has recorded it: a crash, or a branch that has an
        unfinished span of its own, leaves it behind.

        Args:
            span: as `plan` made it, with the positions that it was planned from.
            spark: gives a live session; nobody makes one where it is not called.

        Returns:
            The span to record. By default the same one.

        Raises:
            TransientError, PermanentError as `plan` does.
        """
        return span

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
            binary, then the wanted columns. A source may leave out the values of a large record,
            so that no batch exceeds the memory of a task: its row keeps its place, `_at` is -1
            minus the value above, all other columns are null, and the task reads the record with
            `Source.large_records`.
        """
        raise NotImplementedError(f"{type(self).__name__}: tasks read this source by themselves")

    def reads_in_tasks(self, span: Span) -> bool:
        """Whether tasks read this span with `Source.messages_together`, and not from `frame`.

        Called by the driver once for each micro-batch, only where `Source.delivers` is `messages`.

        Args:
            span: as `plan` made it in this session, or as a sink has recorded it.

        Returns:
            True where tasks read it faster, or where Spark's own reader may not read it. By default
            what `is_small` says.
        """
        return self.is_small(span)

    def frame_failed(self, reason: str) -> bool:  # noqa: ARG002 - what overrides need
        """Returns whether tasks can read what the reader of `frame` could not.

        Called by the driver when a job over a frame has failed. The span is then read once more, by
        tasks.

        Args:
            reason: what Spark says, as one sentence.

        Returns:
            True where the reason is a record that the reader cannot take; `reads_in_tasks` is True
            from then on. By default False: another attempt may succeed.
        """
        return False

    def is_small(self, span: Span) -> bool:  # noqa: ARG002 - what overrides need
        """Whether this span can be read by the driver, or in one Spark job with other flows' spans.

        Called by the driver once for each micro-batch, only where `Source.delivers` is `messages`.

        Args:
            span: as for `reads_in_tasks`, which must be True where this is.

        Returns:
            True where the span has few records, none of them known to be large, and all of them
            still there as far as the session knows. By default False.
        """
        return False

    @property
    def holds(self) -> bool:
        """Whether others wait at the source for what `acknowledge` lets go, such as a lock.

        Asked by the driver after each commit. While it is True, `acknowledge` is called after each
        micro-batch that every branch has, in a lane too. By default False.
        """
        return False

    @abstractmethod
    def acknowledge(self, upto: Positions) -> None:
        """Reports to the server what every branch has committed.

        Called by the driver after micro-batches, in a lane at most every half minute unless the
        session `holds` something, and at the end of a run. It may be repeated and may be skipped:
        no commit rests on it.

        Args:
            upto: the lowest position of all branches, by partition.
        """

    @abstractmethod
    def lag(self, after: Positions) -> Lag:
        """Returns how far `after` is behind the ends.

        Called by the driver with its reports, at most every five seconds and in a lane every half
        minute, and by the lag sensor.

        Args:
            after: positions of one branch.

        Returns:
            Records, seconds since the oldest unread record, and the ends.
        """

    @classmethod
    def lags_together(
        cls, asked: Sequence[tuple[Self, Positions | None]]
    ) -> list[Lag | DataflowError]:
        """Returns how far many branches are behind, of sources of equal `Source.shared`.

        Called by `dataflow status` and by the lag sensor.

        Args:
            asked: open sessions, of which one may come several times, each with the positions of a
                branch; None for a branch that begins at `start`.

        Returns:
            For each what `lag` would have returned, or the error in its place.
        """
        return [outcome(partial(one.lag_since, after)) for one, after in asked]

    def lag_since(self, after: Positions | None) -> Lag:
        """Returns how far a branch is behind the ends, also one that has no checkpoint yet.

        Called by whoever looks at one flow.

        Args:
            after: its positions; None where it begins at `start`.
        """
        return self.lag(self.start() if after is None else after)

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

    def smaller(self, piece: PartSlice, limit: Limit) -> Sequence[str]:  # noqa: ARG002 - what overrides need
        """The borders of parts that have the rows of this part together, each within the limit.

        Called by the driver for each part of an unfinished span, before it is read again.

        Args:
            piece: a part that was recorded and not committed.
            limit: the most records and bytes of one part.

        Returns:
            Borders for `PartSlice.part`; the part's own border alone where it is within the limit,
            or where the source cannot cut it.

        Raises:
            Outdated: the part cannot be read any more as it was planned. Where nothing of its span
                is committed, the driver drops the span and plans again; else the branch ends with
                this error.
        """
        return (piece.part,)

    def renewed(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        """The same for a branch that upserts, in whose table a row may be stored again.

        Called where `smaller` raises Outdated. Where a part cannot be read any more as it was
        planned, parts of a later state will do, if what follows the span makes up for the
        difference.

        Args:
            piece: a part that was recorded and not committed.
            limit: the most records and bytes of one part.

        Returns:
            As `smaller`; none where the rows are in the parts that another one was replaced by.

        Raises:
            Outdated: as `smaller`.
        """
        return self.smaller(piece, limit)

    def upto(self, piece: PartSlice) -> str:
        """The position after the span of a part, as this session reads the part.

        Called by the driver for each part of an unfinished span, before it is read again. What it
        returns is recorded first: a run that dies leaves behind what it has read.

        Args:
            piece: a part that was recorded and not committed.

        Returns:
            The position that was recorded; another one where less is read of the part by now.
        """
        return piece.upto

    def is_load(self, piece: PartSlice) -> bool:  # noqa: ARG002 - what overrides need
        """Returns whether a part holds rows as of one moment, from which on changes are followed.

        Called at the beginning of a run that is to load tables again, for each part of a span that
        an earlier run has left unfinished.

        Args:
            piece: as it was recorded.

        Returns:
            True where a load that begins anew would miss what was deleted since that moment.
        """
        return False

    @abstractmethod
    def close(self) -> None:
        """Frees the connection; safe twice.

        Called by whoever opened the session, on the same machine.
        """
