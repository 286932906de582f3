"""Values that a change has left alone, looked up by keys of every type on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import devservers
from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.client import connect, stream
from dataflow_assets.connectors.clickhouse.sink import kept_values
from dataflow_assets.connectors.clickhouse.sink.kept_values import Filled, fill_gaps
from dataflow_assets.connectors.clickhouse.sink.stored_rows import StoredRows
from dataflow_assets.connectors.clickhouse.table.table import find
from dataflow_assets.connectors.clickhouse.types import CLICKHOUSE_TYPE
from dataflow_assets.contracts import ABSENT, DELETE, INSERT, OP, UNKNOWN, UPDATE
from tests.connectors.clickhouse.driver import Place

WHY = "the value of v is not in the log"
KEYS = {
    "Int32": ["-7", "0", "2147483647"],
    "UInt64": ["0", "18446744073709551615"],
    "String": ["''", "'a,b'", r"'it\'s \\n \t'", "'näme ☃'", r"'\0'", "'{key_0:String}'"],
    "LowCardinality(String)": ["'x'", "'y'"],
    "FixedString(4)": ["'ab'", "'abcd'"],
    "UUID": ["'61f0c404-5cb3-11e7-907b-a6006ad3dba0'"],
    "Date": ["'2026-01-31'", "'1970-01-01'"],
    "Date32": ["'1925-01-31'"],
    "DateTime": ["'2026-01-31 23:59:59'"],
    "DateTime('Europe/Berlin')": ["'2026-07-01 00:00:00'"],
    "DateTime64(3, 'America/New_York')": ["'2026-01-31 23:59:59.123'"],
    "DateTime64(9, 'UTC')": ["'2026-01-31 23:59:59.123456789'"],
    "Decimal(38, 10)": ["'-12345678901234567890.0123456789'", "0"],
    "Enum8('a' = 1, 'b c' = -2)": ["'a'", "'b c'"],
    "Bool": ["true", "false"],
    "Int128": ["'-170141183460469231731687303715884105728'"],
    "IPv4": ["'10.0.0.1'"],
}


@pytest.fixture
def place(clickhouse: devservers.ClickHouse, database: str) -> Place:
    return Place(clickhouse.dsn(database))


@contextmanager
def _stored(place: Place) -> Iterator[StoredRows]:
    """The rows of the table `orders`."""
    client, database = connect(place.dsn, "tests"), place.sink().place()[0]
    try:
        table = find(client, database, "orders")
        assert table is not None
        schema = table.schema(table.sorting_key, frozenset({"_version"}))
        yield StoredRows(client, (database, "orders"), schema, replicated=False)
    finally:
        client.close()


def _fill(place: Place, rows: list[dict[str, Any]], *, in_order: bool = True) -> Filled:
    """Rows of an INSERT; a column that an update leaves out is one that it has left alone."""
    with _stored(place) as stored:
        fields = [*stored.schema]
        masks = [sum(1 << n for n, one in enumerate(fields) if one.name not in r) for r in rows]
        arrays = [pa.array([row.get(one.name) for row in rows], one.type) for one in fields]
        arrays += [
            pa.array([row.get(OP, INSERT) for row in rows], pa.int8()),
            pa.array([mask.to_bytes(2, "little") for mask in masks], pa.binary()),
            pa.array([WHY if row.get(OP) == UPDATE else None for row in rows], pa.string()),
        ]
        names = [*stored.schema.names, OP, ABSENT, UNKNOWN]
        return fill_gaps(
            pa.Table.from_arrays(arrays, names=names), stored.schema, stored, in_order=in_order
        )


def _values(found: Filled) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in found.rows.select(["id", "n", "v", "w"]).to_pylist()]


def _make(place: Place, columns: str, key: str) -> None:
    place.run(
        f"CREATE TABLE orders ({columns}, _version UInt64) ENGINE = ReplacingMergeTree(_version) "
        f"ORDER BY ({key}) SETTINGS non_replicated_deduplication_window = 10"
    )


@pytest.mark.parametrize("kind", [*KEYS])
def test_rows_are_found_by_keys_of_every_type(place: Place, kind: str) -> None:
    _make(place, f"k {kind}, b Int8, v String", "k, b")
    for number, value in enumerate(KEYS[kind]):
        place.run(f"INSERT INTO orders VALUES ({value}, 1, 'old', 1), ({value}, 2, 'x', 2)")
        place.run(f"INSERT INTO orders VALUES ({value}, 1, 'v{number}', 2)")
    with _stored(place) as stored:
        chosen = ", ".join(
            types.select_expression(
                name, stored.schema.field(name).metadata[CLICKHOUSE_TYPE].decode()
            )
            for name in ("k", "b")
        )
        query = f"SELECT DISTINCT {chosen} FROM orders FINAL WHERE b = 1"
        with stream(stored.client, query) as batches:
            keys = pa.Table.from_batches(batches).rename_columns(["k", "b"])
        found, places = stored.values(keys, ["v"])
    values = [found.column("v")[int(at)].as_py() for at in places]
    assert sorted(values) == sorted(f"v{number}" for number in range(len(KEYS[kind])))


def test_more_keys_than_one_statement_takes(place: Place) -> None:
    """Each statement fits into what a server takes of a parameter; some keys are not there."""
    _make(place, "k String, v String", "k")
    place.run("INSERT INTO orders SELECT repeat('k', 50) || number, number, 1 FROM numbers(3000)")
    keys = pa.table({"k": ["k" * 50 + str(number) for number in range(4000)]})
    with _stored(place) as stored:
        found, places = stored.values(keys, ["v"])
    values = [found.column("v")[int(at)].as_py() if at >= 0 else None for at in places]
    assert values == [str(number) for number in range(3000)] + [None] * 1000


TABLE = "id Int32, n Int32, v String, w Nullable(String) DEFAULT 'd'"


def test_values_come_from_the_insert_or_else_from_the_table(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a row that lies in an earlier stretch of the INSERT."""
    monkeypatch.setattr(kept_values, "_AT_ONCE", 1)
    _make(place, TABLE, "id")
    place.run("INSERT INTO orders VALUES (1, 0, 'v1', 'w1', 1), (2, 0, 'v2', 'w2', 1), "
              "(3, 0, 'v3', 'w3', 1), (5, 0, 'v5', 'w5', 1)")  # fmt: skip
    found = _fill(
        place,
        [
            {"id": 1, "n": 1, OP: UPDATE},
            {"id": 2, "n": 1, "v": "new", OP: UPDATE},
            {"id": 2, "n": 2, OP: UPDATE},
            {"id": 3, OP: DELETE},
            {"id": 3, "n": 1, "v": "again", "w": "x"},
            {"id": 4, "n": 1, "v": "v4", "w": "w4"},
            {"id": 3, "n": 2, OP: UPDATE},
            {"id": 4, "n": 2, "w": "W4", OP: UPDATE},
            {"id": 1, "n": 3, "w": "W1", OP: UPDATE},
            {"id": 5, OP: DELETE},
        ],
    )
    assert found.refused == {}
    assert _values(found) == [
        (2, 2, "new", "w2"),
        (3, None, None, None),
        (3, 1, "again", "x"),
        (4, 1, "v4", "w4"),
        (3, 2, "again", "x"),
        (4, 2, "v4", "W4"),
        (1, 3, "v1", "W1"),
        (5, None, None, None),
    ]


