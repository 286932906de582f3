"""docs/types.md, cell by cell: the type that a table gets for each type of a source, and its value.

Each source has one table with a column for every type of its page; a flow takes it to each sink,
which makes the table, and both the column's type and the value are compared.
"""

from __future__ import annotations

import json
import uuid
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyspark.sql import SparkSession

from dataflow_assets import registry
from dataflow_assets.contracts import Note, Source, TypeRow
from dataflow_assets.manifests.load import load
from dataflow_assets.reference.types import tables
from dataflow_assets.sdk.types.table import ListsTypes
from dataflow_assets.testing import choose
from tests.flows import SYSTEMS, made_by, manifest
from tests.matrix.test_matrix import run
from tests.systems import Config, System

UUID = "9b155af0-0f06-4d56-a294-3d90a9f0a63d"
STAMP = "2020-02-29T12:00:00.123456Z"


@dataclass(frozen=True)
class Cell:
    """One type of a source's page with a value, as the source is given it and as it must arrive."""

    documented: str
    declared: Any
    given: Any
    arrives: Any


def _same(kind: str, given: Any, arrives: Any) -> Cell:
    return Cell(kind, kind, given, arrives)


CLICKHOUSE = (
    _same("Bool", "true", True),
    *(_same(f"Int{bits}", str(-(2 ** (bits - 1))), -(2 ** (bits - 1))) for bits in (8, 16, 32, 64)),
    *(_same(f"UInt{bits}", str(2**bits - 1), 2**bits - 1) for bits in (8, 16, 32, 64)),
    Cell("Int128, Int256, UInt128, UInt256", "Int128", str(-(2**127)), -(2**127)),
    _same("Float32", "0.5", 0.5),
    _same("BFloat16", "0.5", 0.5),
    _same("Float64", "0.1", 0.1),
    _same("String", "'ü\\n'", "ü\n"),
    Cell("FixedString", "FixedString(4)", "'ab'", "ab"),
    _same("UUID", f"'{UUID}'", UUID),
    Cell("Enum, Enum8, Enum16", "Enum8('a' = 1)", "'a'", "a"),
    Cell("IPv4, IPv6", "IPv6", "'::1'", "::1"),
    Cell("Date, Date32", "Date32", "'1920-02-29'", "1920-02-29"),
    Cell("DateTime, DateTime32", "DateTime", "'2020-02-29 12:00:00'", "2020-02-29T12:00:00Z"),
    Cell("Time, Time64", "Time", "'100:00:01'", "100:00:01"),
    _same("JSON", '\'{"a": [1, "x"]}\'', {"a": [1, "x"]}),
    Cell("Dynamic, Variant", "Variant(String, UInt8)", "'x'", "x"),
    _same("Decimal(9, 2)", "'1.25'", Decimal("1.25")),
    Cell("DateTime64(0 to 6)", "DateTime64(6)", "'2020-02-29 12:00:00.123456'", STAMP),
    Cell("DateTime64(7 to 9)", "DateTime64(9)", "'2020-02-29 12:00:00.123456'", STAMP),
    _same("Array(Int32)", "[1, 2]", [1, 2]),
    _same("Tuple(a Int32)", "tuple(7)", {"a": 7}),
    Cell(
        "Map, Object, QBit, Point, Ring, Polygon, MultiPolygon, LineString, MultiLineString",
        "Map(String, UInt64)",
        "map('k', 18446744073709551615)",
        {"k": 2**64 - 1},
    ),
)
INTERVALS = "IntervalNanosecond"  # nothing but a query makes one, so a table has none

