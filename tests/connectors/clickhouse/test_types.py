"""Every type of ClickHouse as the Arrow type it travels as, read from a real engine."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import devservers
from dataflow_assets.connectors.clickhouse import client, types
from dataflow_assets.connectors.clickhouse.type_names import ClickhouseType
from dataflow_assets.contracts import Note
from dataflow_assets.errors import PermanentError

UUID = "9b155af0-0f06-4d56-a294-3d90a9f0a63d"
MOMENT = datetime(2020, 1, 1, 0, 0, 0, 123456, UTC)
SECOND = MOMENT.replace(microsecond=0)
US, TEXT = pa.timestamp("us", "UTC"), pa.string()
CASES: list[tuple[str, str, pa.DataType, bytes | None, Any]] = [
    ("Bool", "true", pa.bool_(), None, True),
    *(
        (
            f"Int{bits}",
            str(-(2 ** (bits - 1))),
            getattr(pa, f"int{bits}")(),
            None,
            -(2 ** (bits - 1)),
        )
        for bits in (8, 16, 32, 64)
    ),
    *(
        (f"UInt{bits}", str(2**bits - 1), getattr(pa, f"uint{bits}")(), None, 2**bits - 1)
        for bits in (8, 16, 32, 64)
    ),
    ("Int128", str(-(2**127)), TEXT, b"numeric", str(-(2**127))),
    ("UInt256", str(2**256 - 1), TEXT, b"numeric", str(2**256 - 1)),
    ("Float32", "0.5", pa.float32(), None, 0.5),
    ("Float64", "0.1", pa.float64(), None, 0.1),
    ("BFloat16", "0.5", pa.float32(), None, 0.5),
    ("Decimal(9, 2)", "'1.25'", pa.decimal128(9, 2), None, Decimal("1.25")),
    (
        "Decimal(76, 10)",
        "'123456789012345678901234567890123456789.0123456789'",
        pa.decimal256(76, 10),
        None,
        Decimal("123456789012345678901234567890123456789.0123456789"),
    ),
    ("String", "'ü\\n'", TEXT, None, "ü\n"),
    ("FixedString(4)", "'ab'", TEXT, None, "ab"),
    ("LowCardinality(String)", "'a'", TEXT, None, "a"),
    ("LowCardinality(Nullable(String))", "NULL", TEXT, None, None),
    ("Nullable(Int8)", "NULL", pa.int8(), None, None),
    ("UUID", f"'{UUID}'", TEXT, b"uuid", UUID),
    ("Date", "'2020-02-29'", pa.date32(), None, date(2020, 2, 29)),
    ("Date32", "'1900-01-01'", pa.date32(), None, date(1900, 1, 1)),
    ("DateTime", "'2020-01-01 00:00:00'", US, None, SECOND),
    ("DateTime('Asia/Tokyo')", "'2020-01-01 09:00:00'", US, None, SECOND),
    ("DateTime64(3)", "'2020-01-01 00:00:00.123'", US, None, MOMENT.replace(microsecond=123000)),
    ("DateTime64(6, 'UTC')", "'2020-01-01 00:00:00.123456'", US, None, MOMENT),
    ("Time", "'100:00:01'", TEXT, b"text", "100:00:01"),
    ("Time64(6)", "'10:00:00.000001'", TEXT, b"text", "10:00:00.000001"),
    ("Enum8('a,(b' = 1, 'c\\'d' = 2)", "'a,(b'", TEXT, b"text", "a,(b"),
    ("IPv4", "'10.0.0.1'", TEXT, b"text", "10.0.0.1"),
    ("IPv6", "'::1'", TEXT, b"text", "::1"),
    ("JSON", '\'{"a": {"b": [1, 2]}}\'', TEXT, b"json", '{"a":{"b":[1,2]}}'),
    ("Dynamic", "5", TEXT, b"text", "5"),
    ("Variant(String, UInt8)", "'x'", TEXT, b"text", "x"),
    ("IntervalDay", "toIntervalDay(3)", pa.int64(), None, 3),
    ("SimpleAggregateFunction(sum, UInt64)", "3", pa.uint64(), None, 3),
    (
        "Map(String, UInt64)",
        "{'a': 18446744073709551615}",
        TEXT,
        b"json",
        '{"a":18446744073709551615}',
    ),
    (
        "Map(String, DateTime64(3, 'UTC'))",
        "{'a': '2020-01-01 00:00:00.123'}",
        TEXT,
        b"json",
        '{"a":"2020-01-01T00:00:00.123Z"}',
    ),
    ("Point", "(1, 2)", TEXT, b"json", "[1,2]"),
    ("Array(Nullable(String))", "['a', NULL]", pa.list_(TEXT), None, ["a", None]),
    ("Array(Array(UUID))", f"[['{UUID}']]", pa.list_(pa.list_(TEXT)), None, [[UUID]]),
    (
        "Tuple(a Int8, `b c` String)",
        "(1, 'x')",
        pa.struct([("a", pa.int8()), ("b c", TEXT)]),
        None,
        {"a": 1, "b c": "x"},
    ),
    (
        "Tuple(Int8, UUID)",
        f"(1, '{UUID}')",
        pa.struct([("1", pa.int8()), ("2", TEXT)]),
        None,
        {"1": 1, "2": UUID},
    ),
]


@pytest.fixture(params=CASES, ids=[case[0] for case in CASES])
def case(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_each_type_is_read_as_the_table_says(
    case: Any, clickhouse: devservers.ClickHouse, database: str
) -> None:
    spelled, value, arrow, kind, expected = case
    connected = client.connect(clickhouse.dsn(database), "tests")
    connected.command(f"CREATE TABLE t (c {spelled}) ENGINE = Memory")
    connected.command(f"INSERT INTO t SELECT {value}" if "(" in value else _values(value))
    found = "SELECT type FROM system.columns WHERE database = currentDatabase() AND table = 't'"
    ((text,),) = client.query_rows(connected, found)
    field = types.field("c", text)
    assert plain(field.type) == plain(arrow)
    assert (field.metadata.get(Note.KIND), field.nullable) == (
        kind,
        ClickhouseType.of(text).nullable,
    )
    query = f"SELECT {types.select_expression('c', text)} AS c FROM t"
    with client.stream(connected, query, settings=types.JSON_SETTINGS) as batches:
        (batch,) = batches
    assert batch.schema.field("c").type == field.type
    assert batch.column("c").to_pylist() == [expected]


def _values(value: str) -> str:
    return f"INSERT INTO t VALUES ({value})"


def plain(arrow: pa.DataType) -> str:
    return str(arrow).replace(" not null", "")


def test_nanoseconds_stay(clickhouse: devservers.ClickHouse) -> None:
    text = "DateTime64(9, 'UTC')"
    value = "toDateTime64('2020-01-01 00:00:00.123456789', 9, 'UTC')"
    query = f"SELECT {types.select_expression('c', text)} AS c FROM (SELECT {value} AS c)"
    with client.stream(client.connect(clickhouse.dsn(), "tests"), query) as batches:
        (batch,) = batches
    assert batch.schema.field("c").type == types.field("c", text).type == pa.timestamp("ns", "UTC")
    assert batch.column("c").cast(pa.int64())[0].as_py() % 1_000 == 789


def test_what_cannot_be_read_says_what_to_do() -> None:
    with pytest.raises(
        PermanentError, match=r"column c has the type AggregateFunction(.|\n)*query"
    ):
        types.field("c", "AggregateFunction(sum, UInt64)")


@pytest.mark.parametrize(
    ("field", "declared"),
    [
        (pa.field("c", pa.int8()), "Nullable(Int8)"),
        (pa.field("c", pa.uint64(), nullable=False), "UInt64"),
        (pa.field("c", pa.bool_(), nullable=False), "Bool"),
        (pa.field("c", pa.float32(), nullable=False), "Float32"),
        (pa.field("c", pa.decimal128(10, 2)), "Nullable(Decimal(10, 2))"),
        (pa.field("c", pa.decimal256(76, 2), nullable=False), "Decimal(76, 2)"),
        (pa.field("c", pa.string(), nullable=False), "String"),
        (pa.field("c", pa.binary(), nullable=False), "String"),
        (pa.field("c", pa.date32(), nullable=False), "Date32"),
        (pa.field("c", pa.time64("us"), nullable=False), "Time64(6)"),
        (pa.field("c", US, nullable=False), "DateTime64(6, 'UTC')"),
        (pa.field("c", pa.timestamp("ns"), nullable=False), "DateTime64(9, 'UTC')"),
        (pa.field("c", TEXT, nullable=False, metadata={Note.KIND: b"uuid"}), "UUID"),
        (pa.field("c", TEXT, metadata={Note.KIND: b"numeric"}), "Nullable(String)"),
        (pa.field("c", pa.list_(pa.int32())), "Array(Nullable(Int32))"),
        (pa.field("c", pa.struct([pa.field("a", TEXT, nullable=False)])), "Tuple(`a` String)"),
        (pa.field("c", pa.null()), "Nullable(String)"),
    ],
)
def test_the_column_made_of_a_field_takes_its_values(field: pa.Field, declared: str) -> None:
    assert types.declaration(field) == declared


def test_a_column_of_the_same_system_is_made_as_it_was(case: Any) -> None:
    spelled = case[0]
    assert types.declaration(types.field("c", spelled)) == spelled