def test_each_row_has_its_values_where_the_records_carry_the_version(place: Place) -> None:
    """Then the last row of an INSERT need not be the one that counts."""
    _make(place, TABLE, "id")
    place.run("INSERT INTO orders VALUES (1, 0, 'v1', 'w1', 1)")
    rows = [{"id": 1, "n": n, OP: UPDATE} for n in (2, 1)]
    assert _values(_fill(place, rows, in_order=False)) == [(1, 2, "v1", "w1"), (1, 1, "v1", "w1")]


def test_what_nobody_knows_is_refused_unless_the_column_may_be_without(place: Place) -> None:
    _make(place, TABLE, "id")
    place.run("INSERT INTO orders VALUES (2, 0, 'v2', NULL, 1)")
    found = _fill(
        place,
        [
            {"id": 2, "n": 1, OP: UPDATE},
            {"id": 1, "n": 1, OP: UPDATE},
            {"id": 3, OP: DELETE},
            {"id": 3, "n": 1, OP: UPDATE},
            {"id": 4, "n": 1, "v": "v4", OP: UPDATE},
        ],
    )
    assert sorted(found.refused) == [1, 3]
    assert found.refused[1] == f"{WHY}; and the table has no row of this key with the value"
    assert _values(found)[0] == (2, 1, "v2", None)
    assert _values(found)[4] == (4, 1, "v4", None)
