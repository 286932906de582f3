"""Expressions on JSON: one table of cases, computed by a step, by PostgreSQL and by ClickHouse."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import clickhouse_connect
import psycopg
import pytest

import devservers
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.languages.common.cursor import Cursor
from dataflow_assets.languages.pipelines.clickhouse import table as clickhouse_table
from dataflow_assets.languages.pipelines.postgresql import functions
from dataflow_assets.languages.pipelines.postgresql import table as postgresql_table
from dataflow_assets.languages.pipelines.reader.bind import bound
from dataflow_assets.languages.pipelines.reader.read_expressions import read_expression
from dataflow_assets.languages.pipelines.reader.read_statements import read_tokens
from dataflow_assets.languages.pipelines.reader.read_tables import read_type
from dataflow_assets.languages.pipelines.rows.expressions import (
    PipelineColumnReference as Reference,
)
from dataflow_assets.languages.pipelines.rows.expressions import convert
from dataflow_assets.languages.pipelines.rows.table import PipelineColumn, PipelineTable
from dataflow_assets.languages.pipelines.rows.types import JSON, TEXT
from dataflow_assets.records.record import parse

RECORD = """
{"s": "x", "n": 12, "f": 1.5, "neg": -2.5, "big": 9223372036854775807, "huge": 1e300, "zero": 0,
 "t": true, "no": false, "nul": null, "e": "", "digits": " 42 ", "half": "0.5", "word": "abc",
 "o": {"a": {"b": "deep", "n": 7}, "0": "zeroth"}, "l": [10, {"x": "in"}, null],
 "odd key": "spaced", "q'uote\\\\": "marked", "uni": "\\u00e9\\u4e2d", "json": "{\\"k\\": [1, 2]}",
 "micros": 1753900000123456, "long": 1234567890123456789, "one": 1.0, "tail": 1.10, "exp": 1e2,
 "wide": 1e22, "edge": 999.995, "third": 0.1234567890123456789,
 "tab": "\\t7\\n", "b64": "eyJrIjogInYifQ==", "bad64": "%%%", "bin64": "/w=="}
