"""The rows that are loaded before changes are read: which snapshot, and in which parts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from dataflow_assets.connectors.postgresql.cdc import errors, tables
from dataflow_assets.connectors.postgresql.cdc.errors import explain_errors
from dataflow_assets.connectors.postgresql.cdc.held_snapshots import HELD, Key
from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.position import (
    Keys,
    Lsn,
    Reached,
    SnapshotPart,
    StreamPart,
    dump,
    dump_part,
    parse,
    parse_part,
)
from dataflow_assets.connectors.postgresql.cdc.publication_watch import PublicationWatch
from dataflow_assets.connectors.postgresql.cdc.snapshot import MOST_PARTS, Snapshot, pieces
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.contracts import Limit, PartSlice
from dataflow_assets.errors import Outdated

RECORDED_BYTES = 500_000  # of the parts of a load, which a sink records all at once
PART_BYTES = 200  # of a part, beside the position that it ends in
LOCKED = frozenset({"55P03", "57014"})  # lock_timeout, and statement_timeout where it is shorter


class Loading:
    """A session's memory of loads. The snapshot itself outlives the session."""

    def __init__(
        self,
        watch: PublicationWatch,
        flow: str,
        block: int,
        found: list[tables.CdcTable],
        keys: Keys,
    ) -> None:
        """Loads nothing yet.

        Args:
            watch: what the session has seen of the publication of its source.
            flow: whose snapshot it is.
            block: the bytes of a block of the server.
            found: the tables of the manifest.
            keys: the primary keys of those whose log does not name them.
        """
        self._watch, self._source, self._block = watch, watch.source, block
        self._key = _key(self._source, flow)
        self._used = False
        self.is_owed = False
        """A branch reads the log up to the snapshot, and has its rows to load from then on. Another
        one, which has them, may be the lowest meanwhile."""
        self._renewed: set[str] = set()
        """Tables that a branch reads again from their beginning: another process held their
        snapshot. Each branch begins after a plan of its own."""
        self.tables, self.keys = found, keys

    @property
    def names(self) -> frozenset[str]:
        return frozenset(table.name for table in self.tables)

    def tables_of(self, names: Collection[str]) -> list[tables.CdcTable]:
        return [table for table in self.tables if table.name in names]

    def position_at(self, lsn: Lsn) -> Reached:
        """All tables are followed from a place on, where they were as they are known."""
        return Reached(lsn, self.names, keys=self.keys, marks=self._watch.marks(self.names))

    def waiting(self, at: Reached | None) -> list[str]:
        """Tables whose rows are still to be loaded, for a branch that has come so far."""
        if at is None:
            return sorted(self.names) if self._source.loads else []
        return [n for n in sorted(self.names) if n in at.again or not self.follows(at, n)]

    def follows(self, at: Reached, name: str) -> bool:
        """Returns whether changes of the table are read from there on."""
        return at.has(name) or (not self._source.loads and name not in at.again)

    def next_turn(self) -> None:
        """Another branch may have its turn now."""
        self._renewed = set()

    def held_snapshot(self) -> Snapshot | None:
        """The snapshot of an earlier plan, or of an earlier attempt in this process."""
        held = HELD.get(self._key)
        self._used = self._used or held is not None
        return held

    def begin(self) -> Snapshot:
        snapshot = Snapshot(self._source, self.tables)
        HELD.put(self._key, snapshot)
        self._used, self._renewed = True, set()
        # A partition may have come since they were looked at, before they were locked.
        self.tables, self.keys = snapshot.tables_and_keys(self._source)
        return snapshot

    def let_go(self) -> None:
        """Nobody needs a snapshot right now: it is let go unless somebody does soon."""
        if self._used:
            HELD.start_expiry(self._key)

    @property
    def holds(self) -> bool:
        """Returns whether tables are locked for a snapshot that this session has used."""
        return self._used

    def over(self) -> None:
        """Every branch has what was loaded, as far as nobody is on the way to it."""
        if self._used and not self.is_owed:
            HELD.let_go(self._key)
            self._used = False

    def parts(self, snapshot: Snapshot, names: Collection[str], limit: Limit) -> list[str]:
        """The rows of these tables, in parts as a sink records them."""
        each = len(dump(self.position_at(snapshot.lsn))) + PART_BYTES
        most = max(1, min(MOST_PARTS, RECORDED_BYTES // each))
        parts = snapshot.parts(self.tables_of(names), limit, self._block, most)
        return [dump_part(part) for part in parts]

    def smaller(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        """Implements `ReplansParts.smaller`: of a snapshot that is gone nothing can be read."""
        part = parse_part(piece.part)
        if isinstance(part, StreamPart):
            kept = part.within(self.names)
            return (piece.part if kept == part else dump_part(kept),)
        if not self._holds(part):
            raise self._outdated_snapshot(part)
        return tuple(dump_part(one) for one in pieces(part, self.tables, limit, self._block))

    def upto(self, piece: PartSlice) -> str:
        """Implements `RenewsParts.upto`: changes of tables that the manifest lacks are passed over.

        So such a table is to be loaded when it comes back.
        """
        part, planned = parse_part(piece.part), parse(piece.upto)
        if planned is None or not isinstance(part, StreamPart):
            return piece.upto
        kept = planned.within(self.names)
        return piece.upto if kept == planned else dump(kept)

    def renew(self, piece: PartSlice, limit: Limit) -> Sequence[str]:
        """Implements `RenewsParts.renew`: a table with parts left is read again, as it is later.

        A row that has moved between the two snapshots may lie in blocks that were read, and the
        log need not have all of it. The changes since the first snapshot are still read, over
        newer rows, and all is right when they are through.
        """
        part = parse_part(piece.part)
        if isinstance(part, StreamPart) or self._holds(part):
            return self.smaller(piece, limit)
        with explain_errors(self._source, "planning"):
            snapshot = self.held_snapshot() or self.begin()
        if part.table in self._renewed:
            return ()
        self._renewed.add(part.table)
        return tuple(self.parts(snapshot, {part.table}, limit))

    def _holds(self, part: SnapshotPart) -> bool:
        """A server that was restarted gives the same names again."""
        held = self.held_snapshot()
        return held is not None and (held.name, str(held.lsn)) == (part.snapshot, part.lsn)

    def _outdated_snapshot(self, part: SnapshotPart) -> Outdated:
        return Outdated(
            f"{self._source.title}: the snapshot of {part.lsn} is gone (the process that held it "
            "has ended, or its connection, or it gave way to a statement that waited for its "
            f"locks), and rows of table {part.table} were not read yet. A later snapshot would "
            "repeat rows in a table that is appended to: load the tables again into an empty one "
            f"with {errors.AGAIN}"
        )


@contextmanager
def giving_way(source: PostgresqlCdcOptions, flow: str) -> Iterator[None]:
    """Lets go of the flow's snapshot where its tables are locked by somebody who waits for it.

    Whoever alters a table waits for the snapshot's locks, and whoever looks at the table behind
    that statement waits for it: the load begins again once the statement is through. Other errors
    leave the snapshot alone, with which parts that are left are read.
    """
    try:
        yield
    except PostgresqlFailure as failure:
        if failure.sqlstate in LOCKED:
            HELD.let_go(_key(source, flow))
        raise


def _key(source: PostgresqlCdcOptions, flow: str) -> Key:
    """Without the password, which may be another one in the next attempt."""
    return (flow, *source.servers(), source.slot, *source.tables)