NOON = datetime(2020, 2, 29, 12, 0, 0, 123456, UTC)
ICEBERG = (
    Cell("boolean", ice.BooleanType(), True, True),
    Cell("int", ice.IntegerType(), -(2**31), -(2**31)),
    Cell("long", ice.LongType(), 2**63 - 1, 2**63 - 1),
    Cell("float", ice.FloatType(), 0.5, 0.5),
    Cell("double", ice.DoubleType(), 0.1, 0.1),
    Cell("date", ice.DateType(), date(1920, 2, 29), "1920-02-29"),
    Cell("time", ice.TimeType(), time(23, 59, 59, 999999), "23:59:59.999999"),
    Cell("timestamp", ice.TimestampType(), NOON.replace(tzinfo=None), STAMP),
    Cell("timestamptz", ice.TimestamptzType(), NOON, STAMP),
    Cell("string", ice.StringType(), "ü\n", "ü\n"),
    Cell("uuid", ice.UUIDType(), bytes.fromhex(UUID.replace("-", "")), UUID),
    Cell("binary", ice.BinaryType(), b"\x00\xff", b"\x00\xff"),
    Cell("fixed[16]", ice.FixedType(16), bytes(range(16)), bytes(range(16))),
    Cell("decimal(18, 4)", ice.DecimalType(18, 4), Decimal("1.2500"), Decimal("1.25")),
    Cell("list<long>", ice.ListType(90, ice.LongType(), element_required=False), [1, 2], [1, 2]),
    Cell(
        "struct<1: a: optional long>",
        ice.StructType(ice.NestedField(91, "a", ice.LongType(), required=False)),
        {"a": 7},
        {"a": 7},
    ),
    Cell(
        "map<string, long>",
        ice.MapType(92, ice.StringType(), 93, ice.LongType(), value_required=False),
        [("k", 5)],
        {"k": 5},
    ),
    Cell('string "JSON text"', (ice.StringType(), "JSON text"), '{"a": 1}', {"a": 1}),
    Cell(
        'string "Digits of a number"',
        (ice.StringType(), "Digits of a number"),
        "1" * 50,
        int("1" * 50),
    ),
)
NOT_IN_TABLES = {  # of format version 3 only, which PyIceberg does not write yet
    "timestamp_ns",
    "timestamptz_ns",
    "geometry",
    "geography",
    "unknown",
}
POSTGRESQL = (
    Cell("bool", "boolean", "true", True),
    Cell("int2", "smallint", "-32768", -32768),
    Cell("int4", "integer", "-2147483648", -(2**31)),
    Cell("int8", "bigint", "9223372036854775807", 2**63 - 1),
    Cell("oid", "oid", "4294967295", 2**32 - 1),
    Cell("float4", "real", "0.5", 0.5),
    Cell("float8", "double precision", "0.1", 0.1),
    Cell("numeric", "numeric", "1" * 60 + ".25", Decimal("1" * 60 + ".25")),
    Cell("text", "text", "ü\n", "ü\n"),
    Cell("varchar", "character varying", "v", "v"),
    Cell("bpchar", "character(4)", "ab", "ab  "),
    Cell("name", "name", "n", "n"),
    Cell("bytea", "bytea", r"\x00ff", b"\x00\xff"),
    Cell("date", "date", "1920-02-29", "1920-02-29"),
    Cell("time", "time without time zone", "23:59:59.999999", "23:59:59.999999"),
    Cell("timestamp", "timestamp without time zone", "2020-02-29 12:00:00.123456", STAMP),
    Cell("timestamptz", "timestamp with time zone", "2020-02-29 14:00:00.123456+02", STAMP),
    Cell("json", "json", '{"a": [1, "x"]}', {"a": [1, "x"]}),
    Cell("jsonb", "jsonb", '{"a": [1, "x"]}', {"a": [1, "x"]}),
    Cell("uuid", "uuid", UUID, UUID),
    Cell("int4[]", "integer[]", "{1,NULL}", [1, None]),
    Cell("numeric[]", "numeric[]", "{1.25}", [Decimal("1.25")]),
    Cell("text[][]", "text[][]", "{{a,b}}", [["a", "b"]]),
    *(
        Cell(kind, spelled, text, text)
        for kind, spelled, text in (
            ("timetz", "time with time zone", "12:00:00+02"),
            ("interval", "interval", "1 day 02:00:00"),
            ("inet", "inet", "10.0.0.1/8"),
            ("cidr", "cidr", "10.0.0.0/8"),
            ("macaddr", "macaddr", "08:00:2b:01:02:03"),
            ("bit", "bit(3)", "101"),
            ("varbit", "bit varying", "101"),
            ("money", "money", "$1.25"),
            ("xml", "xml", "<a/>"),
            ("point", "point", "(1,2)"),
            ("tsvector", "tsvector", "'a'"),
            ("int4range", "int4range", "[1,3)"),
            ("int4multirange", "int4multirange", "{[1,3)}"),
            ("an enum", "{schema}.mood", "ok"),
            ("a composite", "{schema}.pair", "(1,x)"),
            ("a domain", "{schema}.short", "s"),
        )
    ),
)
TRINO = (
    _same("boolean", "true", True),
    _same("tinyint", "-128", -128),
    _same("smallint", "-32768", -32768),
    _same("integer", "-2147483648", -(2**31)),
    _same("bigint", "9223372036854775807", 2**63 - 1),
    _same("real", "REAL '0.5'", 0.5),
    _same("double", "DOUBLE '0.1'", 0.1),
    _same("varchar", "U&'\\00fc\\000a'", "ü\n"),
    Cell("char", "char(3)", "'ab'", "ab "),
    _same("varbinary", "X'00ff'", b"\x00\xff"),
    _same("date", "DATE '1920-02-29'", "1920-02-29"),
    _same("json", 'JSON \'{"a": [1, "x"]}\'', {"a": [1, "x"]}),
    _same("uuid", f"UUID '{UUID}'", UUID),
    _same("ipaddress", "IPADDRESS '::1'", "::1"),
    _same("interval day to second", "INTERVAL '3' DAY", "3 00:00:00.000"),
    _same("interval year to month", "INTERVAL '5' MONTH", "0-5"),
    _same("decimal(10, 2)", "DECIMAL '1.25'", Decimal("1.25")),
    _same("time(6)", "TIME '23:59:59.999999'", "23:59:59.999999"),
    _same("time(6) with time zone", "TIME '12:00:00.123456 +02:00'", "12:00:00.123456+02:00"),
    _same("timestamp(6)", "TIMESTAMP '2020-02-29 12:00:00.123456'", STAMP),
    _same("timestamp(9)", "TIMESTAMP '2020-02-29 12:00:00.123456000'", STAMP),
    Cell(
        "timestamp(6) with time zone",
        "timestamp(6) with time zone",
        "TIMESTAMP '2020-02-29 13:00:00.123456 Europe/Berlin'",
        STAMP,
    ),
    Cell(
        "timestamp(9) with time zone",
        "timestamp(9) with time zone",
        "TIMESTAMP '2020-02-29 12:00:00.123456000 UTC'",
        STAMP,
    ),
    _same("array(integer)", "ARRAY[1, 2]", [1, 2]),
    _same("row(a integer)", "ROW(7)", {"a": 7}),
    _same("map(varchar, integer)", "MAP(ARRAY['k'], ARRAY[5])", {"k": 5}),
)
MYSQL = (
    _same("tinyint", "-128", -128),
    _same("tinyint unsigned", "255", 255),
    _same("smallint", "-32768", -32768),
    _same("smallint unsigned", "65535", 65535),
    Cell("mediumint, int", "int", str(-(2**31)), -(2**31)),
    Cell("mediumint unsigned, int unsigned", "int unsigned", str(2**32 - 1), 2**32 - 1),
    _same("bigint", str(-(2**63)), -(2**63)),
    _same("bigint unsigned", str(2**64 - 1), 2**64 - 1),
    _same("year", "2155", 2155),
    _same("float", "0.5", 0.5),
    _same("double", "0.1", 0.1),
    _same("date", "'1920-02-29'", "1920-02-29"),
    Cell("datetime", "datetime(6)", "'2020-02-29 12:00:00.123456'", STAMP),
    Cell("timestamp", "timestamp(6)", "'2020-02-29 14:00:00.123456'", STAMP),
    _same("time", "'-838:59:59'", "-838:59:59"),
    Cell("char, varchar", "varchar(9) character set latin1", "'ü'", "ü"),
    Cell("tinytext, text, mediumtext, longtext", "text", "'ü\n'", "ü\n"),
    Cell("enum, set", "enum('a','b')", "'b'", "b"),
    _same("json", '\'{"a": [1, "x"]}\'', {"a": [1, "x"]}),
    _same("uuid", f"'{UUID}'", UUID),
    Cell("inet4, inet6", "inet6", "'::1'", "::1"),
    Cell("binary", "binary(2)", "x'ff00'", b"\xff\x00"),
    Cell("varbinary", "varbinary(9)", "x'ff00'", b"\xff\x00"),
    Cell("tinyblob, blob, mediumblob, longblob", "blob", "x'ff00'", b"\xff\x00"),
    Cell(
        "geomcollection, geometry, geometrycollection, linestring, multilinestring, multipoint, "
        "multipolygon, point, polygon",
        "point",
        "POINT(1, 2)",
        "POINT(1 2)",
    ),
    _same("bit(1)", "1", True),
    _same("bit(8)", "255", 255),
    _same("decimal(10,2)", "1.25", Decimal("1.25")),
    _same("decimal(65,30)", "-1e34", Decimal("-1e34")),
)
EXTENSIONS = {"citext"}  # only where somebody has installed it
CELLS: Mapping[str, tuple[Cell, ...]] = {
    "clickhouse": CLICKHOUSE,
    "iceberg": ICEBERG,
    "mysql": MYSQL,
    "nessie": ICEBERG,
    "postgresql": POSTGRESQL,
    "trino": TRINO,
}


