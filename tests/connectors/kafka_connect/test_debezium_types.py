"""Values that Debezium has coded in its own way, in a table of the same types on the other side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import devservers
from tests.connectors.kafka_connect.debezium import Followed, followed
from tests.connectors.kafka_connect.driver import Flow
from tests.drained import drain_file

pytestmark = pytest.mark.heavy

LARGE = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) i)"
TYPES: tuple[tuple[str, str, str], ...] = (
    ("num", "numeric", "123.456"),
    ("money_like", "numeric(36,18)", "'-1.000000000000000001'"),
    ("small", "numeric(5,2)", "-0.05"),
    ("at", "timestamp", "'2022-11-01 12:00:01.123456'"),
    ("at_ms", "timestamp(3)", "'1969-12-31 23:59:59.999'"),
    ("atz", "timestamptz", "'2022-11-01 12:00:01.123456+05:30'"),
    ("day", "date", "'0001-01-01'"),
    ("clock", "time", "'23:59:59.999999'"),
    ("clockz", "timetz", "'23:59:59.5+00'"),
    ("span", "interval", "'90 minutes'"),
    ("bits", "bit(10)", "B'1000000101'"),
    ("one_bit", "bool", "true"),
    ("doc", "jsonb", """'{"a": [1.10, null]}'"""),
    ("id_text", "uuid", "'b0e2a2a4-0f2b-4a6e-9d6b-6c1f3f6b8a11'"),
    ("raw", "bytea", "'\\x00ff'"),
    ("words", "text[]", "'{a,NULL,\"b c\"}'"),
    ("amounts", "numeric(10,2)[]", "'{1.50,NULL}'"),
    ("days", "date[]", "'{2022-11-01,NULL}'"),
    ("whole", "bigint", "9223372036854775807"),
    ("precise", "double precision", "0.1"),
)


@pytest.fixture
def table(postgresql: devservers.PostgreSQL) -> Iterator[Followed]:
    with followed(postgresql) as table:
        yield table


def flow(table: Followed, folder: Path) -> Flow:
    sink = {
        "type": "postgresql",
        "config": {
            "connectionString": table.server.dsn(),
            "table": f"{table.name}.copies",
            "upsertMode": True,
            "conflictKey": "id",
            "deleteMode": "hard",
        },
    }
    reading = {**table.source(folder), "envelope": False, "schemas": True, "tombstones": "skip"}
    return Flow(folder, reading, transformations=[{"type": "debeziumUnwrap"}], sink=sink)


def test_each_value_arrives_as_it_was_and_large_ones_stay(table: Followed, tmp_path: Path) -> None:
    """First rows and changes; the update leaves a large value alone, the last change deletes."""
    columns = ", ".join(f"{name} {kind}" for name, kind, _ in TYPES)
    values = ", ".join(value for _, _, value in TYPES)
    names = ", ".join(name for name, _, _ in TYPES)
    with psycopg.connect(table.server.dsn(), autocommit=True) as connection:

        def run(statement: str) -> list[Any]:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

        def rows(of: str) -> list[Any]:
            return run(f"SELECT c::text FROM (SELECT * FROM {table.name}.{of} ORDER BY id) c")

        for column in (f"{name} {kind}" for name, kind, _ in TYPES):
            run(f"ALTER TABLE {table.name}.rows ADD {column}")
        run(f"ALTER TABLE {table.name}.rows ALTER pad SET STORAGE EXTERNAL")
        run(f"CREATE TABLE {table.name}.copies (id bigint PRIMARY KEY, pad text, {columns})")
        insert = f"INSERT INTO {table.name}.rows (id, pad, {names})"
        run(f"{insert} SELECT 1, {LARGE}, {values}")
        run(f"INSERT INTO {table.name}.rows (id) VALUES (2)")
        copy = flow(table, tmp_path)
        drain_file(copy.manifest)
        assert rows("copies") == rows("rows")
        run(f"{insert} SELECT 3, {LARGE}, {values}")
        run(f"UPDATE {table.name}.rows SET whole = 5, day = '2022-11-01' WHERE id = 1")
        run(f"DELETE FROM {table.name}.rows WHERE id = 2")
        drain_file(copy.manifest)
        assert len(rows("rows")) == 2
        assert rows("copies") == rows("rows")
