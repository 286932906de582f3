"""Reading inside a task: changes of a stretch of the log, or rows of a part of a snapshot."""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from dataflow_assets.connectors.postgresql.cdc import errors, publication, tables
from dataflow_assets.connectors.postgresql.cdc.changes import CdcChanged
from dataflow_assets.connectors.postgresql.cdc.envelope import (
    CdcTransaction,
    Records,
    delivery,
    empty,
    truncation,
)
from dataflow_assets.connectors.postgresql.cdc.errors import explain_errors
from dataflow_assets.connectors.postgresql.cdc.layout import Announcement, CdcLayout, current_layout
from dataflow_assets.connectors.postgresql.cdc.options import Place, PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.position import (
    Keys,
    Lsn,
    Part,
    SnapshotPart,
    StreamPart,
    parse_part,
)
from dataflow_assets.connectors.postgresql.cdc.reader import HEADER
from dataflow_assets.connectors.postgresql.cdc.snapshot import rows_of
from dataflow_assets.connectors.postgresql.cdc.transactions import Transactions
from dataflow_assets.connectors.postgresql.pool import lent_to_source
from dataflow_assets.contracts import PartSlice, Slice
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.failpoints import reach

BATCH_ROWS = 20_000
BATCH_BYTES = 8 * 1024 * 1024  # of all tables together
_BEGIN, _RELATION, _TRUNCATE = map(ord, "BRT")
_BEGIN_MESSAGE = struct.Struct(
    ">IIqI"
)  # where the commit record begins, when it was written, the id
_ROWS = frozenset(map(ord, "IUD"))


