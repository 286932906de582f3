"""Rejected records of `dataflow_rejected` that wait for a replay."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.connectors.postgresql.options import PostgresqlSinkOptions
from dataflow_assets.connectors.postgresql.pool import lent
from dataflow_assets.connectors.postgresql.rejected.table import has_metadata
from dataflow_assets.connectors.postgresql.table import checkpoint_tables
from dataflow_assets.contracts import Entries, Entry
from dataflow_assets.sdk.rejected_rows import row_entry
from dataflow_assets.sdk.server_failure import translated

_PENDING = """
SELECT id, branch, stage, n, body, body_encoding, key, key_encoding, source, partition, "offset",
    {metadata}, rows, reading
FROM {r} WHERE flow = $1 AND replayed_at IS NULL
AND rejected_at >= COALESCE($2::text::timestamptz, '-infinity')
ORDER BY rejected_at, "offset", n, id LIMIT $3::bigint
"""
_REPLAYED = """
UPDATE {r} SET replayed_at = now()
FROM json_array_elements($1::json) AS e
WHERE id = e->>0 AND reading <= (e->>1)::bigint AND replayed_at IS NULL
"""


class PostgresqlReplay(Entries):
    """Those beside the sink's table: of all flows and branches that write into its schema."""

    def __init__(self, sink: PostgresqlSinkOptions) -> None:
        self._sink = sink
        self._schema, _ = sink.place()
        self._names = checkpoint_tables.statements(self._schema)

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> list[Entry]:
        with self._link("reading") as link:
            if checkpoint_tables.missing(link, self._schema):
                return []
            checkpoint_tables.prepare(link, self._schema)  # an older table lacks a column
            moment = since.isoformat() if since else None
            metadata = "metadata" if has_metadata(link, self._names["r"]) else "NULL"
            query = _PENDING.format(**self._names, metadata=metadata)
            rows = link.execute(query, flow, moment, most)
        return [row_entry(row) for row in rows]

    @override
    def replayed(self, entries: Sequence[Entry]) -> None:
        failpoints.reach("postgresql.replayed")
        with self._link("noting a replay in") as link:
            listed = json.dumps([one.name for one in entries])
            link.execute(_REPLAYED.format(**self._names), listed)

    @contextmanager
    def _link(self, what: str) -> Iterator[Link]:
        """In autocommit: each statement here is whole by itself."""
        with (
            translated(f"{what} {self._names['r']} beside {self._sink.address()}"),
            lent(self._sink.dsn()) as link,
        ):
            yield link
