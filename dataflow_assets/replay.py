"""Rejected records once more through their flow, each at most once, when the cause is mended.

Entries are read as part slices: `begin` records which ones a part holds, and the part is committed
whole with its rows, under a checkpoint of its own beside the flow's (`<branch>#replay`). A crash
repeats the same part or none. What is rejected again becomes a new entry, of the next attempt.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
from typing_extensions import override

from dataflow_assets import failpoints, fused
from dataflow_assets.contracts import (
    MESSAGES,
    REPLAY,
    Address,
    Entries,
    Entry,
    Lag,
    Limit,
    MessageSource,
    PartSlice,
    Positions,
    Run,
    Slice,
    SourceSession,
    Span,
    Totals,
    local_now,
)
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.messages import Lane, Steps
from dataflow_assets.records import encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

AT_ONCE = 500  # entries in one part: their tokens are the part's position
LOOKED_AT = 20_000  # entries in one replay
REMEMBERED = 500  # entries put back of late: a store that deletes them may be given one once more
BYTES_AT_ONCE = 16 * 1024 * 1024
_PARTITION = "entries"
_WHOLE = ("decode", "step")  # rejected before the record had a branch
_SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("key", pa.binary()),
        MESSAGES.field("headers"),
        ("metadata", pa.binary()),
        ("only", pa.int32()),
    ]
)


@dataclass(frozen=True)
class Replayed:
    """Entries that have been put back, and what became of them in each branch."""

    entries: int = 0
    branches: Mapping[str, Totals] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Stored now, in all branches."""
        return sum(totals.rows for totals in self.branches.values())

    @property
    def rejected(self) -> int:
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
        silent = self.entries - self.rows - self.rejected
        rest = f", {silent:,} without a row (filtered, or put back before)" if silent > 0 else ""
        return f"{several} put back: {self.rows:,} stored, {self.rejected:,} rejected again{rest}"


def moment(text: str) -> datetime:
    """A time for `since`; raises ValueError with what is wanted."""
    wants = f"{text!r} is no time with its zone; write it as 2026-01-31T00:00:00Z"
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(wants) from None
    if found.tzinfo is None:
        raise ValueError(wants)
    return found


def keeps(flow: Flow) -> bool:
    """Whether rejected records of the flow wait somewhere for a replay."""
    rejects = flow.policies.rejects
    return rejects.way in ("table", "errors") and not rejects.holds


def replay(
    flow: Flow, spark: Callable[[], SparkSession], run: Run, since: datetime | None = None
) -> Iterator[Replayed]:
    """Puts the flow's waiting entries back, oldest first; yields after each part.

    Raises PermanentError where entries cannot be read back, TransientError when a server is down:
    the next replay goes on where this one stopped.
    """
    flow = flow.resolved()
    for store in _stores(flow):
        known = store.pending(flow.id, None, LOOKED_AT)
        waiting = None if len(known) == LOOKED_AT else frozenset(map(_token, known))
        # Taken once: what is rejected again waits for the next replay.
        chosen = known if since is None else store.pending(flow.id, since, LOOKED_AT)
        for entries in _parts(flow, chosen):
            part = _part(flow, spark, run, entries, waiting)
            store.replayed([entry.id for entry in entries])
            log.info("flow %s: %s", flow.id, part)
            yield part
        if len(chosen) == LOOKED_AT:
            log.warning("flow %s: those were the oldest %d: replay again", flow.id, LOOKED_AT)


def _stores(flow: Flow) -> Iterator[Entries]:
    """Where the flow's entries are: in its error sink, or beside each of its branches."""
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
        yield rejects.sink.error_store()
    else:
        yield from (branch.sink.rejected() for branch in flow.branches)


