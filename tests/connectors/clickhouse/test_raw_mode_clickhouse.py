"""Raw mode: bodies and metadata as they stand in ClickHouse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.clickhouse import client
from dataflow_assets.connectors.clickhouse.sink.sink import ClickhouseSink
from dataflow_assets.errors import PermanentError
from tests.conftest import Topics
from tests.matrix.test_raw_mode import (
    BIG,
    FLAT,
    KEPT,
    NUL,
    PLAIN,
    REFUSED,
    TYPED,
    WRAPPED,
    MakePipe,
    Pipe,
    exactly,
    metadata_of,
    wrapped_with,
)


@pytest.fixture
def tables(clickhouse: devservers.ClickHouse, database: str) -> Iterator[Any]:
    with client.connect(clickhouse.dsn(database), "tests") as connected:
        yield connected


@pytest.fixture
def to_clickhouse(
    kafka: devservers.Kafka,
    topic: Topics,
    tables: Any,
    clickhouse: devservers.ClickHouse,
    database: str,
    engine: SparkSession,
) -> MakePipe:
    def make(*, table: str = "", **config: Any) -> Pipe:
        if table:
            tables.command(
                f"create table t ({table}) engine = MergeTree order by tuple() "
                "settings non_replicated_deduplication_window = 100"
            )
        base = {"connectionString": clickhouse.dsn(database), "table": "t"}
        sink = ClickhouseSink.model_validate({**base, "autoCreateTable": not table, **config})

        def read() -> list[dict[str, Any]]:
            return list(tables.query("select * from t").named_results())

        def refused() -> list[str]:
            query = "select reason from t_rejected final order by offset"
            return [reason for (reason,) in client.query_rows(tables, query)]

        return Pipe(kafka, topic(1, KEPT), engine, sink, read, refused)

    return make


def columns(tables: Any) -> dict[str, str]:
    where = "database = currentDatabase() and table = 't'"
    return dict(client.query_rows(tables, f"select name, type from system.columns where {where}"))


def test_the_table_is_there_before_the_first_record(to_clickhouse: MakePipe, tables: Any) -> None:
    assert to_clickhouse(rawMode=True).drain() == []
    assert list(columns(tables)) == ["data", "_metadata", "created_at"]


def test_whole_bodies_and_their_metadata(to_clickhouse: MakePipe, tables: Any) -> None:
    """The original keeps no metadata here, and takes no wrapped body apart."""
    pipe = to_clickhouse(rawMode=True)
    texts = [b'{"z": 1.10, "a": %d, "u": "\\u00e9"}' % BIG, b"no json", b"", b'"text"', NUL]
    plain = [body for what, body in PLAIN if what != "big and exact"]
    wrapped = [body for body, _, _ in WRAPPED]
    rows = pipe.drain(*texts, *plain, *wrapped, *(body for body, _ in REFUSED))
    assert columns(tables) == {
        "data": "String",
        "_metadata": "Nullable(String)",
        "created_at": "DateTime64(3, 'UTC')",
    }
    assert rows[0]["data"] == f'{{"z":1.10,"a":{BIG},"u":"é"}}'
    assert [row["data"] for row in rows[1:4]] == ["no json", "", '"text"']
    assert exactly(rows[4]["data"]) == exactly(NUL)
    assert json.loads(rows[0]["_metadata"]) == metadata_of(pipe, 0)
    rest = rows[len(texts) :]
    assert [exactly(row["data"]) for row in rest[: len(plain)]] == [exactly(b) for b in plain]
    for row, (_, value, metadata) in zip(rest[len(plain) :], WRAPPED, strict=True):
        assert json.loads(row["data"]) == value
        assert json.loads(row["_metadata"] or "null") == metadata
    assert rows[-1]["_metadata"] == f'{{"z":1,"a":{BIG}}}'
    for reason, (_, part) in zip(pipe.refused(), REFUSED, strict=True):
        assert part in reason


def test_metadata_as_columns(to_clickhouse: MakePipe, tables: Any) -> None:
    rows = to_clickhouse(**FLAT, flattenMetadataColumnsPrefix="m_").drain(*wrapped_with(TYPED))
    assert columns(tables) == {
        "data": "String",
        "m_a": "Nullable(Bool)",
        "m_b": "Nullable(Float64)",
        "m_c": "Nullable(String)",
        "m_d": "Nullable(String)",
        "m_e": "Nullable(String)",
        "m_f": "Nullable(String)",
        "m_g": "Nullable(Int64)",
        "m_h": "Nullable(String)",
        "m_partition": "Nullable(Int32)",
        "m_timestamp": "Nullable(DateTime64(6, 'UTC'))",
        "created_at": "DateTime64(3, 'UTC')",
    }
    assert rows[0]["m_timestamp"].isoformat() == "2026-09-21T14:13:20.123000"
    assert sorted(row["m_c"] for row in rows) == ["1", "x"]


def test_metadata_that_comes_later_is_left_out(to_clickhouse: MakePipe, tables: Any) -> None:
    pipe = to_clickhouse(**FLAT)
    pipe.drain(b'{"value": 1, "_metadata": {"offset": 1}}')
    rows = pipe.drain(b'{"value": 2, "_metadata": {"late": 1}}')
    assert "late" not in columns(tables)
    found = sorted((row["data"], row["offset"]) for row in rows)
    assert found == [("1", 1), ("2", None)]


@pytest.mark.parametrize(
    ("table", "config", "message"),
    [
        ("data String", {"rawMode": True}, "no column _metadata, which rawMode writes to"),
        ("data Int64, _metadata String", {"rawMode": True}, "must hold JSON or text"),
        ("data String, _metadata String", FLAT, "has a column _metadata, which flattenMetadata"),
    ],
)
def test_tables_that_do_not_fit(
    to_clickhouse: MakePipe, table: str, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(PermanentError, match=message):
        to_clickhouse(table=table, **config).drain(b"1")


def test_wrapped_bodies_fill_columns(to_clickhouse: MakePipe) -> None:
    pipe = to_clickhouse(table="id Int64, name Nullable(String)")
    rows = pipe.drain(b'{"value": {"id": 1, "name": "x"}, "_metadata": {}}', b'{"id": 2}')
    assert rows == [{"id": 1, "name": "x"}, {"id": 2, "name": None}]
