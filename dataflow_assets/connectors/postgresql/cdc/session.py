"""The driver's side: what is made at the first start, and which stretch of the log comes next."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.postgresql.cdc import errors, slot, tables
from dataflow_assets.connectors.postgresql.cdc.errors import explained
from dataflow_assets.connectors.postgresql.cdc.look import Seen, look
from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.position import (
    PARTITION,
    START,
    Lsn,
    SnapshotPart,
    StreamPart,
    dump,
    dump_part,
    parse,
    parse_part,
    stored,
)
from dataflow_assets.connectors.postgresql.cdc.read import read
from dataflow_assets.connectors.postgresql.cdc.slot import Slot
from dataflow_assets.connectors.postgresql.cdc.snapshot import NOW, Snapshot
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.pool import lent_to_source
from dataflow_assets.contracts import (
    Lag,
    Limit,
    PartSlice,
    Position,
    Positions,
    SourceSession,
    Span,
    folded,
)
from dataflow_assets.errors import DataflowError, Outdated, PermanentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

RECORD_BYTES = 128  # of the log, by which a number of records is a stretch of it
LOOK_BYTES = 1024 * 1024 * 1024  # of the log without changes that one look goes through
IDLE_BYTES = 1024 * 1024  # of the log without changes for which the position moves on
_COUNTED = 1_000  # changes up to which they are counted; beyond that they are estimated
_UNIX = 946_684_800  # 2000, in seconds since 1970
_OPEN = """
SELECT current_setting('wal_level'), current_setting('block_size')::int,
       (SELECT system_identifier FROM pg_control_system()),
       (SELECT oid::int8 FROM pg_database WHERE datname = current_database())