def _parts(flow: Flow, entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """As many at once as one part may hold, without those of a branch that the flow has no more."""
    branches = {branch.id for branch in flow.branches}
    part: list[Entry] = []
    size = 0
    for entry in entries:
        if entry.stage not in _WHOLE and _branch_of(entry) not in branches:
            log.warning("flow %s: left alone, its branch is gone: %s", flow.id, entry.id)
            continue
        part.append(entry)
        size += len(entry.body or b"")
        if len(part) == AT_ONCE or size > BYTES_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


def _branch_of(entry: Entry) -> str:
    return entry.branch.removesuffix(REPLAY)


def _part(
    flow: Flow,
    spark: Callable[[], SparkSession],
    run: Run,
    entries: Sequence[Entry],
    waiting: frozenset[str] | None,
) -> Replayed:
    """One part through every branch that it is for, each with a checkpoint of its own."""
    done: dict[str, Totals] = {}
    for branch in flow.branches:
        mine = tuple(e for e in entries if e.stage in _WHOLE or _branch_of(e) == branch.id)
        if mine:
            tombstones = flow.source.null_messages
            source = EntrySource(entries=mine, waiting=waiting, tombstones=tombstones)
            done[branch.id] = _through(flow, branch, spark, run, source)
    return Replayed(len(entries), done)


def _through(
    flow: Flow, branch: Branch, spark: Callable[[], SparkSession], run: Run, source: EntrySource
) -> Totals:
    target = flow.target(branch)
    target = replace(target, branch=f"{target.branch}{REPLAY}", source_id=source.type)
    with closing(branch.sink.open(target, run)) as sink:
        before, session = sink.checkpoint.totals, source.open(flow.id)
        if not sink.checkpoint.positions:
            sink.restart(session.start(), session.identity)
        while not (span := session.plan(sink.checkpoint.positions, Limit())).empty:
            span = source.held(sink.begin(span))
            failpoints.reach("replay.begun")
            lane = Lane(branch.sink, sink.ticket(), branch.routes)
            steps = Steps.of(flow, local_now(), [lane.shape()])
            work = fused.Pass(source, span, (lane,), 100.0, steps)
            _, receipts = fused.run(spark(), session, span, work)
            failpoints.reach("replay.passed")
            sink.stage(span, receipts[target.branch], spark)
            sink.finish(span, receipts[target.branch], session)
        return sink.checkpoint.totals - before


class EntrySource(MessageSource):
    """Entries as a source: one part, read by the pass itself."""

    type: ClassVar[str] = "entries"
    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "entries"
    entries: tuple[Entry, ...]
    waiting: frozenset[str] | None = None
    """The tokens of all entries that wait; None: more than were looked at."""

    @override
    def address(self) -> Address:
        return Address(self.type, "replay", None, self.type)

    @override
    def open(self, flow: str) -> EntrySession:
        return EntrySession(self)

    @override
    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        by_id = {entry.id: entry for entry in self.entries}
        wanted = [by_id[name] for name in json.loads(_part_of(piece))]
        rows = [
            {
                "body": entry.body,
                "key": entry.key,
                "headers": _headers(entry.metadata.get("headers")),
                "metadata": encode(dict(entry.metadata)),
                "only": None if entry.stage in _WHOLE else entry.n,
            }
            for entry in wanted
        ]
        yield pa.RecordBatch.from_pylist(rows, _SCHEMA)

    def held(self, span: Span) -> Span:
        """The span, when all its entries are here: an interrupted replay ends first."""
        known = {entry.id for entry in self.entries}
        if all(known.issuperset(json.loads(_part_of(piece))) for piece in span.slices):
            return span
        raise PermanentError(
            "an earlier replay was interrupted while it put older records back: replay without "
            "--since first"
        )


def _headers(found: Any) -> list[dict[str, Any]]:
    known = found if isinstance(found, dict) else {}
    return [{"key": name, "value": str(value).encode()} for name, value in known.items()]


def _part_of(piece: Slice) -> str:
    assert isinstance(piece, PartSlice)  # noqa: S101 - this source plans nothing else
    return piece.part


class EntrySession(SourceSession):
    """Plans the entries that the checkpoint does not name yet.

    A position is the list of the tokens of what is done.
    """

    def __init__(self, source: EntrySource) -> None:
        self._source = source

    @property
    @override
    def identity(self) -> str:
        return self._source.type

    @override
    def start(self) -> Positions:
        return {_PARTITION: ""}

    @override
    def seek(self, where: str) -> Positions:
        return self.start()

    @override
    def ends(self) -> Positions:
        return {_PARTITION: ",".join(map(_token, self._source.entries))}

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        position = str(after.get(_PARTITION, ""))
        done = position.split(",") if position else []
        new = [entry for entry in self._source.entries if _token(entry) not in done]
        if not new:
            return Span((PartSlice(_PARTITION, position, position),))
        noted = self._source.waiting  # what waits no more need not be named for long
        recent = frozenset(done[-REMEMBERED:])
        kept = [token for token in done if noted is None or token in noted or token in recent]
        upto = ",".join([*kept, *map(_token, new)])
        part = json.dumps([entry.id for entry in new])
        return Span((PartSlice(_PARTITION, position, upto, part),))

    @override
    def frame(self, spark: SparkSession, span: Span, columns: frozenset[str]) -> DataFrame:
        raise NotImplementedError("the pass reads entries itself")

    @override
    def release(self, upto: Positions) -> None:
        pass

    @override
    def lag(self, after: Positions) -> Lag:
        return Lag(0, 0.0, self.ends())

    @override
    def close(self) -> None:
        pass


def _token(entry: Entry) -> str:
    """A short stand-in for the id."""
    return hashlib.sha256(entry.id.encode()).hexdigest()[:16]
