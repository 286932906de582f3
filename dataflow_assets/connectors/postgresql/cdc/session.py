"""The driver's side: which stretch of the log comes next, and what the server is asked for it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.postgresql.cdc import errors, operator_checkpoint, slot, tables
from dataflow_assets.connectors.postgresql.cdc.errors import explain_errors
from dataflow_assets.connectors.postgresql.cdc.idle_log import IdleLog
from dataflow_assets.connectors.postgresql.cdc.lag import lag
from dataflow_assets.connectors.postgresql.cdc.loading import Loading, giving_way
from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions, place_of
from dataflow_assets.connectors.postgresql.cdc.peek import first_changes, first_rows
from dataflow_assets.connectors.postgresql.cdc.planning import Planning
from dataflow_assets.connectors.postgresql.cdc.position import (
    PARTITION,
    START,
    SnapshotPart,
    dump,
    dump_end,
    is_end,
    parse,
    parse_part,
    stored_position,
)
from dataflow_assets.connectors.postgresql.cdc.primary_keys import keys_of
from dataflow_assets.connectors.postgresql.cdc.publication_watch import PublicationWatch
from dataflow_assets.connectors.postgresql.cdc.tables import CdcTable
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
    lasting,
)
from dataflow_assets.contracts.capabilities import (
    AdoptsCheckpoints,
    HoldsLog,
    ReloadsTables,
    RenewsParts,
)
from dataflow_assets.contracts.looking import Peeks
from dataflow_assets.errors import DataflowError, PermanentError
from dataflow_assets.errors.likely_names import did_you_mean

log = logging.getLogger(__name__)

_OPEN = """
SELECT current_setting('wal_level'), current_setting('block_size')::int,
       (SELECT system_identifier FROM pg_control_system()),
       (SELECT oid::int8 FROM pg_database WHERE datname = current_database()),
       pg_is_in_recovery()
