"""Rejected records beside the target: a table `<table>_rejected`, each record once under its id."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from dataflow_assets.connectors.clickhouse.client import (
    Client,
    insert_rows,
    inserting,
    query_rows,
    quote,
)
from dataflow_assets.connectors.clickhouse.errors import failing
from dataflow_assets.connectors.clickhouse.table.table import WINDOW
from dataflow_assets.contracts import Rejection, Slice, Target
from dataflow_assets.sdk.rejected_rows import encoded, written

_TEXT = "Nullable(String)"
_COLUMNS = {
    "id": "String",
    "flow": "String",
    "branch": "String",
    "source": "String",
    "partition": "String",
    "offset": "Int64",
    "n": "Int32",
    "stage": "LowCardinality(String)",
    "reason": "String",
    "body": _TEXT,
    "body_encoding": _TEXT,
    "key": _TEXT,
    "key_encoding": _TEXT,
    "step": "Nullable(Int32)",
    "step_type": _TEXT,
    "rows": "Nullable(Int32)",
    "metadata": _TEXT,
    "rejected_at": "DateTime64(6, 'UTC') DEFAULT now64(6)",
}
REPLAYED = {"replayed_at": "Nullable(DateTime64(6, 'UTC'))", "_version": "UInt64"}
"""A row's version is twice its reading of the source, and one more once it was replayed.

A replay adds the row once more with that version, and a later reading with one that is higher
still: FINAL shows the last of them.
"""
_NARROW = """
SELECT 1 FROM system.columns WHERE database = {database:String} AND table = {table:String}
HAVING countIf(name = '_version') > 0 AND (countIf(name = '_version' AND type = 'UInt64') = 0
    OR countIf(name IN {columns:Array(String)}) < length({columns:Array(String)}))
"""
_WIDEN = "ALTER TABLE {place} {columns} MODIFY COLUMN _version UInt64"


def place(database: str, table: str) -> tuple[str, str]:
    """Database and name of the table beside this one."""
    return database, f"{table}_rejected"


def widen(
    client: Client, where: tuple[str, str], columns: Sequence[str] = ("rows", "metadata")
) -> None:
    """Gives the table of an earlier version these columns, and readings. Raises Failure."""
    asked = dict(zip(("database", "table"), where, strict=True)) | {"columns": [*columns]}
    if not query_rows(client, _NARROW, asked):
        return
    added = "".join(f"ADD COLUMN IF NOT EXISTS {quote(n)} {_COLUMNS[n]}, " for n in columns)
    with failing():
        client.command(_WIDEN.format(place=quote(*where), columns=added))


def version(reading: int) -> int:
    return 2 * reading


def statement(name: str, columns: dict[str, str]) -> str:
    """The DDL of a table that holds each record once under `flow` and `id`."""
    body = ", ".join(f"{quote(column)} {kind}" for column, kind in (columns | REPLAYED).items())
    return (
        f"CREATE TABLE IF NOT EXISTS {name} ({body}) ENGINE = ReplacingMergeTree(_version) "
        f"ORDER BY (flow, id) SETTINGS non_replicated_deduplication_window = {WINDOW}"
    )


def prepare(client: Client, where: tuple[str, str]) -> None:
    """Makes the table where it is missing. Raises Failure."""
    with failing():
        client.command(statement(quote(*where), _COLUMNS))
    widen(client, where)


def store(
    client: Client,
    where: tuple[str, str],
    target: Target,
    piece: Slice,
    rejections: Sequence[Rejection],
) -> None:
    """Writes them; those known by their id stay one row for `FINAL`. Raises Failure."""
    rows = [_row(target, piece, one) for one in rejections]
    prepare(client, where)
    insert_rows(client, quote(*where), rows, inserting(token(rows)))


def token(rows: Sequence[Mapping[str, Any]]) -> str:
    """The token of an INSERT of these rows."""
    ids = [f"{row['id']}@{row['_version']}" if row["_version"] else row["id"] for row in rows]
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()


def _row(target: Target, piece: Slice, one: Rejection) -> dict[str, Any]:
    body, body_encoding = encoded(one.body)
    key, key_encoding = encoded(one.key)
    return {
        "id": one.id(target, piece),
        "flow": target.flow,
        "branch": target.branch,
        "source": target.source,
        "partition": piece.partition,
        "offset": one.offset,
        "n": one.n,
        "stage": one.stage,
        "reason": one.reason.encode("utf-8", "replace").decode(),
        "body": body,
        "body_encoding": body_encoding,
        "key": key,
        "key_encoding": key_encoding,
        "step": one.step,
        "step_type": one.step_type,
        "rows": one.rows,
        "metadata": written(one.metadata),
        "_version": version(one.reading(target, piece)),
    }
