"""Rejected records beside the target: a table `<table>_rejected`, each record once under its id."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dataflow_assets.connectors.clickhouse.client import quote
from dataflow_assets.connectors.clickhouse.failures import failing
from dataflow_assets.connectors.clickhouse.ledger_table import insert_rows, inserting
from dataflow_assets.connectors.clickhouse.table import WINDOW
from dataflow_assets.contracts import Rejection, Slice, Target

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

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
    "rejected_at": "DateTime64(6, 'UTC') DEFAULT now64(6)",
}
# A replay adds the row once more with a higher version: FINAL shows only that one.
REPLAYED = {"replayed_at": "Nullable(DateTime64(6, 'UTC'))", "_version": "UInt8"}


def place(database: str, table: str) -> str:
    """The table's quoted name."""
    return quote(database, f"{table}_rejected")


def statement(name: str, columns: dict[str, str]) -> str:
    """The DDL of a table that holds each record once under `flow` and `id`."""
    body = ", ".join(f"{quote(column)} {kind}" for column, kind in (columns | REPLAYED).items())
    return (
        f"CREATE TABLE IF NOT EXISTS {name} ({body}) ENGINE = ReplacingMergeTree(_version) "
        f"ORDER BY (flow, id) SETTINGS non_replicated_deduplication_window = {WINDOW}"
    )


def store(
    client: Client, name: str, target: Target, piece: Slice, rejections: Sequence[Rejection]
) -> None:
    """Writes them; those known by their id stay one row for `FINAL`. Raises Failure."""
    rows = [_row(target, piece, one) for one in rejections]
    with failing():
        client.command(statement(name, _COLUMNS))
    insert_rows(client, name, rows, inserting(token([row["id"] for row in rows])))


def token(ids: Sequence[str]) -> str:
    """The token of an INSERT of these records."""
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()


def _row(target: Target, piece: Slice, one: Rejection) -> dict[str, Any]:
    body, body_encoding = _encoded(one.body)
    key, key_encoding = _encoded(one.key)
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
    }


def _encoded(value: bytes | None) -> tuple[str | None, str | None]:
    """As text where it is text, else base64; and which of the two."""
    if value is None:
        return None, None
    try:
        return value.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(value).decode(), "base64"
