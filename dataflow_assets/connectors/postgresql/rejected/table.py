"""Rejected records: written in the transaction that moves the checkpoint, once per id."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.contracts import Rejection, Slice, Target
from dataflow_assets.sdk.rejected_rows import encoded, written

_INSERT = """
INSERT INTO {r} (id, flow, branch, source, partition, "offset", n, stage, reason,
                 body, body_encoding, key, key_encoding, step, step_type, rows, reading{metadata})
SELECT e->>0, $1, $2, $3, $4, (e->>1)::bigint, (e->>2)::integer, e->>3, e->>4, e->>5, e->>6,
       e->>7, e->>8, (e->>9)::integer, e->>10, (e->>11)::integer, (e->>12)::bigint{value}
FROM json_array_elements($5::json) AS e
ON CONFLICT (id) DO NOTHING RETURNING 1
"""
# Rejected again after a rewind.
_AGAIN = """
UPDATE {r} AS r SET reason = e->>4, body = e->>5, body_encoding = e->>6, key = e->>7,
    key_encoding = e->>8, step = (e->>9)::integer, step_type = e->>10, rows = (e->>11)::integer,
    reading = (e->>12)::bigint{again}, rejected_at = now(), replayed_at = NULL
FROM json_array_elements($1::json) AS e
WHERE r.id = e->>0 AND r.reading < (e->>12)::bigint
"""
_HAS_METADATA = """
SELECT 1 FROM pg_attribute
WHERE attrelid = to_regclass($1::text) AND attname = 'metadata' AND NOT attisdropped
"""
_METADATA = {"metadata": ", metadata", "value": ", e->>13", "again": ", metadata = e->>13"}
_AT_ONCE = 16 * 1024 * 1024


def store(
    link: Link, table: str, target: Target, piece: Slice, rejections: Sequence[Rejection]
) -> None:
    """Writes them to the rejected table; those known by their id in this reading stay."""
    more = _METADATA if has_metadata(link, table) else dict.fromkeys(_METADATA, "")
    query = _INSERT.format(r=table, **more)
    origin = (target.flow, target.branch, target.source, piece.partition)
    for batch in batches([_row(target, piece, rejection) for rejection in rejections]):
        rows = f"[{','.join(batch)}]"
        if len(link.execute(query, *origin, rows)) < len(batch):
            link.execute(_AGAIN.format(r=table, **more), rows)


def has_metadata(link: Link, table: str) -> bool:
    """Whether the table has the column: one of an earlier version may belong to another role."""
    return bool(link.execute(_HAS_METADATA, table))


def _row(target: Target, piece: Slice, rejection: Rejection) -> str:
    where = (rejection.id(target, piece), rejection.offset, rejection.n)
    reason = rejection.reason.encode("utf-8", "replace").decode().replace("\0", "\\0")
    sent = (*encoded(rejection.body, "\0"), *encoded(rejection.key, "\0"))
    step = (rejection.step, rejection.step_type)
    again = (rejection.rows, rejection.reading(target, piece), written(rejection.metadata))
    return json.dumps([*where, rejection.stage, reason, *sent, *step, *again])


def batches(rows: Sequence[str]) -> Iterator[list[str]]:
    """Rows as JSON, as many as one statement takes at once."""
    batch: list[str] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row)
        if size > _AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