def seed(system: System, config: Config, cells: Sequence[Cell]) -> None:
    """One table, a column for each cell: c0, c1, ...; one row."""
    known = {
        "clickhouse": _clickhouse,
        "iceberg": _iceberg,
        "mysql": _mysql,
        "nessie": _iceberg,
        "postgresql": _postgresql,
        "trino": _trino,
    }
    known[system.type](system, config, cells)


def _trino(system: Any, config: Config, cells: Sequence[Cell]) -> None:
    """In the catalog `memory`: those of databases and lakes do not have every type."""
    config |= {"catalog": "memory", "schema": "default", "table": f"t_{uuid.uuid4().hex[:12]}"}
    place = f"memory.default.{config['table']}"
    columns = ", ".join(f"c{number} {cell.declared}" for number, cell in enumerate(cells))
    system.execute(f"CREATE TABLE {place} (id bigint, {columns})")
    values = ", ".join(f"CAST({cell.given} AS {cell.declared})" for cell in cells)
    system.execute(f"INSERT INTO {place} VALUES (1, {values})")


def _postgresql(system: Any, config: Config, cells: Sequence[Cell]) -> None:
    schema = config["table"].partition(".")[0]
    columns = ", ".join(f"c{n} {c.declared.format(schema=schema)}" for n, c in enumerate(cells))
    with psycopg.connect(system.dsn, autocommit=True) as connection:
        for statement in (
            f"create type {schema}.mood as enum ('ok')",
            f"create type {schema}.pair as (a int, b text)",
            f"create domain {schema}.short as text check (length(value) < 3)",
            f"create table {config['table']} (id bigint primary key, {columns})",
        ):
            connection.execute(statement.encode())
        values = ", ".join(["%s"] * len(cells))
        sql = f"insert into {config['table']} values (1, {values})"
        connection.execute(sql.encode(), [cell.given for cell in cells])


