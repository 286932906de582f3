"""A sink's session whose whole state is read and stored at once: one row, one property, one file.

The sink says how the state is stored, in four verbs; what is stored, `sdk.sink.decide` decides.

| verb | stores the state | and in the same commit |
|---|---|---|
| `read` | no | |
| `record` | yes | |
| `fence` | yes | fails whatever was begun before it; takes every row out, where asked to |
| `publish` | yes | puts the rows in that the tasks have staged |

What remains is the table itself: `identity`, `schema`, `create`, `holds_rows`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.contracts import (
    Checkpoint,
    Cut,
    PartSlice,
    Positions,
    Receipt,
    Run,
    Sink,
    SinkSession,
    Slice,
    SourceSession,
    Span,
    Target,
    Ticket,
    Totals,
)
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.sdk.sink.decide import advance, check_begun, check_planned
from dataflow_assets.sdk.sink.state import BranchState, check_owner

StateChange = Callable[[BranchState | None], BranchState]
"""From the state that is stored to the one to store; None for nothing. Raises to give up."""


class TransactionalSession(SinkSession):
    """One epoch of one branch; every change of the state asserts that this session has it still.

    Made by `Sink.open` on the driver, once for each attempt and branch. A subclass connects before
    it calls this constructor, which takes the epoch.
    """

    def __init__(self, sink: Sink, target: Target, run: Run) -> None:
        self._sink, self._target, self._run = sink, target, run
        taken = self.fence(lambda found: (found or BranchState()).take(run))
        self._state = check_owner(target.flow, taken, taken.checkpoint.epoch, run, sink.address())

    @abstractmethod
    def read(self) -> BranchState | None:
        """The state as it is stored now.

        Called on the driver before each micro-batch, and after it where tasks move the state.

        Returns:
            None for a branch that has none.

        Raises:
            TransientError: the target cannot be reached.
        """

    @abstractmethod
    def record(self, step: StateChange) -> BranchState:
        """Stores what `step` makes of the stored state, by compare-and-set.

        Called on the driver in a micro-batch, where something must survive a crash.

        Args:
            step: pure; it may be called again, where somebody else has stored in between.

        Returns:
            What is stored now.

        Raises:
            TakenOver, CheckpointRemoved: of the step; then nothing is stored.
            TransientError: the answer is lost.
        """

    @abstractmethod
    def fence(self, step: StateChange, *, empty: bool = False) -> BranchState:
        """The same; and nothing that was begun before it can be committed any more.

        Called on the driver when the session opens, restarts or is forgotten.

        Args:
            step: as for `record`.
            empty: takes every row out of the table, unless other flows write into it.

        Returns:
            What is stored now.

        Raises:
            PermanentError: rows of other flows would go as well (`refuse_shared`); and as `record`.
        """

    @abstractmethod
    def publish(self, step: StateChange, receipts: Sequence[Receipt]) -> BranchState:
        """The same as `record`, with the rows that tasks have staged, in one commit.

        Called on the driver once for each micro-batch, after the whole pass, of sinks that commit
        spans; others have committed in their tasks.

        Args:
            step: as for `record`.
            receipts: of this branch, of the slices that are not committed yet.

        Returns:
            What is stored now.

        Raises:
            As `record`.
        """

    @property
    @override
    def checkpoint(self) -> Checkpoint:
        return self._state.for_readers

    @override
    def adopt(self) -> None:
        identity = self.identity
        self._state = self._check_owner(
            self.record(self._owning(lambda found: found.adopt(identity)))
        )

    @override
    def restart(self, positions: Positions, source: str, *, empty: bool = False) -> None:
        where = (positions, source, self._target, self.identity)
        self._state = self._check_owner(
            self.fence(self._owning(lambda found: found.restart(*where)), empty=empty)
        )

    @override
    def begin(self, span: Span) -> Span:
        self._state = self._check_owner(self.read())
        if (unfinished := self._state.unfinished_span) is not None:
            return unfinished
        known = self._state.positions
        check_begun(self._target.flow, span, known)
        self._check_planned([s for s in span.slices if s.partition in known], known)
        begun = partial(BranchState.begin, span=span, target=self._target, identity=self.identity)
        if begun(self._state) != self._state:
            self._state = self._check_owner(self.record(self._owning(begun)))
        return span

    @override
    def divide(self, span: Span, cut: Cut) -> Span:
        if self._state.divide(cut).intent in ((), span.slices):
            return span
        self._state = self._check_owner(self.record(self._owning(lambda found: found.divide(cut))))
        return replace(span, slices=self._state.intent)

    @override
    def abandon(self) -> None:
        self._state = self._check_owner(self.record(self._owning(BranchState.abandon)))

    @override
    def ticket(self) -> Ticket:
        schema = self.schema()
        if schema is None:
            raise PermanentError(f"there is no table {self._sink.address()} yet")
        target = replace(self._target, reading=self.checkpoint.reading)
        known, failpoint = self.checkpoint, failpoints.from_environment()
        return Ticket(target, self._run, known.epoch, schema, failpoint, known.positions)

    @override
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        in_tasks = self._sink.commits == "slice"
        if in_tasks:
            self._state = self._check_owner(self.read())
        left = self._state.remaining_slices(span)
        if left or self._state.intent:
            self._check_planned(left, self._state.positions)
            own = complete(left, receipts, self._target.branch)
            counted = Totals() if in_tasks else sum((r.totals for r in own), Totals())
            step = self._owning(self._finish(left, counted, source))
            self._state = self._check_owner(
                self.record(step) if in_tasks else self.publish(step, own)
            )
        return self.checkpoint

    @override
    def forget(self) -> None:
        self._state = self._check_owner(self.fence(self._owning(BranchState.forget)))

    @override
    def close(self) -> None:
        """Nothing is held open."""

    def _finish(
        self, left: Sequence[Slice], counted: Totals, source: SourceSession
    ) -> Callable[[BranchState], BranchState]:
        """From any other positions than the span was planned on, nothing is stored."""
        planned = self._state.positions
        positions = source.fold(advance(planned, left))

        def step(found: BranchState) -> BranchState:
            self._check_planned(left, found.positions)
            if found.positions != planned:
                raise TransientError(
                    f"flow {self._target.flow}: the checkpoint has moved since the span was planned"
                )
            return found.finish(positions, counted)

        return step

    def _owning(self, change: Callable[[BranchState], BranchState]) -> StateChange:
        return lambda found: change(self._check_owner(found))

    def _check_owner(self, found: BranchState | None) -> BranchState:
        epoch, place = self.checkpoint.epoch, self._sink.address()
        return check_owner(self._target.flow, found, epoch, self._run, place)

    def _check_planned(self, slices: Sequence[Slice], positions: Positions) -> None:
        for piece in slices:
            check_planned(self._target.flow, piece, positions.get(piece.partition))


def complete(slices: Sequence[Slice], receipts: Sequence[Receipt], branch: str) -> list[Receipt]:
    """The receipts of these slices, in which a slice of offsets without one held no record.

    Called by sessions in `finish` on the driver, after the whole pass has succeeded.

    Args:
        slices: those that are not committed.
        receipts: of all branches.
        branch: the session's.

    Returns:
        In the order of the slices: of a key that comes in several parts the last record counts, and
        `part-10` is behind `part-2`.

    Raises:
        TransientError: a part was not read to its end.
    """
    place = {piece.partition: number for number, piece in enumerate(slices)}
    own = [r for r in receipts if r.branch == branch and r.partition in place]
    reached = {(r.partition, r.position) for r in own}
    for piece in slices:
        if isinstance(piece, PartSlice) and (piece.partition, piece.upto) not in reached:
            raise TransientError(f"part {piece.partition} was not read to its end")
    return sorted(own, key=lambda receipt: place[receipt.partition])
