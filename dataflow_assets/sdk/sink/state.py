"""What is stored of one branch, and what becomes of it with each event: a frozen model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dataflow_assets.contracts import (
    Checkpoint,
    PartSlice,
    Positions,
    Run,
    Slice,
    Span,
    Target,
    Totals,
    divide,
    next_reading,
    utc_now,
)
from dataflow_assets.contracts.slices import Cut
from dataflow_assets.sdk.sink.decide import (
    checkpoint_removed,
    intent_of,
    is_covered,
    resume,
    taken_over,
    unknown_starts,
)


@dataclass(frozen=True)
class BranchState:
    """Everything that is stored of one branch: the checkpoint, and the parts of a bounded read.

    Loaded and stored by sessions on the driver, and by writers of sinks that commit in tasks. Its
    methods return another state and raise nothing; none of them stores anything.
    """

    checkpoint: Checkpoint = Checkpoint(epoch=0)
    intent: tuple[PartSlice, ...] = ()

    @property
    def is_known(self) -> bool:
        """False for a branch that never began, or was forgotten."""
        return bool(self.checkpoint.positions) or self.checkpoint.source is not None

    @property
    def for_readers(self) -> Checkpoint:
        """The checkpoint with the parts of a bounded read, for whoever looks from outside."""
        return replace(self.checkpoint, unfinished=self.intent)

    @property
    def positions(self) -> Positions:
        """Returns those of the checkpoint."""
        return self.checkpoint.positions

    @property
    def unfinished_span(self) -> Span | None:
        """The recorded span, its committed parts empty; None where nothing is recorded."""
        return Span(resume(self.intent, self.positions)) if self.intent else None

    def remaining_slices(self, span: Span) -> tuple[Slice, ...]:
        """The slices of a span that the checkpoint does not cover.

        Called by sessions in `stage` and `finish` on the driver.

        Args:
            span: as `begin` has handed it back.

        Returns:
            Nothing of a bounded read that is recorded no more: it was finished before.
        """
        if intent_of(span) and not self.intent:
            return ()
        known = self.positions
        return tuple(s for s in span.slices if not is_covered(s, known.get(s.partition)))

    def take(self, run: Run) -> BranchState:
        """The state under a new epoch.

        Called by sessions in `open` on the driver; the caller stores the state by compare-and-set.

        Args:
            run: who has the epoch from now on.
        """
        epoch = self.checkpoint.epoch + 1
        return replace(self, checkpoint=replace(self.checkpoint, epoch=epoch, run=str(run)))

    def begin(self, span: Span, target: Target, identity: str | None) -> BranchState:
        """The state with what must survive a crash before the span is read.

        Called by sessions in `begin` on the driver, once for each micro-batch.

        Args:
            span: as planned.
            target: the branch, with the digest of its manifest.
            identity: the table's id; None while there is no table.

        Returns:
            The start positions of new partitions and the intent beside what is known.
        """
        starts = unknown_starts(span, self.positions)
        begun = {name: after for name, after in starts.items() if after is not None}
        checkpoint = replace(
            self.checkpoint,
            positions={**self.positions, **begun},
            target=self.checkpoint.target or identity,
            manifest=target.manifest,
        )
        return BranchState(checkpoint, intent_of(span))

    def divide(self, cut: Cut) -> BranchState:
        """The state with smaller parts for those that are not committed.

        Called by sessions in `divide` on the driver, where a part was too large for the sink.

        Args:
            cut: makes parts of one, the source's `divide`.
        """
        return replace(self, intent=divide(resume(self.intent, self.positions), cut))

    def adopt(self, identity: str | None) -> BranchState:
        """The state as that of another table, whose rows it describes.

        Called by sessions in `adopt` on the driver, when a person says so.

        Args:
            identity: the table's id; None while there is no table.
        """
        return replace(self, checkpoint=replace(self.checkpoint, target=identity))

    def restart(
        self, positions: Positions, source: str, target: Target, identity: str | None
    ) -> BranchState:
        """The state of a flow that begins anew: without an intent, in a reading of its own.

        Called by sessions in `restart` on the driver, once the table is emptied where that is
        asked.

        Args:
            positions: where the reading begins.
            source: the source's identity.
            target: the branch, with the digest of its manifest.
            identity: the table's id; None while there is no table.
        """
        checkpoint = replace(
            self.checkpoint,
            positions=dict(positions),
            source=source,
            target=identity,
            manifest=target.manifest,
            reading=next_reading(self.checkpoint.reading),
        )
        return BranchState(checkpoint)

    def forget(self) -> BranchState:
        """Returns the state of a branch that has never begun.

        Epoch and reading stay: a driver that was forgotten must not find its epoch free again, and
        what was rejected before must not seem later than what will be. Called by sessions in
        `forget` on the driver, for `dataflow reset`.
        """
        known = self.checkpoint
        return BranchState(Checkpoint(known.epoch, run=known.run, reading=known.reading))

    def finish(self, positions: Positions, counted: Totals) -> BranchState:
        """The state once a span is done: without an intent, at these positions.

        Called by sessions in `finish` on the driver, once for each micro-batch.

        Args:
            positions: all of the checkpoint's, those of the span moved.
            counted: what the span's receipts say, on top of the stored totals.
        """
        checkpoint = replace(
            self.checkpoint,
            positions=dict(positions),
            totals=self.checkpoint.totals + counted,
            committed_at=utc_now(),
        )
        return BranchState(checkpoint)


def check_owner(
    flow: str, found: BranchState | None, epoch: int, run: Run, place: object
) -> BranchState:
    """The stored state, which must be that of this epoch of this run.

    Called by sessions on the driver and by writers in their task, inside the commit.

    Args:
        flow: namespace/name.
        found: as stored now; None for nothing.
        epoch: that of the session or the ticket.
        run: that of the session or the ticket.
        place: what holds the checkpoint, for the error.

    Returns:
        What was found.

    Raises:
        TakenOver: another driver has taken an epoch.
        CheckpointRemoved: nothing was found.
    """
    if found is None:
        raise checkpoint_removed(flow, place)
    if (found.checkpoint.epoch, found.checkpoint.run) != (epoch, str(run)):
        raise taken_over(flow, found.checkpoint.run)
    return found
