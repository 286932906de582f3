"""Rejected records once more through their flow, each at most once, when the cause is fixed.

Entries are read as part slices: `begin` records which ones a part holds, and the part is committed
whole with its rows, under a checkpoint of its own beside the flow's (`<branch>#replay`). A crash
repeats the same part or none. What is rejected again becomes a new entry, of the next attempt.

What waits is looked at once all branches are opened: from then on no other replay can commit, so
that what is done and not noted in its store is still found there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from dataflow_assets import failpoints
from dataflow_assets.contracts import (
    Entries,
    Entry,
    Limit,
    Run,
    SinkSession,
    Span,
    StagesWithSpark,
    Totals,
    local_now,
)
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.micro_batch import job
from dataflow_assets.micro_batch.branches import BranchSteps, PassBranch
from dataflow_assets.micro_batch.formatted import format_of
from dataflow_assets.micro_batch.fused import Pass
from dataflow_assets.micro_batch.job import Planned
from dataflow_assets.records.step import Context
from dataflow_assets.runs.replay_entries import (
    WHOLE,
    EntrySession,
    EntrySource,
    is_for,
    names_of,
    replay_target,
    token_of,
)
from dataflow_assets.runs.replay_settled import Settled
from dataflow_assets.runs.replay_waiting import LOOKED_AT, Waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

AT_ONCE = 500  # entries in one part: their tokens are the part's position
BYTES_AT_ONCE = 16 * 1024 * 1024


@dataclass(frozen=True)
class Replayed:
    """Entries that have been put back, and what became of them in each branch."""

    entries: int = 0
    branches: Mapping[str, Totals] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(totals.rows for totals in self.branches.values())

    @property
    def rejected_again(self) -> int:
        """Rejected again: entries of their next attempt."""
        return sum(totals.rejected for totals in self.branches.values())

    def __add__(self, other: Replayed) -> Replayed:
        names = {**self.branches, **other.branches}
        none = Totals()
        return Replayed(
            self.entries + other.entries,
            {n: self.branches.get(n, none) + other.branches.get(n, none) for n in names},
        )

    def __str__(self) -> str:
        if not self.entries:
            return "nothing to replay: no rejected record waits"
        several = f"{self.entries:,} rejected record{'' if self.entries == 1 else 's'}"
        again = self.rejected_again
        silent = self.entries - self.rows - again
        rest = f", {silent:,} without a row (filtered, or replayed before)" if silent > 0 else ""
        return f"{several} replayed: {self.rows:,} stored, {again:,} rejected again{rest}"


def moment(text: str) -> datetime:
    """A time for `since`; raises ValueError with what is wanted."""
    expected = f"{text!r} is not a time with its zone; write it as 2026-01-31T00:00:00Z"
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(expected) from None
    if parsed.tzinfo is None:
        raise ValueError(expected)
    return parsed


def keeps(flow: Flow) -> bool:
    """Returns whether rejected records of the flow wait somewhere for a replay."""
    rejects = flow.policies.rejects
    return rejects.way in ("table", "errors") and not rejects.holds


def replay(
    flow: Flow, spark: Callable[[], SparkSession], run: Run, since: datetime | None = None
) -> Iterator[Replayed]:
    """Puts the flow's waiting entries back, oldest first; yields after each part.

    Raises PermanentError where entries cannot be read back, TransientError when a server is down:
    the next replay goes on where this one stopped.
    """
    if not flow.source.traits.replays:
        raise PermanentError(
            f"flow {flow.id} keeps state, which a replay cannot change: send the records to "
            f"{flow.source_address} again, and delete their entries"
        )
    flow = flow.resolve()
    stores = _stores(flow)
    first = _of_branches(flow, Waiting.look(flow, stores, since).entries)
    if not first:
        return
    with ExitStack() as stack:
        branches = [
            stack.enter_context(closing(_Putting(flow, branch, spark, run)))
            for branch in flow.branches
            if any(is_for(branch, entry) for entry in first)
        ]
        waiting = Waiting.look(flow, stores, None)
        waiting.drop_superseded()
        # Taken once: what is rejected again waits for the next replay.
        chosen = waiting if since is None else Waiting.look(flow, stores, since)
        opened = frozenset(branch.branch.id for branch in branches)
        ready = [one for one in _of_branches(flow, chosen.entries) if _targets(flow, one) <= opened]
        ready = Settled(flow).only(ready)
        noted: set[str] = set()
        for entries in _parts(ready):
            done = _put(branches, entries, waiting, noted)
            chosen.note(entries)
            noted.update(map(token_of, entries))
            log.info("flow %s: %s", flow.id, done)
            yield done
        if not chosen.whole:
            log.warning("flow %s: those were the oldest %d: replay again", flow.id, LOOKED_AT)


def _stores(flow: Flow) -> list[Entries]:
    rejects = flow.policies.rejects
    if rejects.holds:
        raise PermanentError(
            f"flow {flow.id} stops at a record that cannot be stored (ackPolicy), and reads it "
            f"again itself once it can: there is nothing to replay"
        )
    if not keeps(flow):
        raise PermanentError(
            f"flow {flow.id} keeps no rejected records (onRejected: {rejects.way}): there is "
            f"nothing to replay"
        )
    if rejects.sink is not None:
        return [rejects.sink.error_store()]
    return [branch.sink.rejected_entries() for branch in flow.branches]


def _of_branches(flow: Flow, entries: Sequence[Entry]) -> list[Entry]:
    """Without those of a branch that the flow has no more."""
    left = []
    for entry in entries:
        if _targets(flow, entry):
            left.append(entry)
        else:
            log.warning("flow %s: left alone, its branch is gone: %s", flow.id, entry.id)
    return left


def _targets(flow: Flow, entry: Entry) -> frozenset[str]:
    return frozenset(branch.id for branch in flow.branches if is_for(branch, entry))


def _parts(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    part: list[Entry] = []
    size = 0
    for entry in entries:
        part.append(entry)
        size += len(entry.body or b"")
        if len(part) == AT_ONCE or size > BYTES_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


def _put(
    branches: Sequence[_Putting], entries: Sequence[Entry], waiting: Waiting, noted: Collection[str]
) -> Replayed:
    """One part through every branch that it is for, each with a checkpoint of its own."""
    done: dict[str, Totals] = {}
    for branch in branches:
        theirs = (entry for entry in entries if is_for(branch.branch, entry))
        if mine := [one for one in theirs if not waiting.is_superseded(one, branch.branch)]:
            done[branch.branch.id] = branch.put(mine, waiting, noted)
    return Replayed(len(entries), done)


class _Putting:
    """One branch that takes entries back, under one epoch of its replays."""

    def __init__(
        self, flow: Flow, branch: Branch, spark: Callable[[], SparkSession], run: Run
    ) -> None:
        self.branch, self._flow, self._spark = branch, flow, spark
        self._target = replay_target(flow, branch)
        self._format = format_of(flow)
        self._sink: SinkSession = branch.sink.open(self._target, run)

    def close(self) -> None:
        self._sink.close()

    def put(self, entries: Sequence[Entry], waiting: Waiting, noted: Collection[str]) -> Totals:
        """Returns what became of them; first of what an earlier replay had begun and not ended."""
        sink, session = self._sink, EntrySession(entries, waiting.tokens, noted)
        before = sink.checkpoint.totals
        if not sink.checkpoint.positions:
            sink.restart(session.start(), session.identity)
        while not (span := session.plan(sink.checkpoint.positions, Limit())).empty:
            self._pass(sink.begin(span), session, waiting)
        return sink.checkpoint.totals - before

    def _pass(self, span: Span, session: EntrySession, waiting: Waiting) -> None:
        by_slice = (waiting.entries_of(names_of(piece)) for piece in span.slices)
        entries = tuple(entry for of_slice in by_slice for entry in of_slice)
        tombstones = self._flow.source.traits.null_messages
        source = EntrySource(
            entries=entries,
            tombstones=tombstones,
            of_rows=self._flow.source.delivers == "columns",
        )
        failpoints.reach("replay.begun")
        branch = PassBranch(
            self.branch.sink,
            self._sink.ticket(),
            self.branch.routes,
            self._flow.source.traits.new_columns,
        )
        steps = _steps(self._flow, span.at or local_now(), branch, source)
        work = Pass(source, span, (branch,), 100.0, steps, format=self._format)
        receipts = job.run(self._spark(), Planned(work, session)).receipts[self._target.branch]
        failpoints.reach("replay.passed")
        if isinstance(self._sink, StagesWithSpark):
            self._sink.stage(span, receipts, self._spark)
        self._sink.finish(span, receipts, session)


def _steps(
    flow: Flow, now: datetime, branch: PassBranch, source: EntrySource
) -> BranchSteps | None:
    """The flow's. One of several records, and a change of a row, are matters of steps anyway."""
    several = any(e.stage not in WHOLE and (e.n or e.rows not in (None, 1)) for e in source.entries)
    records = several or any(map(source.change, source.entries))
    none = BranchSteps((), Context(now), flow.reads()) if records else None
    return BranchSteps.of(flow, now, [branch.shape()]) or none
