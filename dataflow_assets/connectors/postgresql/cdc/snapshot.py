"""The rows that are there before the changes: a snapshot of a known place in the log, in parts.

A temporary slot tells a place in the log and exports the snapshot of exactly what had been
committed before it. The driver's session imports the snapshot, which keeps it alive, and has locked
the tables before: nobody can rewrite them while blocks of them are being read. So the changes from
that place on are those that the snapshot lacks, no more and no less.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dataflow_assets.connectors.postgresql.cdc import publication, slot, tables
from dataflow_assets.connectors.postgresql.cdc.envelope import CdcTransaction, Records
from dataflow_assets.connectors.postgresql.cdc.errors import explain_errors
from dataflow_assets.connectors.postgresql.cdc.layout import CdcLayout, LoggedColumn, current_layout
from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.position import Keys, Lsn, SnapshotPart
from dataflow_assets.connectors.postgresql.cdc.primary_keys import keys_of
from dataflow_assets.connectors.postgresql.cdc.publication import Published
from dataflow_assets.connectors.postgresql.cdc.reader import APPLICATION
from dataflow_assets.connectors.postgresql.cdc.tables import CdcTable, Leaf
from dataflow_assets.connectors.postgresql.cdc.walsender import Walsender
from dataflow_assets.connectors.postgresql.client import TextLink, qualified_name, quote
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.source.decode_copy import PostgresqlDecoder
from dataflow_assets.connectors.postgresql.source.read import copy_batches
from dataflow_assets.connectors.postgresql.source.types import select_expression as expression
from dataflow_assets.contracts import INSERT, OP, Limit
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.failpoints import reach

NOW = ""  # in place of a snapshot's name: the rows as they are, for a look
MOST_PARTS = 2_000  # of a snapshot, which a sink records all at once
_ROWS_PER_BLOCK = 40  # where the server has no estimate
_GONE = frozenset({"22023", "42704"})  # a snapshot that nobody holds any more
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_ALL_ROWS = "SET LOCAL row_security = off"  # as the log has them: an error, not fewer rows
_LOCK_LEAF = "LOCK TABLE ONLY {} IN ACCESS SHARE MODE"
_PATIENT = """
SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN (
    'idle_in_transaction_session_timeout', 'statement_timeout', 'transaction_timeout')
"""
# COPY has no parameters: with these settings the server counts all parts of a table as one
# statement, or as two, since the last one has no end.
_BORDERS = "SELECT set_config('dataflow.low', $1, true), set_config('dataflow.high', $2, true)"
_LEAF = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = $1::oid
"""


def check_readable(source: PostgresqlCdcOptions, wanted: Sequence[CdcTable]) -> None:
    """Raises what a load of the tables would raise, by statements that read none of their rows.

    Called by the driver before a slot is created, which would stay behind and keep log. The
    connection that holds the locks asks all there is to ask: another one would wait behind whoever
    waits for these locks.

    Args:
        source: with its secrets in place.
        wanted: tables; a partition of them may be gone by now.

    Raises:
        Failure: the role lacks a right, or a policy hides rows from it.
        PermanentError: a table cannot be followed any more.
    """
    with closing(TextLink(source.dsn(), APPLICATION)) as locking:
        locking.execute(_PATIENT)
        locking.execute(_BEGIN)
        locking.execute(_ALL_ROWS)
        locking.execute(f"LOCK TABLE {_list(wanted)} IN ACCESS SHARE MODE")
        for leaf, query in _empty_reads(locking, source):
            locking.execute(_LOCK_LEAF.format(qualified_name(*leaf.place)))
            list(locking.copy_out(query))


def _empty_reads(link: TextLink, source: PostgresqlCdcOptions) -> Iterator[tuple[Leaf, str]]:
    followed = tables.tables(link, source)
    published = publication.as_published(link, source, followed)
    for table in followed:
        own = published[table.name]
        columns = current_layout(link, source, table.place, table.oid, own.columns).read
        for leaf in table.leaves:
            yield leaf, _query(leaf.place, "false", own, columns)


