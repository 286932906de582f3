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
from dataflow_assets.connectors.postgresql.cdc.loading import Loading, giving_way
from dataflow_assets.connectors.postgresql.cdc.look import Seen, look
from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions, place_of
from dataflow_assets.connectors.postgresql.cdc.position import (
    PARTITION,
    START,
    Lsn,
    Reached,
    SnapshotPart,
    StreamPart,
    dump,
    dump_end,
    dump_part,
    is_end,
    parse,
    stored,
)
from dataflow_assets.connectors.postgresql.cdc.read import read
from dataflow_assets.connectors.postgresql.cdc.slot import Slot
from dataflow_assets.connectors.postgresql.cdc.snapshot import NOW
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
    lasting,
)
from dataflow_assets.errors import DataflowError, PermanentError

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
        self._after: Lsn | None = None
        """Where the last span was planned from."""
        self._idle: tuple[Lsn, Lsn] | None = None
        """A stretch of the log without changes."""
        self._moved = float("-inf")
        self._before_load: Lsn | None = None
        """The end of the log that is read before a snapshot of tables that wait is taken."""
        with (
            giving_way(source, flow),
            explained(source, "opening"),
            lent_to_source(source.dsn()) as link,
        ):
            ((level, block, system, database),) = link.execute(_OPEN)
            if level != "logical":
                raise errors.wrong_level(source, level)
            self._identity = f"{system}.{database}"
            self._loading = Loading(source, flow, block, tables.tables(link, source))

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
            return {PARTITION: dump(Reached(slot.end_of_log(link), self._names))}

    @override
    def ends(self) -> Positions:
        with explained(self._source, "looking for changes"):
            with lent_to_source(self._source.dsn()) as link:
                known, end = slot.find(link, self._source), slot.end_of_log(link)
            if known is None or known.pid is not None or self._has_news(known, end):
                return {PARTITION: dump_end(end)}
            return {PARTITION: dump_end(known.confirmed)}

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
        self._loading.next_turn()
        if waiting := self._waiting(at):
            with explained(self._source, "planning"), lent_to_source(self._source.dsn()) as link:
                return self._load(link, at, waiting, limit)
        if at is not None:
            self._loading.unused()
            if bound is not None and bound.lsn.value <= at.lsn.value:
                self._check_end(at.lsn)
                return Span(())
        with explained(self._source, "planning"), lent_to_source(self._source.dsn()) as link:
            known = self._made(link) if at is None else self._checked(link, at.lsn)
            begin = known.confirmed if at is None else at.lsn
            end = self._end(link, begin)
        upto = end if bound is None or bound.lsn.value > end.value else bound.lsn
        position = at or Reached(begin, self._names)
        return self._follow(position, upto, limit, moves=at is None or until is not None)

    def _load(self, link: TextLink, at: Reached | None, waiting: list[str], limit: Limit) -> Span:
        """All rows of tables that wait, as of one place in the log.

        The changes of the others are read up to that place before, so that all tables go on from
        there; far behind the end of the log, no snapshot is held for that yet.
        """
        snapshot = self._loading.held()
        if at is None:
            self._made(link)
        else:
            tables.publish_more(link, self._source, self._tables_of(waiting))
            self._checked(link, at.lsn, waiting)
            end = self._end(link, at.lsn)
            if snapshot is not None and snapshot.lsn.value < at.lsn.value:
                snapshot = None
            if snapshot is None:
                # Where it was at first: writers may be faster than the log is read.
                first = self._before_load = self._before_load or end
                if first.value - at.lsn.value > _bytes(limit):
                    return self._follow(at, first, limit, moves=True)
        snapshot, self._before_load = snapshot or self._loading.begun(link), None
        if at is not None and at.lsn.value < snapshot.lsn.value:
            return self._follow(at, snapshot.lsn, limit, moves=True)
        reached = Reached(snapshot.lsn, self._names)
        parts = self._loading.parts(snapshot, waiting, limit)
        if not parts:  # partitioned tables without a partition
            return self._stretch(reached, snapshot.lsn, snapshot.lsn)
        return Span.of_parts(dump(reached), parts)

    def _follow(self, at: Reached, end: Lsn, limit: Limit, *, moves: bool) -> Span:
        """The next stretch of the log; nothing where it has no changes and need not move on."""
        begin = self._after = at.lsn
        if begin.value >= end.value:
            return self._stretch(at, begin, begin) if moves else Span(())
        looked = Lsn(min(end.value, begin.value + LOOK_BYTES))
        found = self._seen(begin, looked)
        if found.first is None:
            if looked.value == end.value and not moves and not self._is_long(begin, end):
                return Span(())
            self._moved = time.monotonic()
            return self._stretch(replace(at, lsn=looked), looked, end)
        upto = Lsn(min(end.value, found.first.value + max(1, _bytes(limit))))
        return self._stretch(at, upto, end)

    def _stretch(self, at: Reached, upto: Lsn, end: Lsn) -> Span:
        """A span of one part, which is not read where it is empty; `full` where more is waiting."""
        followed = [name for name in sorted(self._names) if self._follows(at, name)]
        only = None if len(followed) == len(self._names) else tuple(followed)
        part = dump_part(StreamPart(str(at.lsn), str(upto), only))
        reached = Reached(upto, frozenset(followed), at.again & self._names)
        return Span.of_parts(dump(reached), [part], full=upto.value < end.value)

    @property
    def _names(self) -> frozenset[str]:
        return frozenset(table.name for table in self._loading.tables)

    def _tables_of(self, names: Sequence[str]) -> list[tables.Table]:
        return [table for table in self._loading.tables if table.name in names]

    def _waiting(self, at: Reached | None) -> list[str]:
        """Tables whose rows are still to be loaded."""
        if at is None:
            return sorted(self._names) if self._source.loads else []
        return [n for n in sorted(self._names) if n in at.again or not self._follows(at, n)]

    def _follows(self, at: Reached, name: str) -> bool:
        """Whether changes of the table are read from there on."""
        return at.has(name) or not self._source.loads

    def _made(self, link: TextLink) -> Slot:
        """Publication and slot as they are before the first read; made where they are missing.

        The publication comes first: the slot skips what was not published when it was logged.
        """
        source, wanted = self._source, self._loading.tables
        tables.publish(link, source, wanted)
        tables.published(link, source, wanted, begun=False)
        known = slot.find(link, source)
        if known is None and not source.create_slot_if_not_exists:
            raise errors.no_slot(source, begun=False)
        if known is None:
            slot.make(link, source)
            log.info("flow %s: created %s", self._flow, source.title)
            known = slot.find(link, source)
        assert known is not None  # noqa: S101 - it was just made
        return known

    def _checked(self, link: TextLink, at: Lsn, new: Sequence[str] = ()) -> Slot:
        """`new`: tables whose changes need not have been published before."""
        tables.published(link, self._source, self._tables_of(new), begun=False)
        followed = self._tables_of(sorted(self._names.difference(new)))
        tables.published(link, self._source, followed, begun=True)
        return slot.check(self._source, slot.find(link, self._source), at)

    def _end(self, link: TextLink, begin: Lsn) -> Lsn:
        """How far the log can be read, once nobody else reads it."""
        slot.freed(link, self._source)
        end = slot.end_of_log(link)
        slot.check_end(link, self._source, begin, end)
        return end

    def _check_end(self, at: Lsn) -> None:
        with explained(self._source, "planning"), lent_to_source(self._source.dsn()) as link:
            slot.check_end(link, self._source, at, slot.end_of_log(link))

    @override
    def smaller(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        return self._loading.smaller(piece)

    @override
    def renewed(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        return self._loading.renewed(piece, limit)

    @override
    def again(self, positions: Positions, tables: Sequence[str], *, upserts: bool) -> Positions:
        at, names = stored(lasting(positions)), self._names
        wanted = frozenset(".".join(place_of(table)) for table in tables) or names
        if unknown := sorted(wanted - names):
            raise PermanentError(
                f"{self._source.title} reads no table {', '.join(unknown)}; its tables are "
                f"{', '.join(sorted(names))}"
            )
        if at is None:
            return self.start()
        known = names if at.tables is None else at.tables
        if upserts:  # changes before the load come too: deletions among them
            return {PARTITION: dump(Reached(at.lsn, known, at.again | wanted & known))}
        return {PARTITION: dump(Reached(at.lsn, known - wanted, at.again - wanted))}

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
        if one is None or one.lsn.value < other.lsn.value:
            return True
        return is_end(end) and bool(self._waiting(one))

    @override
    def release(self, upto: Positions) -> None:
        """Every branch has it: the server may remove the log before."""
        at = stored(upto)
        if at is None:
            return
        if not self._waiting(at):
            self._loading.over()
        try:
            with explained(self._source, "releasing"), lent_to_source(self._source.dsn()) as link:
                slot.move(link, self._source, at.lsn)
        except DataflowError as error:
            log.warning("flow %s: %s", self._flow, error)

    @override
    def lag(self, after: Positions) -> Lag:
        """Changes are counted up to a thousand, beyond that estimated by the bytes of the log."""
        reached = stored(after)
        rows = self._estimated_rows(reached)
        with explained(self._source, "looking for changes"):
            with lent_to_source(self._source.dsn()) as link:
                end, known = slot.end_of_log(link), slot.find(link, self._source)
                ends = {PARTITION: dump_end(end)}
                if reached is None:
                    if known is None or self._source.loads:
                        held = None if known is None else known.retained
                        return Lag(max(1, rows), 0.0, ends, held=held)
                    reached = Reached(known.confirmed)
                at = reached.lsn
                known = slot.check(self._source, known, at)
            size = max(0, end.value - at.value)
            if known.pid is not None:
                return Lag(rows + size // RECORD_BYTES, 0.0, ends, size, known.retained)
            looked = Lsn(min(end.value, at.value + LOOK_BYTES))
            found = look(self._source, at, looked, _COUNTED) if size else Seen(0)
            if looked.value < end.value:
                found = replace(found, upto=found.upto or looked)
        changes = _estimated(found, at, size)
        return Lag(rows + changes, _age(found), ends, size, known.retained)

    def _estimated_rows(self, at: Reached | None) -> int:
        """Of the tables whose rows are still to be loaded."""
        waiting = self._tables_of(self._waiting(at))
        return sum(leaf.rows for one in waiting for leaf in one.leaves)

    @override
    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        at = stored(after)
        source = self._source
        if at is None:
            return self._first_rows(limit)
        with explained(source, "looking for changes"), lent_to_source(source.dsn()) as link:
            known = slot.check(source, slot.find(link, source), at.lsn)
            end = slot.end_of_log(link)
        if known.pid is not None:
            raise errors.in_use(source, known.pid, known.application)
        return self._first(StreamPart(str(at.lsn), str(end)), limit)

    def _first_rows(self, limit: int) -> Mapping[str, pa.RecordBatch]:
        """Of a flow that has not begun: rows of the first table, as they are now."""
        table = self._loading.tables[0]
        leaf = next((one for one in table.leaves if one.bytes), None)
        if leaf is None or not self._source.loads:
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
            return {PARTITION: dump(Reached(Lsn.parse(at)))}
        except ValueError:
            raise PermanentError(f"lastAckedLSN {at} is not a place in a log") from None

    @override
    def close(self) -> None:
        self._loading.unused()


def _bytes(limit: Limit) -> int:
    """Of the log, for a micro-batch."""
    return min(limit.bytes, limit.records * RECORD_BYTES)


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