"""


class PostgresqlCdcSession(SourceSession):
    """One slot, seen by one flow; its only partition is `wal`."""

    def __init__(self, source: PostgresqlCdcOptions, flow: str) -> None:
        self._source, self._flow = source, flow
        self._snapshot: Snapshot | None = None
        self._renewed: set[str] = set()
        """Tables that a branch reads again from their beginning: another process held their
        snapshot. Each branch begins after a plan of its own."""
        self._after: Lsn | None = None
        """Where the last span was planned from."""
        self._idle: tuple[Lsn, Lsn] | None = None
        """A stretch of the log without changes."""
        self._moved = float("-inf")
        with explained(source, "opening"), lent_to_source(source.dsn()) as link:
            ((level, self._block, system, database),) = link.execute(_OPEN)
            if level != "logical":
                raise errors.wrong_level(source, level)
            self._identity = f"{system}.{database}"
            self._tables = tables.tables(link, source)

    @property
    @override
    def identity(self) -> str:
        return self._identity

    @override
    def start(self) -> Positions:
        return {PARTITION: START}

    @override
    def seek(self, where: str) -> Positions:
        if where == "earliest":
            return self.start()
        if where != "latest":
            raise PermanentError(
                f"{self._source.title} cannot be read from a time: its log knows places only. "
                "Choose earliest, which loads the tables again, or latest"
            )
        with explained(self._source, "opening"), lent_to_source(self._source.dsn()) as link:
            self._made(link)
            return {PARTITION: dump(slot.end_of_log(link))}

    @override
    def ends(self) -> Positions:
        with explained(self._source, "looking for changes"):
            with lent_to_source(self._source.dsn()) as link:
                known, end = slot.find(link, self._source), slot.end_of_log(link)
            if known is None or known.pid is not None or self._has_news(known, end):
                return {PARTITION: dump(end)}
            return {PARTITION: dump(known.confirmed)}

    def _has_news(self, known: Slot, end: Lsn) -> bool:
        """Whether a read would find changes, or long stretches of the log without any."""
        after = known.confirmed
        if self._after is not None and self._after.value > after.value:
            after = self._after
        if self._is_long(after, end):
            return True  # the plan looks: whoever asks here asks for other flows too
        return self._seen(after, end).first is not None

    def _is_long(self, after: Lsn, end: Lsn) -> bool:
        interval = self._source.heartbeat_interval_seconds
        due = bool(interval) and time.monotonic() - self._moved >= interval
        size = end.value - after.value
        return size > LOOK_BYTES or (due and size >= IDLE_BYTES)

    def _seen(self, after: Lsn, end: Lsn) -> Seen:
        """The first change between two places; what is known to have none is not asked again."""
        low, high = self._idle or (after, after)
        begin = high if low.value <= after.value <= high.value else after
        if begin.value >= end.value:
            return Seen(0)
        found = look(self._source, begin, end)
        if found.first is None:
            self._idle = (low if begin is high else after), end
        return found

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        at = stored(after)
        bound = None if until is None else stored(until)
        self._renewed = set()
        if at is not None:
            self._let_go()
            if bound is not None and bound.value <= at.value:
                self._check_end(at)
                return Span(())
        with explained(self._source, "planning"), lent_to_source(self._source.dsn()) as link:
            if at is None and self._source.snapshot_mode == "initial":
                self._made(link)
                return self._load(link, limit)
            known = self._made(link) if at is None else self._checked(link, at)
            slot.freed(link, self._source)
            begin = known.confirmed if at is None else at
            end = slot.end_of_log(link)
            slot.check_end(link, self._source, begin, end)
            first = at is None
        bound = end if bound is None or bound.value > end.value else bound
        return self._follow(begin, bound, limit, moves=first or until is not None)

    def _follow(self, begin: Lsn, end: Lsn, limit: Limit, *, moves: bool) -> Span:
        """The next stretch of the log; nothing where it has no changes and need not move on."""
        self._after = begin
        if begin.value >= end.value:
            return _stretch(begin, begin, begin) if moves else Span(())
        looked = Lsn(min(end.value, begin.value + LOOK_BYTES))
        found = self._seen(begin, looked)
        if found.first is None:
            if looked.value == end.value and not moves and not self._is_long(begin, end):
                return Span(())
            self._moved = time.monotonic()
            return _stretch(looked, looked, end)
        size = min(limit.bytes, limit.records * RECORD_BYTES)
        upto = Lsn(min(end.value, found.first.value + max(1, size)))
        return _stretch(begin, upto, end)

    def _made(self, link: TextLink) -> Slot:
        """Publication and slot as they are before the first read; made where they are missing.

        The publication comes first: the slot skips what was not published when it was logged.
        """
        source = self._source
        tables.publish(link, source, self._tables)
        tables.published(link, source, self._tables, begun=False)
        known = slot.find(link, source)
        if known is None and not source.create_slot_if_not_exists:
            raise errors.no_slot(source, begun=False)
        if known is None:
            slot.make(link, source)
            log.info("flow %s: created %s", self._flow, source.title)
            known = slot.find(link, source)
        assert known is not None  # noqa: S101 - it was just made
        return known

    def _checked(self, link: TextLink, at: Lsn) -> Slot:
        tables.published(link, self._source, self._tables, begun=True)
        return slot.check(self._source, slot.find(link, self._source), at)

    def _check_end(self, at: Lsn) -> None:
        with explained(self._source, "planning"), lent_to_source(self._source.dsn()) as link:
            slot.check_end(link, self._source, at, slot.end_of_log(link))

    def _load(self, link: TextLink, limit: Limit) -> Span:
        """All rows of all tables, as of one place in the log."""
        snapshot = self._held(link)
        parts = snapshot.parts(self._tables, limit, self._block)
        if not parts:  # partitioned tables without a partition
            return _stretch(snapshot.lsn, snapshot.lsn, snapshot.lsn)
        return Span.of_parts(dump(snapshot.lsn), map(dump_part, parts))

    def _held(self, link: TextLink) -> Snapshot:
        if self._snapshot is None or not self._snapshot.alive:
            self._let_go()
            self._snapshot = Snapshot(self._source, self._tables)
            # A partition may have come since they were looked at, before they were locked.
            self._tables = tables.tables(link, self._source)
        return self._snapshot

    def _let_go(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot, self._renewed = None, set()

    @override
    def smaller(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        part = parse_part(piece.part)
        if isinstance(part, SnapshotPart) and not self._holds(part):
            raise self._outdated(part)
        return (piece.part,)

    @override
    def renewed(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        part = parse_part(piece.part)
        if isinstance(part, StreamPart) or self._holds(part):
            return (piece.part,)
        with explained(self._source, "planning"), lent_to_source(self._source.dsn()) as link:
            return tuple(map(dump_part, self._again(part, self._held(link), limit)))

    def _holds(self, part: SnapshotPart) -> bool:
        """A server that was restarted gives the same names again."""
        held = self._snapshot
        return held is not None and (held.name, str(held.lsn)) == (part.snapshot, part.lsn)

    def _outdated(self, part: SnapshotPart) -> Outdated:
        return Outdated(
            f"{self._source.title}: the snapshot of {part.lsn} is gone, because the process that "
            f"held it has ended, and rows of table {part.table} were not read yet. A later "
            "snapshot would repeat rows in a table that is appended to: load the tables again into "
            f"an empty one with {errors.AGAIN}"
        )

    def _again(self, part: SnapshotPart, snapshot: Snapshot, limit: Limit) -> list[SnapshotPart]:
        """A table that was not read to its end is read again from its beginning.

        A row that has moved between the two snapshots may lie in blocks that were read, and the
        log need not have all of it. The changes since the first snapshot are still read, over
        newer rows, and all is right when they are through.
        """
        if part.table in self._renewed:
            return []
        self._renewed.add(part.table)
        table = [one for one in self._tables if one.name == part.table]
        return snapshot.parts(table, limit, self._block)

    @override
    def frame(self, spark: SparkSession, span: Span, columns: frozenset[str]) -> DataFrame:
        raise NotImplementedError("tasks read the log by themselves")

    @override
    def fold(self, positions: Positions) -> Positions:
        return {PARTITION: folded(positions, PARTITION) or START}

    @override
    def behind(self, partition: str, position: Position | None, end: Position) -> bool:
        one, other = parse(position), parse(end)
        if other is None:
            return False
        return one is None or one.value < other.value

    @override
    def release(self, upto: Positions) -> None:
        """Every branch has it: the server may remove the log before."""
        at = stored(upto)
        if at is None:
            return
        try:
            with explained(self._source, "releasing"), lent_to_source(self._source.dsn()) as link:
                slot.move(link, self._source, at)
        except DataflowError as error:
            log.warning("flow %s: %s", self._flow, error)

    @override
    def lag(self, after: Positions) -> Lag:
        """Changes are counted up to a thousand, beyond that estimated by the bytes of the log."""
        at = stored(after)
        with explained(self._source, "looking for changes"):
            with lent_to_source(self._source.dsn()) as link:
                end, known = slot.end_of_log(link), slot.find(link, self._source)
                ends = {PARTITION: dump(end)}
                if at is None:
                    if known is None or self._source.snapshot_mode == "initial":
                        held = None if known is None else known.retained
                        return Lag(max(1, self._estimated_rows), 0.0, ends, held=held)
                    at = known.confirmed
                known = slot.check(self._source, known, at)
            size = max(0, end.value - at.value)
            if known.pid is not None:
                return Lag(size // RECORD_BYTES, 0.0, ends, size, known.retained)
            looked = Lsn(min(end.value, at.value + LOOK_BYTES))
            found = look(self._source, at, looked, _COUNTED) if size else Seen(0)
            if looked.value < end.value:
                found = replace(found, upto=found.upto or looked)
        return Lag(_estimated(found, at, size), _age(found), ends, size, known.retained)

    @property
    def _estimated_rows(self) -> int:
        return sum(leaf.rows for one in self._tables for leaf in one.leaves)

    @override
    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        at = stored(after)
        source = self._source
        if at is None:
            return self._first_rows(limit)
        with explained(source, "looking for changes"), lent_to_source(source.dsn()) as link:
            known, end = slot.check(source, slot.find(link, source), at), slot.end_of_log(link)
        if known.pid is not None:
            raise errors.in_use(source, known.pid, known.application)
        return self._first(StreamPart(str(at), str(end)), limit)

    def _first_rows(self, limit: int) -> Mapping[str, pa.RecordBatch]:
        """Of a flow that has not begun: rows of the first table, as they are now."""
        table = self._tables[0]
        leaf = next((one for one in table.leaves if one.bytes), None)
        if leaf is None or self._source.snapshot_mode != "initial":
            return {}
        return self._first(SnapshotPart(NOW, "", table.name, leaf.oid, 0, None), limit)

    def _first(self, part: StreamPart | SnapshotPart, limit: int) -> Mapping[str, pa.RecordBatch]:
        piece = PartSlice("part-0", None, "", dump_part(part))
        found = read(self._source, piece, self._source.metadata_columns)
        first = next(found)
        return {PARTITION: first.slice(0, limit)} if first.num_rows else {}

    @override
    def adopt(self, document: Mapping[str, Any]) -> Positions:
        at = document.get("lastAckedLSN") or document.get("snapshotLSN")
        if document.get("phase") == "snapshot" or not isinstance(at, str):
            raise PermanentError(
                "the checkpoint of the DataFlow Operator says that its first load was not "
                "finished: start without it, the tables are loaded again"
            )
        try:
            return {PARTITION: dump(Lsn.parse(at))}
        except ValueError:
            raise PermanentError(f"lastAckedLSN {at} is not a place in a log") from None

    @override
    def close(self) -> None:
        self._let_go()


def _stretch(after: Lsn, upto: Lsn, end: Lsn) -> Span:
    """A span of one part, which is not read where it is empty."""
    part = dump_part(StreamPart(str(after), str(upto)))
    return Span.of_parts(dump(upto), [part], full=upto.value < end.value)


def _estimated(found: Seen, at: Lsn, size: int) -> int:
    """How many changes there are in so many bytes of the log behind `at`."""
    if found.upto is None:
        return found.changes
    return max(found.changes, found.changes * size // max(1, found.upto.value - at.value))


def _age(found: Seen) -> float:
    """Seconds since the first change was committed."""
    if found.first is None:
        return 0.0
    committed = found.committed / 1e6 + _UNIX
    return max(0.0, datetime.now(UTC).timestamp() - committed)
