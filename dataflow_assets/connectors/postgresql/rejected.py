"""Rejected records: written in the transaction that moves the checkpoint, once per id."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence

from dataflow_assets.connectors.postgresql.link import Link
from dataflow_assets.contracts import Rejection, Slice, Target

_INSERT = """
INSERT INTO {r} (id, flow, branch, source, partition, "offset", n, stage, reason,
                 body, body_encoding, key, key_encoding, step, step_type)
SELECT e->>0, $1, $2, $3, $4, (e->>1)::bigint, (e->>2)::integer, e->>3, e->>4,
       e->>5, e->>6, e->>7, e->>8, (e->>9)::integer, e->>10
FROM json_array_elements($5::json) AS e
ON CONFLICT (id) DO NOTHING
"""
_AT_ONCE = 16 * 1024 * 1024


def store(
    link: Link, table: str, target: Target, piece: Slice, rejections: Sequence[Rejection]
) -> None:
    """Writes them to the rejected table; those known by their id stay as they are."""
    query = _INSERT.format(r=table)
    origin = (target.flow, target.branch, target.source, piece.partition)
    for batch in batches([_row(target, piece, rejection) for rejection in rejections]):
        link.execute(query, *origin, f"[{','.join(batch)}]")


def _row(target: Target, piece: Slice, rejection: Rejection) -> str:
    where = (rejection.id(target, piece), rejection.offset, rejection.n)
    why = (rejection.stage, _printable(rejection.reason))
    step = (rejection.step, rejection.step_type)
    return json.dumps([*where, *why, *_encoded(rejection.body), *_encoded(rejection.key), *step])


def _encoded(value: bytes | None) -> tuple[str | None, str | None]:
    """As text where PostgreSQL can store it as text, else base64; and which of the two."""
    if value is None:
        return None, None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return base64.b64encode(value).decode(), "base64"
    return text, "utf-8"


def _printable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "\\0")


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