class Snapshot:
    """A snapshot that is held for tasks. Made by the driver; open until it is closed."""

    def __init__(self, source: PostgresqlCdcOptions, wanted: Sequence[CdcTable]) -> None:
        self._link = TextLink(source.dsn(), APPLICATION)
        try:
            self._link.execute(_PATIENT)
            self._link.execute(_BEGIN)
            self._link.execute(f"LOCK TABLE {_list(wanted)} IN ACCESS SHARE MODE")
            with Walsender(source.dsn()) as sender:
                self.lsn, exported = _export(source, sender)
                self._link.execute(f"SET TRANSACTION SNAPSHOT '{exported}'")
            ((name,),) = self._link.execute("SELECT pg_export_snapshot()")
        except BaseException:
            self._link.close()
            raise
        self.name: str = name

    @property
    def alive(self) -> bool:
        try:
            self._link.execute("SELECT 1")
        except PostgresqlFailure:
            return False
        return True

    def tables_and_keys(self, source: PostgresqlCdcOptions) -> tuple[list[CdcTable], Keys]:
        """The tables of the manifest as the snapshot has them, with their partitions and keys.

        Its own connection is asked, which has the locks: another one would wait behind whoever
        waits for them. Raises PermanentError where one cannot be read.
        """
        followed = tables.tables(self._link, source)
        return followed, keys_of(self._link, followed)

    def close(self) -> None:
        """Lets go of it. Tasks that read go on."""
        self._link.close()

    def parts(
        self, wanted: Sequence[CdcTable], limit: Limit, block: int, most: int = MOST_PARTS
    ) -> list[SnapshotPart]:
        """Stretches of blocks of all tables, each of about the limit.

        Args:
            wanted: tables.
            limit: the most rows and bytes of a part, by the server's estimates.
            block: the bytes of a block.
            most: the most parts, but for one of each partition.
        """
        leaves = [(table, leaf) for table in wanted for leaf in table.leaves]
        total = sum(leaf.bytes // block for _, leaf in leaves)
        least = -(-total // most)
        return [
            SnapshotPart(self.name, str(self.lsn), table.name, leaf.oid, low, high)
            for table, leaf in leaves
            for low, high in _borders(leaf.bytes // block, max(least, _step(leaf, limit, block)))
        ]


def _list(wanted: Sequence[CdcTable]) -> str:
    return ", ".join(table.sql for table in wanted)


def _export(source: PostgresqlCdcOptions, sender: Walsender) -> tuple[Lsn, str]:
    """The place in the log, and the name of its snapshot, which lives as long as the sender."""
    name = f"{source.slot[:40]}_{uuid.uuid4().hex[:8]}"
    create = f"CREATE_REPLICATION_SLOT {quote(name)} TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')"
    try:
        ((_, lsn, exported, _),) = sender.execute(create)
    except PostgresqlFailure as failure:
        with closing(TextLink(source.dsn(), APPLICATION)) as link:
            raise slot.with_writers(link, failure) from None
    return Lsn.parse(str(lsn)), str(exported)


def _step(leaf: Leaf, limit: Limit, block: int) -> int:
    blocks = max(1, leaf.bytes // block)
    each = max(1, leaf.rows // blocks) if leaf.rows else _ROWS_PER_BLOCK
    size = max(block, leaf.size // blocks)
    return max(1, min(limit.bytes // size, limit.records // each))


def pieces(
    part: SnapshotPart, found: Sequence[CdcTable], limit: Limit, block: int
) -> list[SnapshotPart]:
    """These blocks in parts of about the limit, which may be smaller than it was."""
    leaf = next((one for table in found for one in table.leaves if one.oid == part.leaf), None)
    if leaf is None:
        return [part]
    high = max(part.low + 1, leaf.bytes // block if part.high is None else part.high)
    lows = range(part.low, high, _step(leaf, limit, block))
    highs = [*lows[1:], part.high]
    return [replace(part, low=low, high=end) for low, end in zip(lows, highs, strict=True)]


def _borders(blocks: int, step: int) -> Iterator[tuple[int, int | None]]:
    """The last one has no end: the table may have grown since it was measured."""
    lows = range(0, max(1, blocks), step)
    return ((low, None if low == lows[-1] else low + step) for low in lows)


def rows_of(source: PostgresqlCdcOptions, part: SnapshotPart) -> Iterator[Records]:
    """The rows of a part, at least one batch. Called inside tasks.

    Raises:
        TransientError: nobody holds the snapshot any more.
    """
    with (
        explain_errors(source, f"reading table {part.table}"),
        closing(TextLink(source.dsn(), APPLICATION)) as link,
    ):
        table, published, layout = _describe(link, source, part)
        leaf = link.execute(_LEAF, part.leaf)
        if not leaf:
            raise TransientError(f"a partition of table {table.name} is gone")
        _import(link, part, leaf[0])
        reach("postgresql-cdc.snapshot")
        columns = layout.read
        decoder = PostgresqlDecoder([c.field for c in columns], [c.type for c in columns])
        query = _query(leaf[0], _blocks(part), published, columns)
        link.execute(_BORDERS, f"({part.low},0)", f"({part.high},0)")
        transactions = [CdcTransaction(part.lsn)]
        for batch in copy_batches(link, decoder, query):
            rows = batch.append_column(
                pa.field(OP, pa.int8()), pa.array(np.full(batch.num_rows, INSERT, np.int8))
            )
            yield Records(layout, rows, transactions, np.zeros(batch.num_rows, np.int64))
            reach("postgresql-cdc.snapshot-batch")


def _describe(
    link: TextLink, source: PostgresqlCdcOptions, part: SnapshotPart
) -> tuple[CdcTable, Published, CdcLayout]:
    place = next((one for one in source.places if ".".join(one) == part.table), None)
    if place is None:
        raise PermanentError(
            f"{source.title}: the rows of table {part.table} were being loaded when `tables` was "
            "changed: put it back until they are loaded, or run dataflow reset"
        )
    table = tables.table_of(link, source, place)
    if part.snapshot == NOW:
        published = publication.as_published(link, source, [table])[table.name]
    else:
        published = publication.published_tables(link, source, [table], started=False)[table.name]
    layout = current_layout(link, source, place, table.oid, published.columns)
    return table, published, layout


def _import(link: TextLink, part: SnapshotPart, leaf: tuple[str, str]) -> None:
    """The table is locked first: whoever rewrites it has to wait for us, or has come too late."""
    link.execute(_PATIENT)
    link.execute(_BEGIN)
    link.execute(_ALL_ROWS)
    link.execute(_LOCK_LEAF.format(qualified_name(*leaf)))
    if part.snapshot == NOW:
        return
    try:
        link.execute(f"SET TRANSACTION SNAPSHOT '{part.snapshot}'")
    except PostgresqlFailure as failure:
        if failure.sqlstate not in _GONE:
            raise
        raise TransientError(
            f"the snapshot of table {part.table} is gone: the process that held it has ended, or "
            "its connection has"
        ) from None


def _blocks(part: SnapshotPart) -> str:
    low = "ctid >= current_setting('dataflow.low')::tid"
    return low if part.high is None else f"{low} AND ctid < current_setting('dataflow.high')::tid"


def _query(
    leaf: tuple[str, str], where: str, published: Published, columns: Sequence[LoggedColumn]
) -> str:
    listed = ", ".join(expression(quote(c.name), c.type) for c in columns)
    where += f" AND ({published.row_filter})" if published.row_filter else ""
    # S608: names are quoted, the filter is the server's own text
    rows = f"SELECT {listed} FROM ONLY {qualified_name(*leaf)} WHERE {where}"  # noqa: S608
    return f"COPY ({rows}) TO STDOUT (FORMAT binary)"