def read(
    source: PostgresqlCdcOptions, piece: Slice, metadata: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    """The part's records, at least one batch; ends only when all of them came."""
    with closing(_one_by_one(source, [_part(piece)], metadata)) as each:
        for batches in each:
            yield from batches


def read_in_order(
    source: PostgresqlCdcOptions, pieces: Sequence[Slice], metadata: frozenset[str]
) -> Generator[Iterator[pa.RecordBatch], None, None]:
    """Reads parts that a task stores one after the other.

    Stretches of the log that follow one another have one reader, which goes on while a part is
    stored. It confirms nothing: whatever is not stored is read again.
    """
    for parts in _runs([_part(piece) for piece in pieces]):
        yield from _one_by_one(source, parts, metadata)


def _part(piece: Slice) -> Part:
    assert isinstance(piece, PartSlice)  # noqa: S101 - this source plans nothing else
    return parse_part(piece.part)


def _runs(parts: Sequence[Part]) -> list[list[Part]]:
    """Parts that one reader reads: stretches that follow one another."""
    runs: list[list[Part]] = []
    for part in parts:
        if runs and isinstance(part, StreamPart) and part.follows(runs[-1][-1]):
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def _one_by_one(
    source: PostgresqlCdcOptions, parts: Sequence[Part], metadata: frozenset[str]
) -> Generator[Iterator[pa.RecordBatch], None, None]:
    stretches = [part for part in parts if isinstance(part, StreamPart)]
    with closing(CdcStream(source, metadata, stretches)) as stream:
        for part in parts:
            if isinstance(part, StreamPart):
                yield _at_least_one(source, stream.batches(part))
            else:
                yield _at_least_one(source, _snapshot(source, part, metadata))


def _snapshot(
    source: PostgresqlCdcOptions, part: SnapshotPart, metadata: frozenset[str]
) -> Generator[pa.RecordBatch, None, None]:
    debezium = source.envelope_format == "debezium"
    for records in rows_of(source, part):
        yield delivery(records, metadata, source.primary_key_column, debezium=debezium)


def _at_least_one(
    source: PostgresqlCdcOptions, batches: Generator[pa.RecordBatch, None, None]
) -> Generator[pa.RecordBatch, None, None]:
    has_batch = False
    with closing(batches):
        for batch in batches:
            has_batch = True
            yield batch
    if not has_batch:
        yield empty(_first_layout(source), debezium=source.envelope_format == "debezium")


def _first_layout(source: PostgresqlCdcOptions) -> CdcLayout:
    what = "looking at the columns"
    with explain_errors(source, what), lent_to_source(source.dsn()) as link:
        table = tables.table_of(link, source, source.places[0])
        published = publication.published_tables(link, source, [table], started=True)[table.name]
        return current_layout(link, source, table.place, table.oid, published.columns)


@dataclass
class CdcStream:
    """Reads stretches of the log that follow one another; made once for those of a task."""

    source: PostgresqlCdcOptions
    metadata: frozenset[str]
    parts: Sequence[StreamPart]
    """In their order; each is asked for once."""
    _followed: dict[bytes, CdcChanged] = field(default_factory=dict)
    """By the id of a table, as messages have it; tables that nobody asked for are not in it."""
    _announced_last: dict[bytes, Announcement] = field(default_factory=dict)
    _transaction: CdcTransaction = CdcTransaction("0/0")
    _tables: tuple[str, ...] | None = None
    """Whose changes are read; None: those of all tables of the manifest."""
    _keys: Keys = field(default_factory=dict)
    _log: Transactions | None = None
    _reading: str = ""
    """The part whose end has not come yet."""

    def batches(self, part: StreamPart) -> Generator[pa.RecordBatch, None, None]:
        """The records of the transactions that commit inside the part, in their order."""
        if self._reading:  # its rest would be rows of this part
            raise TransientError(
                f"the log was not read to its end in {self._reading}, so nothing behind is read"
            )
        self._reading = f"the stretch from {part.after} to {part.upto}"
        yield from self._records(part)
        self._reading = ""

    def _records(self, part: StreamPart) -> Iterator[pa.RecordBatch]:
        after, upto = Lsn.parse(part.after), Lsn.parse(part.upto)
        if after.value >= upto.value:
            return
        self._tables, self._keys = part.tables, part.keys
        with explain_errors(self.source, "reading changes"):
            log = self._open(after)
            reach("postgresql-cdc.read")
            waiting_rows = waiting_bytes = 0
            for kind, data in log.before(upto):
                if kind in _ROWS:
                    changed = self._followed.get(bytes(data[HEADER + 1 : HEADER + 5]))
                    if changed is None:
                        continue
                    changed.add(data, self._transaction)
                    waiting_rows += 1
                    waiting_bytes += len(data)
                    if waiting_rows >= BATCH_ROWS or waiting_bytes >= BATCH_BYTES:
                        yield from self._flush(self._transaction)
                        waiting_rows = waiting_bytes = 0
                        reach("postgresql-cdc.read-batch")
                elif kind == _BEGIN:
                    self._transaction = _transaction(data)
                elif kind == _RELATION:
                    yield from self._announce(data)
                elif kind == _TRUNCATE:
                    yield from self._empty(data)
            if part is self.parts[-1]:
                self.close()  # a server that is not told goes on through the log of others
            yield from self._flush()

    def _open(self, after: Lsn) -> Transactions:
        if self._log is None:
            end, several = Lsn.parse(self.parts[-1].upto), len(self.parts) > 1
            self._log = Transactions(self.source, after, end, ahead=several)
        return self._log

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def _flush(
        self, unfinished: CdcTransaction | None = None, whole: bytes = b""
    ) -> Iterator[pa.RecordBatch]:
        """Returns what waits, table by table: the order inside each table is kept.

        `unfinished`: the transaction whose changes go on, for all tables but `whole`.
        """
        for key, changed in self._followed.items():
            if (records := changed.take(None if key == whole else unfinished)) is not None:
                yield self._deliver(records)

    def _deliver(self, records: Records) -> pa.RecordBatch:
        debezium = self.source.envelope_format == "debezium"
        column = self.source.primary_key_column
        return delivery(records, self.metadata, column, debezium=debezium)

    def _announce(self, data: bytes | memoryview) -> Iterator[pa.RecordBatch]:
        """A table's columns from now on: what came before is decoded by the old ones.

        The server repeats them when its cache is emptied, at another place in each read. A
        repetition changes nothing, so that rows of several tables come in the same order again.
        """
        announcement = Announcement.parse(data)
        key = announcement.oid.to_bytes(4, "big")
        if not self._reads(announcement.place):
            if key in self._followed:  # it was renamed: from now on it is another table
                yield from self._flush(self._transaction, key)
                del self._followed[key], self._announced_last[key]
            return
        if self._announced_last.get(key) == announcement:
            return
        yield from self._flush(self._transaction, key)
        with lent_to_source(self.source.dsn()) as link:
            layout = announcement.layout(
                link, self.source, self._keys.get(".".join(announcement.place))
            )
        self._announced_last[key] = announcement
        debezium = self.source.envelope_format == "debezium"
        self._followed[key] = CdcChanged(layout, self._followed.get(key), with_old=debezium)

    def _reads(self, place: Place) -> bool:
        if self._tables is not None and ".".join(place) not in self._tables:
            return False
        return place in self.source.places

    def _empty(self, data: bytes | memoryview) -> Iterator[pa.RecordBatch]:
        rest = bytes(data[HEADER + 6 :])
        for at in range(0, len(rest), 4):
            changed = self._followed.get(rest[at : at + 4])
            if changed is None:
                continue
            number = changed.count(self._transaction)
            if self.source.envelope_format == "debezium":
                yield from self._flush()
                yield truncation(changed.layout, self._transaction, number, self.metadata)
            elif self.source.on_truncate == "fail":
                raise self._truncate_error(changed.layout)

    def _truncate_error(self, layout: CdcLayout) -> PermanentError:
        return PermanentError(
            f"table {layout.name} was emptied by TRUNCATE, in the transaction that commits at "
            f"{self._transaction.lsn}: a target of rows cannot follow that. Two ways out: load the "
            f"tables again ({errors.AGAIN}); or set onTruncate: skip, and when the flow has got "
            "past it delete the rows that the table no longer has from the target"
        )


def _transaction(data: bytes | memoryview) -> CdcTransaction:
    high, low, committed, xid = _BEGIN_MESSAGE.unpack_from(data, HEADER + 1)
    return CdcTransaction(f"{high:X}/{low:X}", xid, committed)
