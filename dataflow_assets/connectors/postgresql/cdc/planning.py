"""Planning of the next span: a stretch of the log, or rows of tables that are loaded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dataflow_assets.connectors.postgresql.cdc import errors, idle_log, publication, slot
from dataflow_assets.connectors.postgresql.cdc.errors import explain_errors
from dataflow_assets.connectors.postgresql.cdc.idle_log import IdleLog
from dataflow_assets.connectors.postgresql.cdc.loading import LOCKED, Loading, giving_way
from dataflow_assets.connectors.postgresql.cdc.position import (
    Lsn,
    Reached,
    StreamPart,
    dump,
    dump_part,
    stored_position,
)
from dataflow_assets.connectors.postgresql.cdc.primary_keys import SeenKeys
from dataflow_assets.connectors.postgresql.cdc.publication_watch import PublicationWatch
from dataflow_assets.connectors.postgresql.cdc.slot import Slot
from dataflow_assets.connectors.postgresql.cdc.snapshot import check_readable
from dataflow_assets.connectors.postgresql.client import TextLink, quote
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.pool import lent_to_source
from dataflow_assets.contracts import PARTS, Limit, Positions, Span
from dataflow_assets.errors import PermanentError

log = logging.getLogger(__name__)

RECORD_BYTES = 128  # of the log, by which a number of records is a stretch of it


@dataclass(frozen=True)
class _CdcAhead:
    """Log that is to be read."""

    at: Reached
    end: Lsn
    moves: bool = True
    """The position moves on where there are no changes, too."""


class Planning:
    """Plans the spans of one session."""

    def __init__(
        self,
        watch: PublicationWatch,
        flow: str,
        loading: Loading,
        idle: IdleLog,
        unknown: str,
    ) -> None:
        """Plans nothing yet.

        Args:
            watch: what the session has seen of the publication of its source.
            flow: for the log of the run.
            loading: which tables there are, and what of them is loaded.
            idle: what the session knows of log without changes.
            unknown: what is wrong with the columns that the manifest chooses; empty: nothing.
        """
        self._source, self._flow = watch.source, flow
        self._unknown = unknown
        self._loading, self._idle, self._watch = loading, idle, watch
        self._keys = SeenKeys()
        self._generated = set[str]()
        """Tables whose generated columns were looked at."""
        self._before_load: Lsn | None = None
        """The end of the log that is read before a snapshot of tables that wait is taken."""

    def plan(self, after: Positions, limit: Limit, until: Positions | None) -> Span:
        at = stored_position(after)
        self._loading.next_turn()
        if at is not None and self._unknown:
            log.warning("flow %s: %s", self._flow, self._unknown)
            self._unknown = ""
        waiting = self._loading.waiting(at)
        if at is not None and not waiting:
            self._loading.let_go()
        with explain_errors(self._source, "planning"):
            with (
                giving_way(self._source, self._flow),
                lent_to_source(self._source.dsn()) as link,
            ):
                if waiting:
                    ahead = self._load(link, at, waiting, limit)
                else:
                    ahead = self._ahead(link, at, until)
            return ahead if isinstance(ahead, Span) else self._follow(ahead, limit)

    def look_at_keys(self, link: TextLink) -> None:
        """Asks for the primary keys that the log does not name, before the end of the log."""
        self._keys.look(link, self._loading.tables)

    def check_columns(self) -> None:
        """Raises PermanentError where the manifest chooses columns that no table has."""
        if self._unknown:
            raise PermanentError(f"{self._source.title}: {self._unknown}")

    def _warn_of_generated(self, link: TextLink, waiting: list[str]) -> None:
        loaded = [
            table for table in self._loading.tables_of(waiting) if table.name not in self._generated
        ]
        try:
            published = publication.as_published(link, self._source, loaded)
        except PostgresqlFailure as failure:
            if failure.sqlstate in LOCKED:
                return  # behind who waits for the locks of this load, which need not end for that
            raise
        self._generated |= {table.name for table in loaded}
        if left_out := publication.left_out(link, loaded, published):
            log.warning(
                "flow %s: generated columns that the publication does not have are left out: %s. "
                "PostgreSQL 18 publishes stored ones, before the tables are loaded, by: ALTER "
                "PUBLICATION %s SET (publish_generated_columns = stored)",
                self._flow,
                left_out,
                quote(self._source.publication),
            )

    def _warn_of_keys(self, at: Reached) -> None:
        for name in self._keys.changed_tables(at.keys):
            log.warning(
                "flow %s: the primary key of table %s has become other columns: updates that were "
                "not read by then are read as a deletion and an insert each",
                self._flow,
                name,
            )

    def make_slot(self, link: TextLink) -> Slot:
        """Publication and slot for a flow that begins at a place of the log; made where missing.

        What the slot keeps must have been published: a slot that is older than its publication is
        refused.
        """
        source = self._source
        if not publication.is_published(link, source) and slot.find(link, source) is not None:
            raise errors.no_publication(source)
        return self._make(link)

    def _make(self, link: TextLink) -> Slot:
        """The publication comes first: the slot skips what was not published when it was logged."""
        self.check_columns()
        source, tables = self._source, self._loading.tables
        publication.publish(link, source, tables)
        publication.published_tables(link, source, tables, started=False)
        state = slot.find(link, source)
        if state is None and not source.create_slot_if_not_exists:
            raise errors.no_slot(source, started=False)
        if state is None:
            slot.make(link, source)
            log.info("flow %s: created %s", self._flow, source.title)
            state = slot.find(link, source)
        assert state is not None  # noqa: S101 - it was just made
        self._watch.look(link)
        return state

    def _make_for_load(self, link: TextLink) -> None:
        """Publication and slot, once nothing is in the way of the load that comes next."""
        makes = self._source.create_slot_if_not_exists
        if makes and slot.find(link, self._source) is None:
            slot.check_room(link, self._source)
            check_readable(self._source, self._loading.tables)
        self._make(link)

    def _ahead(
        self, link: TextLink, at: Reached | None, until: Positions | None
    ) -> Span | _CdcAhead:
        """The log up to its end, or to where the run ends."""
        bound = None if until is None else stored_position(until)
        state = self.make_slot(link) if at is None else self._check(link, at)
        if at is not None and bound is not None and bound.lsn.value <= at.lsn.value:
            slot.check_end(link, self._source, at.lsn, slot.end_of_log(link))
            return Span(())
        self.look_at_keys(link)
        begin = at or Reached(state.confirmed, self._loading.names)
        end = self._end(link, begin.lsn)
        upto = end if bound is None or bound.lsn.value > end.value else bound.lsn
        return _CdcAhead(begin, upto, moves=at is None or until is not None)

    def _load(
        self, link: TextLink, at: Reached | None, waiting: list[str], limit: Limit
    ) -> Span | _CdcAhead:
        """All rows of tables that wait, as of one place in the log.

        The changes of the others are read up to that place before, so that all tables go on from
        there; far behind the end of the log, no snapshot is held for that yet.
        """
        snapshot = self._loading.held_snapshot()
        self.look_at_keys(link)
        if at is None:
            self._make_for_load(link)
        else:
            publication.publish_more(link, self._source, self._loading.tables_of(waiting))
            self._check(link, at, waiting)
            end = self._end(link, at.lsn)
            if snapshot is not None and snapshot.lsn.value < at.lsn.value:
                snapshot = None
            if snapshot is None:
                # Where it was at first: writers may be faster than the log is read.
                first = self._before_load = self._before_load or end
                if first.value - at.lsn.value > _bytes(limit):
                    return _CdcAhead(at, first)
        snapshot, self._before_load = snapshot or self._loading.begin(), None
        self._loading.is_owed = at is not None and at.lsn.value < snapshot.lsn.value
        if at is not None and self._loading.is_owed:
            return _CdcAhead(at, snapshot.lsn)
        self._warn_of_generated(link, waiting)
        reached = self._loading.position_at(snapshot.lsn)
        parts = self._loading.parts(snapshot, waiting, limit)
        if not parts:  # partitioned tables without a partition
            return self._stretch(reached, snapshot.lsn, snapshot.lsn)
        return Span.of_parts(dump(reached), parts)

    def _follow(self, ahead: _CdcAhead, limit: Limit) -> Span:
        """The next stretch of the log; nothing where it has no changes and need not move on."""
        at, end, moves = ahead.at, ahead.end, ahead.moves
        begin = at.lsn
        self._idle.note_plan(begin)
        if begin.value >= end.value:
            return self._stretch(at, begin, begin) if moves else Span(())
        moves = moves or self._idle.is_long(begin, end)
        if self._idle.rests and not moves:
            return Span(())
        looked = Lsn(min(end.value, begin.value + idle_log.LOOK_BYTES))
        seen = self._idle.first_change(begin, looked)
        if seen.first is None:
            if looked.value == end.value and not moves:
                return Span(())
            self._idle.note_move()
            return self._stretch(replace(at, lsn=looked), looked, end)
        size = max(1, _bytes(limit))
        bounds = self._idle.bounds(begin, seen.first, size, stretches(limit), end)
        return self._stretches(at, bounds, end)

    def _stretch(self, at: Reached, upto: Lsn, end: Lsn) -> Span:
        """A span of one part, which is not read where it is empty."""
        return self._stretches(at, [upto], end)

    def _stretches(self, at: Reached, bounds: Sequence[Lsn], end: Lsn) -> Span:
        """A span of parts that follow one another; `full` where more is waiting.

        A part names its tables, be they all: when a part that a sink has recorded is read, the
        manifest may have others, whose rows are still to be loaded.
        """
        names = self._loading.names
        followed = tuple(name for name in sorted(names) if self._loading.follows(at, name))
        places = [str(at.lsn), *map(str, bounds)]
        at = replace(at, tables=frozenset(followed)).within(names)
        self._warn_of_keys(at)
        parts = [dump_part(StreamPart(*two, followed, at.keys)) for two in pairwise(places)]
        keys = self._keys.after(bounds[-1], at.keys)
        marks = self._watch.marks(followed, at.marks)
        reached = replace(at, lsn=bounds[-1], keys=keys, marks=marks)
        return Span.of_parts(dump(reached), parts, full=bounds[-1].value < end.value)

    def _check(self, link: TextLink, at: Reached, new: Sequence[str] = ()) -> Slot:
        """`new`: tables whose changes need not have been published before."""
        source, loading = self._source, self._loading
        self._watch.look(link)
        if new:
            self._watch.check(link, loading.tables_of(new), at, started=False)
        followed = loading.tables_of(sorted(loading.names.difference(new)))
        self._watch.check(link, followed, at)
        return slot.check(source, slot.find(link, source), at.lsn)

    def _end(self, link: TextLink, begin: Lsn) -> Lsn:
        slot.wait_for_readers(link, self._source)
        end = slot.end_of_log(link)
        slot.check_end(link, self._source, begin, end)
        self._idle.of(slot.server(link))
        return end


def _bytes(limit: Limit) -> int:
    return min(limit.bytes, limit.records * RECORD_BYTES)


def stretches(limit: Limit) -> int:
    """Returns how many slices that follow one another may be one span, each of this size.

    `PARTS`, and for a flow that allows less than the default as many as it has room for: all of
    them together hold no more than it allows.
    """
    most, default = limit.declared or limit, Limit()
    if most.records >= default.records and most.bytes >= default.bytes:
        return PARTS
    return max(1, min(PARTS, most.records // limit.records, most.bytes // limit.bytes))
