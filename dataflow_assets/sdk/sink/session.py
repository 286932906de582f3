"""A sink's session on the driver: the life of one epoch of one branch, whatever stores its state.

A sink says how the state is stored, in a `CheckpointStore`; what is stored, `decide` and `state`
say. Every change asserts, inside the commit of the store, that this session has its epoch still.
"""

from __future__ import annotations

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
    TargetTable,
    Ticket,
    Totals,
    refuse_shared,
)
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.sdk.sink.checkpoint_store import CheckpointStore, StateChange
from dataflow_assets.sdk.sink.decide import advance, check_planned, check_planned_from
from dataflow_assets.sdk.sink.state import BranchState, check_owner


class TransactionalSession(SinkSession):
    """One epoch of one branch.

    Made by `Sink.open` on the driver, once for each attempt and branch; making it takes the epoch.
    """

    def __init__(
        self, sink: Sink, target: Target, run: Run, table: TargetTable, store: CheckpointStore
    ) -> None:
        self._sink, self._target, self._run = sink, target, run
        self._table, self._store = table, store
        try:
            taken = store.fence(lambda found: (found or BranchState()).take(run))
            self._state = check_owner(
                target.flow, taken, taken.checkpoint.epoch, run, sink.address()
            )
        except BaseException:
            self.close()
            raise

    @property
    @override
    def checkpoint(self) -> Checkpoint:
        return self._state.for_readers

    @property
    @override
    def table(self) -> TargetTable:
        return self._table

    @override
    def adopt(self) -> None:
        identity = self.table.identity
        self._change(lambda found: found.adopt(identity))

    @override
    def restart(self, positions: Positions, source: str, *, empty: bool = False) -> None:
        where = (positions, source, self._target, self.table.identity)
        if empty:
            refuse_shared(self._target, self._sink.address(), self._store.sharing())
        self._state = self._check_owner(
            self._store.fence(self._owning(lambda found: found.restart(*where)), empty=empty)
        )

    @override
    def begin(self, span: Span) -> Span:
        if self._sink.commits == "span":  # else the tasks move the state, and assert the epoch
            self._state = self._check_owner(self._store.load())
        begun = self._state.unfinished_span or self._record(span)
        failpoints.reach(f"{self._store.system}.begin")
        return begun

    def _record(self, span: Span) -> Span:
        known = self._state.positions
        check_planned_from(self._target.flow, span, known)
        self._check_planned([s for s in span.slices if s.partition in known], known)
        begun = partial(
            BranchState.begin, span=span, target=self._target, identity=self.table.identity
        )
        if begun(self._state) != self._state:
            self._change(begun)
        return span

    @override
    def divide(self, span: Span, cut: Cut) -> Span:
        if not self._state.intent or self._state.divide(cut).intent == span.slices:
            return span
        forgets = not self._state.divide(cut).intent

        def step(found: BranchState) -> BranchState:
            divided = found.divide(cut)
            if forgets and divided.intent:
                raise TransientError(f"flow {self._target.flow}: a part was committed meanwhile")
            return divided

        self._change(step)
        return replace(span, slices=self._state.intent)

    @override
    def ticket(self) -> Ticket:
        schema = self.table.schema()
        if schema is None:
            raise PermanentError(f"there is no table {self._sink.address()} yet")
        target = replace(self._target, reading=self.checkpoint.reading)
        known, failpoint = self.checkpoint, failpoints.from_environment()
        return Ticket(target, self._run, known.epoch, schema, failpoint, known.positions)

    @override
    def finish(self, span: Span, receipts: Sequence[Receipt], source: SourceSession) -> Checkpoint:
        system = self._store.system
        failpoints.reach(f"{system}.finish")
        own = [one for one in receipts if one.branch == self._target.branch]
        if self._sink.commits == "slice":
            self._state = self._check_owner(self._store.load(own))
            self._check_kept(own)
            own = []  # a part that is not in the state is not stored, whatever its task was told
        left = self._state.remaining_slices(span)
        if left or self._state.intent:
            self._check_planned(left, self._state.positions)
            self._finish(left, complete(left, own, self._target.branch), source)
        failpoints.reach(f"{system}.finished")
        return self.checkpoint

    def _check_kept(self, receipts: Sequence[Receipt]) -> None:
        """Raises TransientError for what a task has stored and the state does not have: no gap."""
        for one in receipts:
            kept = self._state.positions.get(one.partition)
            if isinstance(one.position, int) and isinstance(kept, int) and kept < one.position:
                raise TransientError(
                    f"{self._sink.address()} has lost what was committed of partition "
                    f"{one.partition} from {kept} to {one.position}, as where a server takes over "
                    "that lacks the last commits: it is read again"
                )

    def _finish(
        self, left: Sequence[Slice], receipts: Sequence[Receipt], source: SourceSession
    ) -> None:
        """From any other positions than the span was planned on, nothing is stored."""
        planned = self._state.positions
        moved = advance(planned, left)
        positions = source.fold(moved) if self._state.intent else moved
        counted = sum((one.totals for one in receipts), Totals())

        def step(found: BranchState) -> BranchState:
            self._check_planned(left, found.positions)
            if found.positions != planned:
                raise TransientError(
                    f"flow {self._target.flow}: the checkpoint has moved since the span was planned"
                )
            return found.finish(positions, counted)

        self._state = self._check_owner(self._store.publish(self._owning(step), receipts))

    @override
    def forget(self) -> None:
        self._state = self._check_owner(self._store.fence(self._owning(BranchState.forget)))

    @override
    def close(self) -> None:
        self._store.close()

    def _change(self, change: Callable[[BranchState], BranchState]) -> None:
        self._state = self._check_owner(self._store.change(self._owning(change)))

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
