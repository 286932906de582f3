"""Tables that the ClickHouse sink makes, and what their columns take."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import devservers
from dataflow_assets.contracts import Note
from dataflow_assets.errors import PermanentError
from tests.connectors.clickhouse.driver import Place, start, store

CREATE = {"autoCreateTable": True}


@pytest.fixture
def place(clickhouse: devservers.ClickHouse, database: str) -> Place:
    return Place(clickhouse.dsn(database), options=dict(CREATE))


def columns(place: Place) -> dict[str, str]:
    where = "table = 'orders' and database = currentDatabase()"
    found = place.run(f"select name, type from system.columns where {where}")
    return {str(name): str(kind) for name, kind in found}


def made(place: Place, sample: pa.Schema, **options: Any) -> dict[str, str]:
    start(place.sink(**options)).table.create(sample)
    return columns(place)


def test_types_of_messages(place: Place) -> None:
    sample = pa.schema(
        {
            "nothing": pa.null(),
            "flag": pa.bool_(),
            "whole": pa.int64(),
            "big": pa.decimal128(38, 0),
            "fraction": pa.float64(),
            "text": pa.string(),
            "at": pa.timestamp("us", "UTC"),
            "list": pa.list_(pa.int64()),
            "object": pa.struct([("a", pa.int64())]),
            "mixed": pa.json_(),
        }
    )
    assert made(place, sample) == {
        "nothing": "Nullable(String)",
        "flag": "Nullable(Bool)",
        "whole": "Nullable(Int64)",
        "big": "Nullable(Decimal(38, 0))",
        "fraction": "Nullable(Float64)",
        "text": "Nullable(String)",
        "at": "Nullable(DateTime64(6, 'UTC'))",
        "list": "Nullable(String)",
        "object": "Nullable(String)",
        "mixed": "Nullable(String)",
        "created_at": "DateTime64(3, 'UTC')",
    }
    schema = start(place.sink()).table.schema()
    assert schema is not None
    kinds = {one.name: (one.metadata or {}).get(Note.KIND) for one in schema}
    assert [name for name, kind in kinds.items() if kind == b"json"] == ["list", "mixed", "object"]
    row = {"whole": 2**62, "big": Decimal(10**30), "object": '{"a": 1.50}', "flag": True}
    store(place.sink(), [row])
    assert place.rows("whole, big, object, flag, at") == [
        (2**62, Decimal(10**30), '{"a": 1.50}', True, None)
    ]


def test_types_of_typed_sources(place: Place) -> None:
    def text(kind: bytes) -> pa.Field:
        return pa.field(kind.decode(), pa.string(), metadata={Note.KIND: kind})

    sample = pa.schema(
        [
            pa.field("tiny", pa.uint8()),
            pa.field("amount", pa.decimal128(12, 3)),
            pa.field("wide", pa.decimal256(60, 2)),
            pa.field("day", pa.date32()),
            pa.field("time", pa.time64("us")),
            pa.field("fine", pa.timestamp("ns", "UTC")),
            pa.field("raw", pa.binary()),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("pair", pa.struct([("a", pa.int32()), ("b", pa.string())])),
            *map(text, (b"uuid", b"numeric", b"json", b"text")),
        ]
    )
    found = made(place, sample, orderBy="tiny")
    assert found == {
        "amount": "Nullable(Decimal(12, 3))",
        "day": "Nullable(Date32)",
        "fine": "Nullable(DateTime64(9, 'UTC'))",
        "json": "Nullable(String)",
        "numeric": "Nullable(String)",
        "pair": "Tuple(a Nullable(Int32), b Nullable(String))",
        "raw": "Nullable(String)",
        "tags": "Array(Nullable(String))",
        "text": "Nullable(String)",
        "time": "Nullable(Time64(6))",
        "tiny": "UInt8",
        "uuid": "Nullable(UUID)",
        "wide": "Nullable(Decimal(60, 2))",
        "created_at": "DateTime64(3, 'UTC')",
    }
    uuid = "5c9b1e0e-7d2c-4b57-9a7e-0f0c4e6d2b11"
    row = {
        "tiny": 255,
        "amount": Decimal("1.250"),
        "wide": Decimal(10**50),
        "day": date(2026, 1, 31),
        "fine": datetime(2026, 1, 31, 1, 2, 3, 456789, tzinfo=UTC),
        "tags": ["x", None],
        "pair": {"a": 1, "b": None},
        "uuid": uuid,
        "numeric": "1" * 60,
        "json": '{"a":1}',
        "text": "x",
    }
    store(place.sink(), [row])
    assert place.rows("tiny, amount, wide, day, tags, toString(uuid), numeric") == [
        (255, Decimal("1.250"), Decimal(10**50), date(2026, 1, 31), ["x", None], uuid, "1" * 60)
    ]


def test_the_manifest_s_types_order_and_partitions(place: Place) -> None:
    sample = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    options = {
        "columns": {"id": "UInt32", "more": "LowCardinality(String) DEFAULT 'x'"},
        "orderBy": ["id", "at"],
        "partitionBy": "toYYYYMM(at)",
    }
    found = made(place, sample, **options)
    assert found["id"] == "UInt32"
    assert found["at"] == "DateTime64(6, 'UTC')"
    where = "name = 'orders' and database = currentDatabase()"
    ((full,),) = place.run(f"select engine_full from system.tables where {where}")
    assert str(full).startswith("MergeTree PARTITION BY toYYYYMM(at) ORDER BY (id, at)")
    assert "non_replicated_deduplication_window = 10000" in str(full)
    store(place.sink(**options), [{"id": 1, "at": datetime(2026, 1, 1, tzinfo=UTC)}])
    assert place.rows("id, more") == [(1, "x")]


def test_defaults_of_columns_that_records_lack(place: Place) -> None:
    place.make("id Int64, a Int32 default 7, b Nullable(Int32) default 8, c Int32 alias a + 1")
    schema = start(place.sink()).table.schema()
    assert schema is not None
    assert schema.names == ["id", "a", "b"]
    store(place.sink(), [{"id": 1}, {"id": 2, "a": 1, "b": 1}])
    assert place.rows("id, a, b, c") == [(1, 7, 8, 8), (2, 1, 1, 2)]


@pytest.mark.parametrize(
    ("options", "sample", "reason"),
    [
        ({"autoCreateTable": False}, [("id", pa.int64())], "set autoCreateTable: true"),
        ({}, [], "hold no object with its columns"),
        ({"orderBy": "x"}, [("id", pa.int64())], "x of its ORDER BY is in none"),
        ({"upsertMode": True}, [("a", pa.int64())], "upsertMode needs a key"),
    ],
)
def test_tables_that_cannot_be_made(
    place: Place, options: dict[str, Any], sample: list[Any], reason: str
) -> None:
    with pytest.raises(PermanentError, match=reason):
        start(place.sink(**options)).table.create(pa.schema(sample))