def _clickhouse(system: Any, config: Config, cells: Sequence[Cell]) -> None:
    columns = ", ".join(f"c{number} {cell.declared}" for number, cell in enumerate(cells))
    settings = {"allow_suspicious_low_cardinality_types": 1}
    system.client.command(
        f"CREATE TABLE {config['table']} (id Int64, {columns}) ENGINE = MergeTree ORDER BY id",
        settings=settings,
    )
    values = ", ".join(cell.given for cell in cells)
    system.client.command(f"INSERT INTO {config['table']} VALUES (1, {values})")


def _mysql(system: Any, config: Config, cells: Sequence[Cell]) -> None:
    columns = ", ".join(f"c{number} {cell.declared}" for number, cell in enumerate(cells))
    system.server.execute(
        f"CREATE TABLE {config['table']} (id bigint PRIMARY KEY, {columns})",
        f"INSERT INTO {config['table']} VALUES (1, {', '.join(cell.given for cell in cells)})",
        database=config["database"],
    )


def _iceberg(system: Any, config: Config, cells: Sequence[Cell]) -> None:
    columns = [ice.NestedField(1, "id", ice.LongType(), required=False)]
    for number, cell in enumerate(cells):
        kind, doc = cell.declared if isinstance(cell.declared, tuple) else (cell.declared, None)
        columns.append(ice.NestedField(number + 2, f"c{number}", kind, doc=doc, required=False))
    table = system.catalog.create_table((config["namespace"], config["table"]), Schema(*columns))
    row = {"id": 1, **{f"c{number}": cell.given for number, cell in enumerate(cells)}}
    arrow = table.schema().as_arrow()
    table.append(pa.table([_array(row[field.name], field.type) for field in arrow], schema=arrow))


