"""What a task reads: the changes of a stretch of the log, or the rows of a part of a snapshot."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from dataflow_assets.connectors.postgresql.cdc import errors, slot, tables
from dataflow_assets.connectors.postgresql.cdc.changes import Changed
from dataflow_assets.connectors.postgresql.cdc.envelope import (
    Records,
    Transaction,
    delivered,
    empty,
    truncation,
)
from dataflow_assets.connectors.postgresql.cdc.errors import explained
from dataflow_assets.connectors.postgresql.cdc.layout import Announcement, Layout, selected
from dataflow_assets.connectors.postgresql.cdc.options import Place, PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.peeked import REFUSED, Peeked, is_short
from dataflow_assets.connectors.postgresql.cdc.position import (
    Lsn,
    SnapshotPart,
    StreamPart,
    parse_part,
)
from dataflow_assets.connectors.postgresql.cdc.reader import HEADER, Reader
from dataflow_assets.connectors.postgresql.cdc.snapshot import rows_of
from dataflow_assets.connectors.postgresql.cdc.walsender import Walsender
from dataflow_assets.connectors.postgresql.errors import Failure
from dataflow_assets.connectors.postgresql.pool import lent_to_source
from dataflow_assets.contracts import PartSlice, Slice
from dataflow_assets.errors import PermanentError
from dataflow_assets.failpoints import reach

BATCH_ROWS = 20_000
BATCH_BYTES = 8 * 1024 * 1024  # of all tables together
PATIENCE = 60.0  # seconds for which a reader waits until another one lets go of the slot
_STEP = 0.02
_BEGIN, _RELATION, _TRUNCATE = map(ord, "BRT")
_BEGUN = struct.Struct(">IIqI")  # where the commit record begins, when it was written, the id
_ROWS = frozenset(map(ord, "IUD"))
_CONFIRMED = (
    "SELECT confirmed_flush_lsn::text, to_jsonb(s)->>'wal_status' FROM pg_replication_slots s "
    "WHERE slot_name = '{}'"
)


def read(
    source: PostgresqlCdcOptions, piece: Slice, metadata: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    """The part's records, at least one batch; ends only when all of them came."""
    assert isinstance(piece, PartSlice)  # noqa: S101 - this source plans nothing else
    part = parse_part(piece.part)
    debezium = source.envelope_format == "debezium"
    found: Iterator[pa.RecordBatch]
    if isinstance(part, SnapshotPart):
        found = (
            delivered(records, metadata, source.primary_key_column, debezium=debezium)
            for records in rows_of(source, part)
        )
    else:
        found = Stream(source, metadata).batches(part)
    made = False
    for batch in found:
        made = True
        yield batch
    if not made:
        yield empty(_first_layout(source), debezium=debezium)


def _first_layout(source: PostgresqlCdcOptions) -> Layout:
    """Of the first table, as it is now."""
    what = "looking at the columns"
    with explained(source, what), lent_to_source(source.dsn()) as link:
        table = tables.table_of(link, source, source.places[0])
        published = tables.published(link, source, [table], begun=True)[table.name]
        return selected(link, source, table.place, table.oid, published.columns)


