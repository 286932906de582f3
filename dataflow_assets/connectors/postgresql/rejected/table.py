"""Rejected records in `dataflow_rejected`: in the transaction that moves the checkpoint, once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from typing_extensions import override

from dataflow_assets.connectors.postgresql.client import Link, quote
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.pool import lend
from dataflow_assets.connectors.postgresql.table import checkpoint_tables
from dataflow_assets.contracts import EntryName
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.sdk.sql_table.rejected import RejectedRows, RejectedTable, Row

_INSERT = """
INSERT INTO {r} ({names}) SELECT {names} FROM json_populate_recordset(NULL::{r}, $1::json)
ON CONFLICT (id) DO NOTHING RETURNING 1
"""
# Rejected again after a rewind.
_AGAIN = """
UPDATE {r} AS r SET {values}, rejected_at = now(), replayed_at = NULL
FROM json_populate_recordset(NULL::{r}, $1::json) AS e
WHERE r.id = e.id AND r.reading < e.reading
"""
_PENDING = """
SELECT row_to_json(r)::text FROM {r} AS r WHERE flow = $1 AND replayed_at IS NULL
AND rejected_at >= COALESCE($2::text::timestamptz, '-infinity')
ORDER BY rejected_at, "offset", n, id LIMIT $3::bigint
"""
_MARK = """
UPDATE {r} SET replayed_at = now() FROM json_array_elements($1::json) AS e
WHERE id = e->>0 AND reading <= (e->>1)::bigint AND replayed_at IS NULL
"""
_HAS_METADATA = """
SELECT 1 FROM pg_attribute
WHERE attrelid = to_regclass($1::text) AND attname = 'metadata' AND NOT attisdropped
"""
_AT_ONCE = 16 * 1024 * 1024


@dataclass(frozen=True)
class PostgresqlRejected(RejectedRows):
    """The table of a schema, of all flows and branches that write into it. Methods raise Failure.

    An append is part of the transaction that the link is in.
    """

    link: Link
    schema: str

    @override
    def prepare(self) -> None:
        checkpoint_tables.prepare(self.link, self.schema)

    @override
    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        # A table of an earlier version may belong to another role, and lack the column.
        left_out = set() if self.link.execute(_HAS_METADATA, self._table) else {"metadata"}
        quoted = [quote(name) for name in rows[0] if name not in left_out]
        insert = _INSERT.format(r=self._table, names=", ".join(quoted))
        values = ", ".join(f"{name} = e.{name}" for name in quoted[1:])
        for batch in batches(rows):
            text = json.dumps(batch)
            if len(self.link.execute(insert, text)) < len(batch):
                self.link.execute(_AGAIN.format(r=self._table, values=values), text)

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> Iterator[Row]:
        if checkpoint_tables.missing(self.link, self.schema):
            return
        self.prepare()  # an older table lacks a column
        moment = since.isoformat() if since else None
        for (row,) in self.link.execute(_PENDING.format(r=self._table), flow, moment, most):
            yield json.loads(row)

    @override
    def mark_replayed(self, names: Sequence[EntryName]) -> None:
        self.link.execute(_MARK.format(r=self._table), json.dumps(names))

    @property
    def _table(self) -> str:
        return checkpoint_tables.statements(self.schema)["r"]


def batches(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Cuts rows into as many as one statement takes at once."""
    batch: list[Mapping[str, Any]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(value) for value in row.values() if isinstance(value, str))
        if size > _AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def rejected_table(sink: PostgresqlSinkOptions) -> RejectedTable:
    """The table beside the sink's own."""
    return RejectedTable("postgresql", partial(_open, sink))


@contextmanager
def _open(sink: PostgresqlSinkOptions, what: str) -> Iterator[PostgresqlRejected]:
    """In autocommit: each statement is whole by itself."""
    schema, _ = sink.place()
    where = f"{checkpoint_tables.statements(schema)['r']} beside {sink.address()}"
    with translate_errors(f"cannot {what} {where}"), lend(sink.dsn()) as link:
        yield PostgresqlRejected(link, schema)