def _array(value: Any, kind: pa.DataType) -> pa.Array:
    if kind == pa.uuid():
        return pa.array([value], pa.binary(16)).cast(kind)
    return pa.array([value], kind)


def canonical(value: Any, column: pa.Field) -> Any:
    """Python's value of any client in one form; text of a kind as what it says."""
    kind = (column.metadata or {}).get(Note.KIND)
    if isinstance(value, str) and kind == b"json":
        return json.loads(value)
    if isinstance(value, str) and kind == b"numeric":
        return Decimal(value)
    if isinstance(value, str) and _compound(column.type):
        value = json.loads(value)
    if isinstance(value, list) and pa.types.is_list(column.type):
        return [canonical(each, column.type.value_field) for each in value]
    if pa.types.is_binary(column.type):
        return _octets(value)
    return _plain(value)


def _compound(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_struct(kind))


def _octets(value: Any) -> str:
    """A column of text has them as base64."""
    return value if isinstance(value, str) else b64encode(bytes(value)).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return Decimal(str(value))
    if isinstance(value, datetime):
        aware = value.replace(tzinfo=value.tzinfo or UTC).astimezone(UTC)
        return aware.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        minutes, seconds = divmod(value.days * 86_400 + value.seconds, 60)
        fraction = f".{value.microseconds:06}" if value.microseconds else ""
        return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}{fraction}"
    if isinstance(value, bytes):  # ClickHouse's FixedString, filled up
        return value.rstrip(b"\0").decode()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value.isoformat() if isinstance(value, date | time) else str(value)


def types_of(source: type[Source]) -> Sequence[TypeRow]:
    return source.types() if issubclass(source, ListsTypes) else ()


def test_every_documented_type_is_checked() -> None:
    for name, source in registry.sources().items():
        documented = {row.system for row in types_of(source)}
        checked = {cell.documented for cell in CELLS.get(name, ())}
        left = documented - checked - NOT_IN_TABLES - EXTENSIONS
        assert all(row.startswith(INTERVALS) for row in left), (name, left)


@pytest.mark.parametrize(
    ("source_type", "sink_type"), [(source, sink) for source in CELLS for sink in tables()]
)
def test_every_cell_of_the_table_of_types(
    source_type: str,
    sink_type: str,
    request: pytest.FixtureRequest,
    engine: SparkSession,
    tmp_path: Path,
) -> None:
    source, sink = SYSTEMS[source_type](request), SYSTEMS[sink_type](request)
    cells = CELLS[source_type]
    read = source.at("source", {})
    seed(source, read, cells)
    stored = sink.at("sink", made_by(sink))
    flow = choose(load(manifest(tmp_path, (source_type, read), (sink_type, stored))), None)
    assert run(flow, engine) == 1
    (row,) = sink.rows(stored)
    declared = sink.declared(stored)
    rows = {row.system: row for row in types_of(registry.sources()[source_type])}
    for number, cell in enumerate(cells):
        name, documented = f"c{number}", rows[cell.documented]
        assert canonical(row[name], documented.column) == _wanted(cell), cell
        kind = _documented(source_type, sink_type, documented, cell)
        assert declared[name] == kind.format(schema=read["table"].partition(".")[0]), cell


def _wanted(cell: Cell) -> Any:
    return _octets(cell.arrives) if isinstance(cell.arrives, bytes) else _plain(cell.arrives)


def _documented(source: str, sink: str, row: TypeRow, cell: Cell) -> str:
    """The type that docs/types.md names, in the sink's own spelling."""
    stored = tables()[sink].stored_type(row.column, own=source == sink)
    if stored is None:
        return str(cell.declared).partition(" character set")[0]
    return SYSTEMS[sink].spelled(stored)