"""


class PostgresqlCdcSession(
    SourceSession, AdoptsCheckpoints, HoldsLog, Peeks, ReloadsTables, RenewsParts
):
    """One slot, seen by one flow; its only partition is `wal`."""

    def __init__(self, source: PostgresqlCdcOptions, flow: str) -> None:
        self._source, self._flow = source, flow
        source.check_slot()
        with (
            explain_errors(source, "opening"),
            giving_way(source, flow),
            lent_to_source(source.dsn()) as link,
        ):
            ((level, block, system, database, standby),) = link.execute(_OPEN)
            if standby:
                raise errors.on_standby(source)
            if level != "logical":
                raise errors.wrong_level(source, level)
            self._identity = f"{system}.{database}"
            followed = tables.tables(link, source)
            unknown = unknown_columns(link, source, followed)
            keys = keys_of(link, followed)
            self._watch = PublicationWatch(source)
            self._loading = Loading(self._watch, flow, block, followed, keys)
        self._idle = IdleLog(source)
        self._planning = Planning(self._watch, flow, self._loading, self._idle, unknown)

    @property
    @override
    def identity(self) -> str:
        return self._identity

    @override
    def start(self, where: str | None = None) -> Positions:
        if where in (None, "earliest"):
            return {PARTITION: START}
        if where != "latest":
            raise PermanentError(
                f"{self._source.title} cannot be read from a time: its log knows places only. "
                "Choose earliest, which loads the tables again, or latest"
            )
        with explain_errors(self._source, "opening"), lent_to_source(self._source.dsn()) as link:
            self._planning.make_slot(link)
            return {PARTITION: dump(self._loading.position_at(slot.end_of_log(link)))}

    @override
    def end(self) -> Positions:
        with explain_errors(self._source, "looking for changes"):
            with lent_to_source(self._source.dsn()) as link:
                self._watch.look(link)
                self._planning.look_at_keys(link)
                state, end = slot.find(link, self._source), slot.end_of_log(link)
                self._idle.of(slot.server(link))
            if state is None or state.pid is not None or self._idle.has_news(state.confirmed, end):
                return {PARTITION: dump_end(end)}
            return {PARTITION: dump_end(state.confirmed)}

    @override
    def plan(self, after: Positions, limit: Limit, until: Positions | None = None) -> Span:
        return self._planning.plan(after, limit, until)

    @override
    def smaller(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        return self._loading.smaller(piece, limit)

    @override
    def renew(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        return self._loading.renew(piece, limit)

    @override
    def upto(self, piece: PartSlice) -> str:
        return self._loading.upto(piece)

    @override
    def again(self, positions: Positions, tables: Sequence[str], *, upserts: bool) -> Positions:
        at, names = stored_position(lasting(positions)), self._loading.names
        chosen = frozenset(".".join(place_of(table)) for table in tables) or names
        if unknown := sorted(chosen - names):
            raise PermanentError(
                f"{self._source.title} reads no table {', '.join(unknown)}; its tables are "
                f"{', '.join(sorted(names))}"
            )
        if at is None:
            return self.start()
        followed = names if at.tables is None else at.tables
        if upserts:  # changes before the load come too: deletions among them
            position = replace(at, tables=followed, again=at.again | chosen & followed)
        else:
            position = replace(at, tables=followed - chosen, again=at.again | chosen)
        return {PARTITION: dump(position)}

    @override
    def is_load(self, piece: PartSlice) -> bool:
        return isinstance(parse_part(piece.part), SnapshotPart)

    @override
    def fold(self, positions: Positions) -> Positions:
        """A table that the manifest lacks by now is to be loaded when it comes back.

        Its changes were passed over where a stretch was read that was recorded before.
        """
        at = stored_position(positions)
        return {PARTITION: dump(at if at is None else at.within(self._loading.names))}

    @override
    def lags(self, partition: str, position: Position | None, end: Position) -> bool:
        one, other = parse(position), parse(end)
        if other is None:
            return False
        if one is None or one.lsn.value < other.lsn.value:
            return True
        return is_end(end) and (bool(self._loading.waiting(one)) or self._watch.differs(one))

    @property
    @override
    def holds(self) -> bool:
        return self._loading.holds

    @override
    def acknowledge(self, upto: Positions) -> None:
        """Every branch has it: the server may remove the log before."""
        at = stored_position(upto)
        if at is None:
            return
        if not self._loading.waiting(at):
            self._loading.over()
        try:
            with (
                explain_errors(self._source, "releasing"),
                lent_to_source(self._source.dsn()) as link,
            ):
                slot.move(link, self._source, at.lsn)
        except DataflowError as error:
            log.warning("flow %s: %s", self._flow, error)

    @override
    def lag(self, after: Positions) -> Lag:
        reached = stored_position(
            lasting(after)
        )  # what is read of an unfinished span counts when all is
        waiting = self._loading.tables_of(self._loading.waiting(reached))
        rows = sum(leaf.rows for table in waiting for leaf in table.leaves)
        return lag(self._source, self._idle, self._watch, reached, rows)

    @override
    def peek(self, after: Positions, limit: int) -> Mapping[str, pa.RecordBatch]:
        at = stored_position(after)
        if at is None:
            return first_rows(self._source, self._loading.tables, limit)
        return first_changes(self._source, at.lsn, limit)

    @override
    def adopt(self, document: Mapping[str, Any]) -> Positions:
        self._planning.check_columns()
        position = operator_checkpoint.position_of(document)
        what = "looking at the slot"
        with explain_errors(self._source, what), lent_to_source(self._source.dsn()) as link:
            state = slot.find(link, self._source)
        if state is None:
            raise errors.no_slot(self._source, started=True)
        if state.confirmed.value > position.lsn.value:
            lsn = operator_checkpoint.lsn_text(document)
            warning = errors.passed_over(self._source, state.confirmed, lsn)
            log.warning("flow %s: %s", self._flow, warning)
            position = replace(position, lsn=state.confirmed)
        return {PARTITION: dump(position)}

    @override
    def close(self) -> None:
        self._loading.let_go()


_NAMES = """
SELECT DISTINCT attname::text FROM pg_attribute
WHERE attrelid = ANY ($1::text[]::oid[]) AND attnum > 0 AND NOT attisdropped ORDER BY 1
"""


def unknown_columns(link: TextLink, source: PostgresqlCdcOptions, found: Sequence[CdcTable]) -> str:
    """Returns what is wrong with `includeColumns` and `excludeColumns`; empty where nothing is.

    A misspelt name of a column that is to be left out would copy the column without a word.

    Args:
        link: to the server.
        source: whose manifest chooses columns.
        found: all tables of the manifest; a name may be that of a column of any of them.
    """
    chosen = {"includeColumns": source.include_columns, "excludeColumns": source.exclude_columns}
    if not any(chosen.values()):
        return ""
    names = [name for (name,) in link.execute(_NAMES, [str(table.oid) for table in found])]
    return misspelt_columns(chosen, names)


def misspelt_columns(chosen: dict[str, tuple[str, ...]], names: Sequence[str]) -> str:
    """Lists by option the names of no column, each with the name that is probably right.

    Args:
        chosen: the names that each option lists.
        names: of all columns, whose case does not count.
    """
    folded = {name.casefold() for name in names}
    return "; ".join(
        f"{option} names {name}, which no table of the flow has as a column"
        f"{did_you_mean(name, names)}"
        for option, listed in chosen.items()
        for name in listed
        if name.casefold() not in folded
    )