"""
TINY, LONG = Decimal("1e-37"), Context(prec=40)
CASES: Sequence[tuple[str, str, Any]] = (
    ("record::$s", "VARCHAR(10)", "x"),
    ("JSON_EXTRACT_STRING(record, 's')", "STRING", "x"),
    ("record::$n", "TEXT", "12"),
    ("record::$f", "TEXT", "1.5"),
    ("record::$t", "TEXT", "true"),
    ("record::$nul", "TEXT", None),
    ("record::$absent", "TEXT", None),
    ("record::$e", "TEXT", ""),
    ("record::$uni", "TEXT", "é中"),
    ("record::$`odd key`", "TEXT", "spaced"),
    ("JSON_EXTRACT_STRING(record, 'q''uote\\\\')", "TEXT", "marked"),
    ("record::o::a::$b", "TEXT", "deep"),
    ("JSON_EXTRACT_STRING(record, 'o', 'a', 'b')", "TEXT", "deep"),
    ("JSON_EXTRACT_STRING(record, 'o', '0')", "TEXT", "zeroth"),
    ("JSON_EXTRACT_STRING(record, 'o', 0)", "TEXT", None),
    ("JSON_EXTRACT_STRING(record, 'l', 0)", "TEXT", "10"),
    ("JSON_EXTRACT_STRING(record, 'l', '0')", "TEXT", None),
    ("JSON_EXTRACT_STRING(record, 'l', 1, 'x')", "TEXT", "in"),
    ("JSON_EXTRACT_STRING(record, 'l', 2)", "TEXT", None),
    ("JSON_EXTRACT_STRING(record, 'l', 3)", "TEXT", None),
    ("JSON_EXTRACT_STRING(record, 's', 'a')", "TEXT", None),
    ("record::%f", "DOUBLE", 1.5),
    ("record::%t", "DOUBLE", 1.0),
    ("record::%half", "DOUBLE", 0.5),
    ("record::%word", "DOUBLE", None),
    ("record::%huge", "DOUBLE", 1e300),
    ("record::%nul", "DOUBLE", None),
    ("record::%o", "DOUBLE", None),
    ("JSON_EXTRACT_DOUBLE(record, 'n')", "DOUBLE", 12.0),
    ("JSON_EXTRACT_BIGINT(record, 'n')", "BIGINT", 12),
    ("JSON_EXTRACT_BIGINT(record, 'f')", "BIGINT", 2),
    ("JSON_EXTRACT_BIGINT(record, 'neg')", "BIGINT", -3),
    ("JSON_EXTRACT_BIGINT(record, 'big')", "BIGINT", 9223372036854775807),
    ("JSON_EXTRACT_BIGINT(record, 'huge')", "BIGINT", None),
    ("JSON_EXTRACT_BIGINT(record, 'no')", "BIGINT", 0),
    ("JSON_EXTRACT_BIGINT(record, 'digits')", "BIGINT", 42),
    ("JSON_EXTRACT_BIGINT(record, 'word')", "BIGINT", None),
    ("JSON_EXTRACT_BIGINT(record, 'f')", "DOUBLE", 2.0),
    ("record::$n", "INT", 12),
    ("record::$digits", "INT", 42),
    ("record::$word", "INT", None),
    ("record::$big", "INT", None),
    ("record::$big", "BIGINT", 9223372036854775807),
    ("record::$neg", "SMALLINT", -3),
    ("record::$f", "TINYINT", 2),
    ("record::n", "INT", 12),
    ("record::$f", "DOUBLE", 1.5),
    ("record::$f", "DECIMAL(5, 2)", Decimal("1.50")),
    ("record::%neg", "DECIMAL(5, 0)", Decimal(-3)),
    ("record::$big", "DECIMAL(5, 2)", None),
    ("record::$word", "DECIMAL(5, 2)", None),
    ("record::%micros", "BIGINT", 1753900000123456),
    ("record::%micros", "DOUBLE", 1753900000123456.0),
    ("record::%long", "BIGINT", 1234567890123456789),
    ("record::%long", "DECIMAL(30, 6)", Decimal("1234567890123456789.000000")),
    ("record::%third", "DOUBLE", 0.1234567890123456789),
    ("record::$long", "TEXT", "1234567890123456789"),
    ("record::%long", "TEXT", "1234567890123456789"),
    ("record::%micros", "TEXT", "1753900000123456"),
    ("record::%f", "TEXT", "1.5"),
    ("record::$one", "TEXT", "1"),
    ("record::$tail", "TEXT", "1.1"),
    ("record::$exp", "TEXT", "100"),
    (
        "record::$wide",
        "DECIMAL(38, 6)",
        Decimal("1e22").quantize(Decimal("1.000000"), context=Context(prec=40)),
    ),
    ("record::$edge", "DECIMAL(5, 2)", None),
    ("record::$edge", "DECIMAL(6, 2)", Decimal("1000.00")),
    ("record::%t", "BOOL", True),
    ("record::$t", "BOOL", True),
    ("record::$no", "BOOL", False),
    ("record::t", "BOOL", True),
    ("record::$n", "BOOL", True),
    ("record::$nul", "BOOL", None),
    ("record::$n", "DECIMAL(38, 20)", Decimal("12.00000000000000000000")),
    (
        "record::%f",
        "DECIMAL(38, 37)",
        Decimal("1.5").quantize(TINY, context=LONG),
    ),
    ("record::%exp", "TEXT", "100"),
    ("record::%tail", "TEXT", "1.1"),
    ("record::exp", "TEXT", "100"),
    ("record::$tab", "INT", 7),
    ("record::%tab", "DECIMAL(5, 2)", Decimal("7.00")),
    ("record::$zero", "BOOL", False),
    ("record::$word", "BOOL", None),
    ("FROM_BASE64(record::$b64)", "TEXT", '{"k": "v"}'),
    ("FROM_BASE64(record::$bad64)", "TEXT", None),
    ("FROM_BASE64(record::$bin64)", "TEXT", None),
    ("FROM_BASE64(record::$e)", "TEXT", ""),
    ("FROM_BASE64(record::$absent)", "TEXT", None),
    ("JSON_EXTRACT_STRING(FROM_BASE64(record::$b64), 'k')", "TEXT", "v"),
    ("JSON_EXTRACT_BIGINT(record::$json, 'k', 1)", "BIGINT", 2),
    ("JSON_EXTRACT_STRING(t, 'a')", "TEXT", "1"),
    ("JSON_EXTRACT_STRING(record::$word, 'a')", "TEXT", None),
    ("t", "VARCHAR(20)", '{"a": 1}'),
    ("'it''s'", "TEXT", "it's"),
    ("7", "INT", 7),
    ("NULL", "TEXT", None),
)
AS_JSON: Sequence[tuple[str, Any]] = (
    ("record::o::a", {"b": "deep", "n": 7}),
    ("JSON_EXTRACT_JSON(record, 'l')", [10, {"x": "in"}, None]),
    ("record::%f", 1.5),
    ("record::s", "x"),
    ("record::$word", None),
    ("record::$json", {"k": [1, 2]}),
    ("record::nul", None),
    ("record::absent", None),
)
GIVEN = (PipelineColumn("record", JSON, nullable=False), PipelineColumn("t", TEXT))
SCOPE = {"record": Reference("record", is_json=True), "t": Reference("t", is_json=False)}
ROW = {"record": RECORD, "t": '{"a": 1}'}
EVERY = [*CASES, *((text, "JSON", wanted) for text, wanted in AS_JSON)]


def computed() -> PipelineTable:
    columns = []
    for at, (text, kind, _) in enumerate(EVERY):
        made = bound(read_expression(Cursor(read_tokens(text))), SCOPE)
        type_ = read_type(Cursor(read_tokens(kind)))
        type_ = TEXT if type_.kind == "text" else type_
        columns.append(PipelineColumn(f"c{at}", type_, computed=made))
    return PipelineTable((*GIVEN, *columns))


def check(found: Sequence[Any], plain: Callable[[Any], Any] = lambda value: value) -> None:
    for (text, kind, wanted), value in zip(EVERY, found, strict=True):
        assert (text, kind, plain(value) if kind == "JSON" else value) == (text, kind, wanted)


def test_a_step_computes_them() -> None:
    row = {"record": parse(RECORD.encode()), "t": ROW["t"]}
    found = []
    for column in computed().computed_columns:
        assert column.computed is not None
        try:
            value = convert(column.computed, column.type)(row)
        except ValueError:
            value = None  # as for a row of a table that computes nothing itself
        found.append(float(value) if column.type.kind == "double" and value is not None else value)
    check(found)


def test_postgresql_computes_them(postgresql: devservers.PostgreSQL, schema: str) -> None:
    link = TextLink(postgresql.dsn(), "pipelines")
    try:
        functions.prepare(link, schema)
        for _ in range(2):  # the second time nothing is left to do
            postgresql_table.prepare(link, (schema, "t"), computed())
    finally:
        link.close()
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        insert = f"INSERT INTO {schema}.t (record, t) VALUES (%s, %s)"
        connection.execute(insert.encode(), (ROW["record"], ROW["t"]))
        (row,) = connection.execute(f"SELECT * FROM {schema}.t".encode()).fetchall()
    check(row[len(GIVEN) :])


def test_clickhouse_computes_them(clickhouse: devservers.ClickHouse, database: str) -> None:
    table = computed()
    with clickhouse_connect.get_client(dsn=clickhouse.dsn(database)) as client:
        for _ in range(2):
            clickhouse_table.prepare(client, (database, "t"), table)
        client.insert("t", [[ROW["record"], ROW["t"]]], ["record", "t"])
        names = ", ".join(column.name for column in table.computed_columns)
        (row,) = client.query(f"SELECT {names} FROM t").result_rows
    check(row, lambda value: value if value is None else json.loads(value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("LOWER(t)", "the function LOWER is not supported"),
        ("t + 1", "the operator + is not supported"),
        ("9" * 5_000, "a number has at most 65 digits"),
        ("other", "no column other; allowed: record, t"),
        ("JSON_EXTRACT_STRING(record, t)", "a key of a path must be a text"),
        ("JSON_EXTRACT_STRING(record, -1)", "places in an array begin at 0"),
        ("JSON_EXTRACT_STRNG(record, 'a')", "did you mean JSON_EXTRACT_STRING?"),
        ("FROM_BASE64(t, t)", "FROM_BASE64 has one argument"),
        ("record::", "expected a key of the JSON value"),
    ],
)
def test_all_else_is_refused(text: str, message: str) -> None:
    from dataflow_assets.languages.common.tokens import Unreadable

    with pytest.raises(Unreadable, match=message.replace("+", "\\+")):
        bound(read_expression(Cursor(read_tokens(text))), SCOPE)
