"""PostgreSQL's types from table to table: every value arrives as it was."""

from __future__ import annotations

import pytest

import devservers
from dataflow_assets.connectors.postgresql import PostgresqlSource
from dataflow_assets.connectors.postgresql.source.types import OTHERS
from dataflow_assets.connectors.postgresql.types import READINGS
from tests.sdk.polled import Polled

# By column: the type as declared, and values as PostgreSQL writes them.
TYPES: dict[str, tuple[str, list[str]]] = {
    "bool": ("boolean", ["true", "false"]),
    "int2": ("smallint", ["-32768", "32767"]),
    "int4": ("integer", ["-2147483648", "2147483647"]),
    "int8": ("bigint", ["-9223372036854775808", "9223372036854775807"]),
    "oid": ("oid", ["0", "4294967295"]),
    "float4": ("real", ["1.5", "-0", "3.4028235e+38", "1e-45", "NaN", "Infinity", "-Infinity"]),
    "float8": (
        "double precision",
        ["0.1", "1.7976931348623157e+308", "5e-324", "NaN", "Infinity", "-Infinity"],
    ),
    "numeric": (
        "numeric",
        [
            "0",
            "1.50",
            "-0.000000000000000000000000000001",
            "1" + "0" * 60 + ".25",
            "NaN",
            "Infinity",
        ],
    ),
    "numeric_12_2": ("numeric(12,2)", ["-0.01", "9999999999.99", "NaN"]),
    "numeric_100_50": ("numeric(100,50)", ["9" * 50 + "." + "9" * 50]),
    "text": ("text", ["", "a", 'quote " comma , new\nline \\. é 🐘', "x" * 10_000, "null"]),
    "varchar": ("character varying(3)", ["äöü", ""]),
    "bpchar": ("character(3)", ["ab ", "   "]),
    "name": ("name", ["a name"]),
    "bytea": ("bytea", [r"\x", r"\x00ff5c22", r"\xe282ac"]),
    "date": ("date", ["2026-11-21", "0001-01-01", "9999-12-31", "infinity", "-infinity"]),
    "date_far": ("date", ["0044-03-15 BC", "0001-12-31 BC", "12345-06-07", "5874897-12-31"]),
    "time": ("time without time zone", ["00:00:00", "23:59:59.999999", "24:00:00"]),
    "timetz": ("time with time zone", ["12:34:56.789+05:30", "00:00:00-12"]),
    "timestamp": (
        "timestamp without time zone",
        ["2026-01-02 03:04:05.678901", "0044-03-15 12:00:00 BC", "infinity", "-infinity"],
    ),
    "timestamptz": (
        "timestamp with time zone",
        ["2026-01-02 03:04:05.000001+00", "1900-01-01 00:00:00+00", "infinity", "-infinity"],
    ),
    "interval": (
        "interval",
        ["1 year 2 mons 3 days 04:05:06.789", "-3 days -00:00:01", "00:00:00"],
    ),
    "uuid": ("uuid", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    "json": ("json", ['{"b": 1,  "a": [1.50, null]}', '"x"', "null", "[]"]),
    "jsonb": (
        "jsonb",
        ['{"a": [1.50, null, "x"]}', "null", '"é"'],
    ),
    "inet": ("inet", ["10.0.0.1", "10.0.0.0/8", "::1"]),
    "cidr": ("cidr", ["10.0.0.0/8", "2001:db8::/32"]),
    "macaddr": ("macaddr", ["08:00:2b:01:02:03"]),
    "bit": ("bit(4)", ["1010"]),
    "varbit": ("bit varying", ["", "10101"]),
    "money": ("money", ["$1,234.56", "-$0.01"]),
    "xml": ("xml", ["<a>é</a>"]),
    "point": ("point", ["(1.5,-2)"]),
    "tsvector": ("tsvector", ["'a':1 'b':2"]),
    "int4range": ("int4range", ["[1,10)", "empty", "(,5)"]),
    "tstzrange": (
        "tstzrange",
        ['["2026-01-01 00:00:00+00","2026-01-02 00:00:00+00")', "(,infinity]"],
    ),
    "int4multirange": ("int4multirange", ["{[1,3),[5,8)}", "{}"]),
    "enum": ("mood", ["happy", "so so"]),
    "domain": ("positive", ["7"]),
    "domain_text": ("code", ["AB"]),
    "domain_json": ("document", ['{"a": 1}']),
    "composite": ("pair", ['(1,"a ""b"" , c")', "(,)"]),
    "int_array": ("integer[]", ["{1,2,NULL}", "{}", "{-2147483648}"]),
    "text_array": ("text[]", [r'{a,"b c","with \"quotes\" and \\",NULL,"NULL",""}', "{}"]),
    "numeric_array": ("numeric[]", ["{1.50,NaN,-0.001,NULL}", "{" + "9" * 40 + "}"]),
    "bool_array": ("boolean[]", ["{t,f,NULL}"]),
    "float_array": ("double precision[]", ["{0.1,NaN,Infinity,-Infinity,NULL}"]),
    "bytea_array": ("bytea[]", [r'{"\\x00ff",NULL,"\\x"}']),
    "uuid_array": ("uuid[]", ["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}"]),
    "date_array": ("date[]", ["{2026-01-01,infinity,-infinity,NULL}"]),
    "time_array": ("time[]", ["{12:00:00,NULL,23:59:59.999999,24:00:00}", "{}"]),
    "nested_times": ("time[][]", ["{{12:00:00,NULL},{00:00:00,24:00:00}}"]),
    "timestamp_array": (
        "timestamp without time zone[]",
        ['{"2026-01-02 03:04:05.678901",infinity,NULL}'],
    ),
    "timestamptz_array": (
        "timestamp with time zone[]",
        ['{"2026-01-02 03:04:05.678901+00",-infinity,NULL}'],
    ),
    "jsonb_array": ("jsonb[]", [r'{"{\"a\": [1, null]}",NULL,"[]"}']),
    "interval_array": ("interval[]", ['{"1 day",01:02:03}']),
    "enum_array": ("mood[]", ['{happy,"so so"}']),
    "nested_array": ("integer[][]", ["{{1,2},{3,NULL}}"]),
    "nested_text": ("text[][][]", ['{{{a,"b,c"},{NULL,d}}}']),
}
OWN = """
CREATE TYPE {s}.mood AS ENUM ('sad', 'so so', 'happy');
CREATE DOMAIN {s}.positive AS int CHECK (value > 0);
CREATE DOMAIN {s}.code AS varchar(2);
CREATE DOMAIN {s}.document AS jsonb NOT NULL;
CREATE TYPE {s}.pair AS (a int, b text);
"""


@pytest.fixture
def polled(postgresql: devservers.PostgreSQL, schema: str) -> Polled:
    made = Polled(postgresql.dsn(), schema)
    made.run(OWN.format(s=schema))
    return made


def _filled(polled: Polled, name: str) -> list[tuple[int, str | None]]:
    """The table `source` with the values of one type, and one null where it may be."""
    declared, values = TYPES[name]
    polled.run(f"CREATE TABLE source (id int PRIMARY KEY, v {declared})")
    found: list[tuple[int, str | None]] = list(enumerate(values))
    if name != "domain_json":
        found.append((len(found), None))
    for key, value in found:
        polled.run(f"SET lc_monetary = 'C'; INSERT INTO source VALUES ({key}, {_literal(value)})")
    return found


def _literal(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def _texts(polled: Polled, table: str) -> list[tuple[int, str]]:
    return polled.run(f"SELECT id, quote_nullable(v) FROM {table} ORDER BY 1")


@pytest.mark.parametrize("name", TYPES)
def test_a_target_that_is_there_gets_every_value(polled: Polled, name: str) -> None:
    _filled(polled, name)
    polled.run(f"CREATE TABLE target (id int PRIMARY KEY, v {TYPES[name][0]})")
    polled.drain()
    assert _texts(polled, "target") == _texts(polled, "source")


@pytest.mark.parametrize("name", TYPES)
def test_a_target_that_the_flow_makes_has_the_same_type(polled: Polled, name: str) -> None:
    _filled(polled, name)
    polled.sink_options = {"autoCreateTable": True}
    polled.drain()
    assert _texts(polled, "target") == _texts(polled, "source")
    types = {
        table: polled.run(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
            f"WHERE attrelid = '{polled.schema}.{table}'::regclass AND attname = 'v'"
        )
        for table in ("source", "target")
    }
    assert types["target"] == types["source"]


@pytest.mark.parametrize("name", TYPES)
def test_an_upsert_gets_every_value_too(polled: Polled, name: str) -> None:
    _filled(polled, name)
    polled.run(f"CREATE TABLE target (id int PRIMARY KEY, v {TYPES[name][0]}, more interval)")
    polled.sink_options = {"upsertMode": True}
    polled.drain()
    assert _texts(polled, "target") == _texts(polled, "source")


@pytest.mark.parametrize("name", ["int4", "jsonb", "timestamptz"])
def test_an_enum_with_the_name_of_a_built_in_type_is_text(polled: Polled, name: str) -> None:
    own = f"{polled.schema}.{name}"
    polled.run(f"CREATE TYPE {own} AS ENUM ('low', 'high')")
    for table in ("source", "target"):
        polled.run(f"CREATE TABLE {table} (id int PRIMARY KEY, v {own}, a {own}[])")
    polled.run("INSERT INTO source VALUES (1, 'low', '{high,low}'), (2, NULL, NULL)")
    polled.drain()
    read = "SELECT id, v::text, a::text FROM {} ORDER BY id"
    assert polled.run(read.format("target")) == [(1, "low", "{high,low}"), (2, None, None)]


def test_every_type_that_is_listed_is_tried() -> None:
    assert {*READINGS, *OTHERS} - {"citext"} <= set(TYPES)
    listed = {row.system for row in PostgresqlSource.types()}
    assert {*READINGS, *OTHERS, "int4[]", "a domain", "an enum", "a composite"} <= listed
