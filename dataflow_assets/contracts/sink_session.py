"""The driver's connection to the target of one branch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from dataflow_assets.contracts.checkpoint import Checkpoint
from dataflow_assets.contracts.slices import Cut, Positions, Span
from dataflow_assets.contracts.source import SourceSession
from dataflow_assets.contracts.tasks import Receipt, Ticket


class TargetTable(ABC):
    """The table of one branch, or its topic or folder: what it is, and how it is made.

    Made by `Sink.open`, on the driver. What only some tables can do is a capability beside this
    class (`AddsColumns`, `ChecksTarget`, `CountsRows`).
    """

    @property
    @abstractmethod
    def identity(self) -> str | None:
        """The id of the target table itself (oid, uuid); None while there is no table.

        Called by the driver when a branch opens.
        """

    @property
    def difference(self) -> str | None:
        """How the target differs from the checkpoint's, where its identity alone does not say it.

        Called by the driver when a branch opens whose checkpoint names another identity.

        Returns:
            The end of a sentence that begins with the target; None: it is another one by its id.
        """
        return None

    @abstractmethod
    def schema(self) -> pa.Schema | None:
        """The target's columns with their metadata (see `Note`) set.

        Called by the driver when a branch opens, and once for each micro-batch.

        Returns:
            None while there is no table.

        Raises:
            PermanentError where the target cannot be written to (a view, a foreign table).
        """

    @abstractmethod
    def create(self, sample: pa.Schema) -> None:
        """Makes the table from the manifest's `columns` and the types of a sample.

        Called by the driver once, when the first records have arrived.

        Args:
            sample: of messages the JSON types null, bool, int64, float64, string, struct, list, and
                pa.json_() where records disagree beyond widening; of typed rows the types of the
                source, as `ReadsParts.batches` may deliver them.

        Raises:
            PermanentError when tables may not be made, or when no column is known at all (an empty
            sample, and no `columns`), with what to do.
        """

    @abstractmethod
    def holds_rows(self) -> bool:
        """Returns whether anything is in the target; True where that cannot be found out.

        Called by the driver when the target's identity is not the one of the checkpoint.
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

        Returns:
            A checkpoint without positions for a branch that never began.
        """

    @property
    @abstractmethod
    def table(self) -> TargetTable:
        """The target itself.

        Called by the driver when a branch opens, and once for each micro-batch: it costs nothing.
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
            TakenOver when a newer session has the epoch; Outdated where the sink has forgotten what
                of the unfinished span is stored.
        """

    @abstractmethod
    def divide(self, span: Span, cut: Cut) -> Span:
        """Records smaller parts for those of an unfinished span that `begin` has handed back.

        Called by the driver before an unfinished span is read again. Only for parts of which
        nothing can be committed any more under their own name, and for those that are gone.

        Args:
            span: as `begin` returned it.
            cut: the borders of the parts that replace each part. Where nothing replaces any of
                them, and none is committed, the span is forgotten, and planned again.

        Returns:
            The span to read now; one without slices where it is forgotten.

        Raises:
            TakenOver when a newer session has the epoch; PermanentError where a span cannot be
            forgotten, as its rows may be in the target all the same.
        """

    @abstractmethod
    def ticket(self) -> Ticket:
        """Returns what the tasks of this epoch need.

        Called by the driver once for each micro-batch; the ticket is pickled to the workers.
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
