"""Rounds of a fold: where the stored version decides, the rows of a key go one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dataflow_assets.connectors.postgresql.sink import key_order
from dataflow_assets.connectors.postgresql.sink.fold_keys import steps
from dataflow_assets.connectors.postgresql.sink.upsert_rules import GROUP, PostgresqlRules
from dataflow_assets.connectors.postgresql.table.column import COMPARED
from dataflow_assets.contracts import DELETE, OP, UPDATE
from tests.connectors.postgresql.driver import batch

INT = {COMPARED: b"int8"}
ID, VALUE = pa.field("id", pa.int64(), metadata=INT), pa.field("v", pa.int64(), metadata=INT)
NUMBERED = pa.schema([ID, pa.field("version", pa.int64(), metadata=INT), VALUE])
WORDED = pa.schema([ID, pa.field("version", pa.string(), metadata={COMPARED: b"text"}), VALUE])
Steps = list[tuple[str, list[tuple[int, int | None]]]]


def _folded(schema: pa.Schema, records: Sequence[dict[str, Any]], *, hard: bool = False) -> Steps:
    """By step the key of each row and its value."""
    rows = batch(schema, records)
    group = key_order.numbers(rows, ("id",), schema)
    assert group is not None
    keys = dict(zip(group.tolist(), rows.column("id").to_pylist(), strict=True))
    found: Steps = []
    for step in steps(rows, group, PostgresqlRules(schema, ("id",), "version", hard=hard)):
        listed = step.rows.to_pylist()
        assert [keys[row[GROUP]] for row in listed] == [row["id"] for row in listed]
        found.append((step.verb, [(row["id"], row.get("v")) for row in listed]))
    return found


def test_a_round_without_the_first_key() -> None:
    """A delete with all columns ends the first round, and the row behind it is alone."""
    records: list[dict[str, Any]] = [
        {"id": 5, "version": 1, "v": 50, OP: UPDATE},
        {"id": 7, "version": 1, "v": 70, OP: DELETE},
        {"id": 7, "version": 1, "v": 71},
    ]
    assert _folded(NUMBERED, records, hard=True) == [
        ("delete", [(7, None)]),
        ("upsert", [(5, 50)]),
        ("upsert", [(7, 71)]),
    ]


def test_a_round_without_the_first_key_where_only_the_server_orders_versions() -> None:
    records = [
        {"id": 1, "version": "a", "v": 10},
        {"id": 2, "version": "a", "v": 20},
        {"id": 2, "version": "b", "v": 21},
    ]
    assert _folded(WORDED, records) == [
        ("upsert", [(1, 10), (2, 20)]),
        ("upsert", [(2, 21)]),
    ]


def test_a_round_in_another_order_than_the_first() -> None:
    """Each row with the number of its own key: by that its place is known."""
    records = [
        {"id": 1, "version": "a", "v": 10},
        {"id": 2, "version": "a", "v": 20},
        {"id": 2, "version": "b", "v": 21},
        {"id": 1, "version": "b", "v": 11},
    ]
    assert _folded(WORDED, records) == [
        ("upsert", [(1, 10), (2, 20)]),
        ("upsert", [(1, 11), (2, 21)]),
    ]
