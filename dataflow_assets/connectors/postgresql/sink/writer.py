"""The prefix commit: lock the partition's row, load, move the row, one transaction.

A retry finds the row moved and skips what it covers; a driver of an older epoch finds another
epoch and stops. What the table refuses is stored beside the checkpoint in the same commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.postgresql.client import TextLink, qualified_name
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.pool import give, lend, take
from dataflow_assets.connectors.postgresql.rejected.error_sink import PostgresqlErrors
from dataflow_assets.connectors.postgresql.rejected.table import PostgresqlRejected
from dataflow_assets.connectors.postgresql.sink.foreign_keys import explain
from dataflow_assets.connectors.postgresql.sink.load import Loader, loader
from dataflow_assets.connectors.postgresql.table import checkpoint_rows, checkpoint_tables, table
from dataflow_assets.connectors.postgresql.table.checkpoint_rows import PostgresqlPartition
from dataflow_assets.contracts import (
    Chunk,
    ErrorRecord,
    Rejection,
    Slice,
    Ticket,
)
from dataflow_assets.sdk.rejected_records import settle
from dataflow_assets.sdk.server_failure import ServerFailure
from dataflow_assets.sdk.sink.decide import check_planned, check_recorded
from dataflow_assets.sdk.sink.slice_commit import SliceCommit, SliceStore
from dataflow_assets.sdk.sql_table.rejected import rejected_row

_LOCK = """
SELECT p.epoch, to_regclass($4::text)::oid::text, {shape}, h.intent,
       next_offset, part, p.rows, p.rejected, p.bytes, committed_at
FROM {p} AS p LEFT JOIN {h} AS h ON h.flow = p.flow AND h.branch = p.branch
WHERE p.flow = $1 AND p.branch = $2 AND partition = $3 FOR UPDATE OF p
"""
_MOVE = """
UPDATE {p} SET next_offset = $4::bigint, part = $5, rows = rows + $6::bigint,
    rejected = rejected + $7::bigint, bytes = bytes + $8::bigint, committed_at = now()
WHERE flow = $1 AND branch = $2 AND partition = $3
RETURNING to_regclass($9::text)::oid::text, {shape},
          next_offset, part, rows, rejected, bytes, committed_at
"""
_UNDEFINED_TABLE = "42P01"


class PostgresqlSliceStore(SliceStore):
    """One slice in one transaction of one session."""

    def __init__(self, sink: PostgresqlSinkOptions, ticket: Ticket, piece: Slice) -> None:
        self._sink, self._ticket, self._piece = sink, ticket, piece
        self._dsn = sink.dsn()
        self._driver = table.driver_of(ticket.schema)
        self._schema, self._name = sink.place()
        self._names = checkpoint_tables.statements(self._schema)
        self._link: TextLink | None = None
        self._loader: Loader

    @override
    def begin(self) -> SliceCommit | None:
        target, epoch = self._ticket.target, self._ticket.epoch
        name = checkpoint_tables.application(target, epoch)
        self._link = take(self._dsn, self._driver, name)
        stored = self._lock(self._link)
        self._loader = loader(self._sink, self._link, self._ticket.schema)
        if stored.position is None:
            return None
        return SliceCommit(stored.position, staged=(stored.dump(),))

    @override
    def add(self, chunk: Chunk) -> Sequence[Rejection]:
        self._loader.add(chunk.rows, chunk.sent)
        failpoints.reach("postgresql.copy")
        return ()  # they show when it is flushed

    @override
    def commit(self, commit: SliceCommit) -> SliceCommit:
        link, target, names = self._session(), self._ticket.target, self._names
        commit = commit.refuse(self._loader.flush())
        self._loader.check(target.source, self._piece)
        oid = table.oid_of(self._ticket.schema)
        commit = replace(commit, rejected=explain(link, names["h"], target, oid, commit.rejected))
        settle(target, self._piece, commit.rejected, self._beside, self._commits_with_errors)
        failpoints.reach("postgresql.before-commit")
        where = checkpoint_rows.columns(commit.position)
        counts = (commit.rows, len(commit.rejected), commit.bytes)
        expression = table.shape_sql(self._ticket.schema, "to_regclass($9::text)")
        query = _MOVE.format(**names, shape=expression)
        ((oid, shape, *moved),) = link.execute(query, *self._row(), *where, *counts, self._place())
        self._check(oid, shape)  # again: only the rows' own lock has kept it as it is
        link.execute("COMMIT")
        failpoints.reach("postgresql.after-commit")
        return replace(commit, staged=(PostgresqlPartition.of(tuple(moved)).dump(),))

    @override
    def end(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            give(self._dsn, self._driver, link)  # in a transaction it is closed: that rolls back

    def _lock(self, link: TextLink) -> PostgresqlPartition:
        expression = table.shape_sql(self._ticket.schema, "to_regclass($4::text)")
        query = _LOCK.format(**self._names, shape=expression)
        found = link.execute(query, *self._row(), self._place())
        if not found or found[0][0] != self._ticket.epoch:
            raise checkpoint_rows.loss(link, self._schema, self._ticket.target, self._ticket.epoch)
        ((_, oid, shape, intent, *row),) = found
        self._check(oid, shape)
        flow, stored = self._ticket.target.flow, PostgresqlPartition.of(tuple(row))
        check_recorded(flow, self._piece, checkpoint_rows.load_intent(intent))
        check_planned(flow, self._piece, stored.position)
        return stored

    def _check(self, oid: str | None, shape: str | None) -> None:
        """Binary rows of another type may be valid: 2 as bigint is 1e-323 as double precision."""
        schema = self._ticket.schema
        self._sink.check_table(oid, table.oid_of(schema))
        if shape != table.shape_of(schema):
            raise self._sink.altered_error()

    def _beside(self, found: Sequence[Rejection]) -> None:
        rows = [rejected_row(self._ticket.target, self._piece, one) for one in found]
        PostgresqlRejected(self._session(), self._schema).append(rows)

    def _commits_with_errors(self, records: Sequence[ErrorRecord]) -> bool:
        """Into an error sink of the same database, with the rows."""
        sink = self._ticket.target.rejects.sink
        errors = sink.error_store() if sink else None
        if not isinstance(errors, PostgresqlErrors) or not errors.shares(self._dsn):
            return False
        errors.join(self._session(), records)
        return True

    def _session(self) -> TextLink:
        assert self._link is not None, "a writer that ended is used again"  # noqa: S101
        return self._link

    def _row(self) -> tuple[str, str, str]:
        target = self._ticket.target
        return target.flow, target.branch, self._piece.partition

    def _place(self) -> str:
        return qualified_name(self._schema, self._name)

    @override
    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except ServerFailure as failure:
            self.end()
            if getattr(failure, "sqlstate", None) == _UNDEFINED_TABLE and self._is_gone():
                raise self._sink.dropped_error() from None
            raise failure.error(f"writing to {self._sink.address()}") from None

    def _is_gone(self) -> bool:
        with contextlib.suppress(PostgresqlFailure), lend(self._dsn) as link:
            found = link.execute("SELECT to_regclass($1::text) IS NULL", self._place())
            return bool(found[0][0])
        return False