@dataclass
class Stream:
    """Reads stretches of the log; made once for each part."""

    source: PostgresqlCdcOptions
    metadata: frozenset[str]
    _followed: dict[bytes, Changed] = field(default_factory=dict)
    """By the id of a table, as messages have it; tables that nobody asked for are not in it."""
    _announced_last: dict[bytes, Announcement] = field(default_factory=dict)
    _transaction: Transaction = Transaction("0/0")
    _tables: tuple[str, ...] | None = None
    """Whose changes are read; None: those of all tables of the manifest."""

    def batches(self, part: StreamPart) -> Iterator[pa.RecordBatch]:
        """The records of the transactions that commit inside the part, in their order."""
        after, upto = Lsn.parse(part.after), Lsn.parse(part.upto)
        if after.value >= upto.value:
            return
        with (
            explained(self.source, "reading changes"),
            closing(begun(self.source, after, upto)) as sender,
        ):
            self._tables = part.tables
            reach("postgresql-cdc.read")
            waiting_rows = waiting_bytes = 0
            for kind, data in sender.messages(upto):
                if kind in _ROWS:
                    changed = self._followed.get(bytes(data[HEADER + 1 : HEADER + 5]))
                    if changed is None:
                        continue
                    changed.add(data, self._transaction)
                    waiting_rows += 1
                    waiting_bytes += len(data)
                    if waiting_rows >= BATCH_ROWS or waiting_bytes >= BATCH_BYTES:
                        yield from self._flushed()
                        waiting_rows = waiting_bytes = 0
                        reach("postgresql-cdc.read-batch")
                elif kind == _BEGIN:
                    self._transaction = _transaction(data)
                elif kind == _RELATION:
                    yield from self._announced(data)
                elif kind == _TRUNCATE:
                    yield from self._emptied(data)
            yield from self._flushed()

    def _flushed(self) -> Iterator[pa.RecordBatch]:
        """What waits, table by table: the order inside each table is kept."""
        for changed in self._followed.values():
            if (records := changed.take()) is not None:
                yield self._delivered(records)

    def _delivered(self, records: Records) -> pa.RecordBatch:
        debezium = self.source.envelope_format == "debezium"
        column = self.source.primary_key_column
        return delivered(records, self.metadata, column, debezium=debezium)

    def _announced(self, data: bytes | memoryview) -> Iterator[pa.RecordBatch]:
        """A table's columns from now on: what came before is decoded by the old ones.

        The server repeats them when its cache is emptied, at another place in each read. A
        repetition changes nothing, so that rows of several tables come in the same order again.
        """
        found = Announcement.parse(data)
        key = found.oid.to_bytes(4, "big")
        if not self._reads(found.place):
            if key in self._followed:  # it was renamed: from now on it is another table
                yield from self._flushed()
                del self._followed[key], self._announced_last[key]
            return
        if self._announced_last.get(key) == found:
            return
        yield from self._flushed()
        with lent_to_source(self.source.dsn()) as link:
            layout = found.layout(link, self.source)
        self._announced_last[key] = found
        debezium = self.source.envelope_format == "debezium"
        self._followed[key] = Changed(layout, self._followed.get(key), with_old=debezium)

    def _reads(self, place: Place) -> bool:
        if self._tables is not None and ".".join(place) not in self._tables:
            return False
        return place in self.source.places

    def _emptied(self, data: bytes | memoryview) -> Iterator[pa.RecordBatch]:
        rest = bytes(data[HEADER + 6 :])
        for at in range(0, len(rest), 4):
            changed = self._followed.get(rest[at : at + 4])
            if changed is None:
                continue
            yield from self._flushed()
            number = changed.count(self._transaction)
            if self.source.envelope_format == "debezium":
                yield truncation(changed.layout, self._transaction, number, self.metadata)
            elif self.source.on_truncate == "fail":
                raise self._truncated(changed.layout)

    def _truncated(self, layout: Layout) -> PermanentError:
        return PermanentError(
            f"table {layout.name} was emptied by TRUNCATE, in the transaction that commits at "
            f"{self._transaction.lsn}: a target of rows cannot follow that. Two ways out: load the "
            f"tables again ({errors.AGAIN}); or set onTruncate: skip, and when the flow has got "
            "past it delete the rows that the table no longer has from the target"
        )


def begun(source: PostgresqlCdcOptions, after: Lsn, upto: Lsn) -> Reader:
    """A reader of the changes between two places, by the way that takes less, already started.

    Args:
        source: with its secrets in place.
        after: where the transactions begin to be read.
        upto: where they end.

    Raises:
        PermanentError, TransientError, Failure as `begin`.
    """
    with lent_to_source(source.dsn()) as link:
        short = is_short(link, source.slot, after, upto)
    if short:
        try:
            return _started(source, Peeked(source.dsn(), upto), after)
        except Failure as failure:
            if failure.sqlstate not in REFUSED:
                raise
    return _started(source, Walsender(source.dsn()), after)


def _started(source: PostgresqlCdcOptions, sender: Reader, after: Lsn) -> Reader:
    try:
        begin(source, sender, after)
    except BaseException:
        sender.close()
        raise
    return sender


def begin(
    source: PostgresqlCdcOptions, sender: Reader, after: Lsn, patience: float = PATIENCE
) -> None:
    """Starts the stream behind `after`, as soon as nobody else reads the slot.

    Args:
        source: with its secrets in place.
        sender: not started yet.
        after: where the transactions begin to be read.
        patience: seconds for which it waits until the slot is free.

    Raises:
        PermanentError: the slot has let go of what lies behind `after`: the server would begin
        later without a word.
        TransientError: somebody else goes on reading it.
    """
    deadline = time.monotonic() + patience
    while True:
        rows = sender.execute(_CONFIRMED.format(source.slot))
        if not rows:
            raise errors.no_slot(source, begun=True)
        ((confirmed, status),) = rows
        if confirmed is None or status == "lost":
            raise errors.lost(source, "")
        if not sender.holds_slot and confirmed != str(after):
            raise errors.moved(source, confirmed, after)
        try:
            sender.start(source.slot, source.publication, after)
        except Failure as failure:
            if failure.sqlstate != errors.IN_USE or time.monotonic() >= deadline:
                raise
            time.sleep(_STEP)
        else:
            break
    with lent_to_source(source.dsn()) as link:
        found = slot.find(link, source)
    if found is not None and found.confirmed.value > after.value and not sender.holds_slot:
        raise errors.moved(source, found.confirmed, after)
    slot.check(source, found, after)


def _transaction(data: bytes | memoryview) -> Transaction:
    high, low, committed, xid = _BEGUN.unpack_from(data, HEADER + 1)
    return Transaction(f"{high:X}/{low:X}", xid, committed)
