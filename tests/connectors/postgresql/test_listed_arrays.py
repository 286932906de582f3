"""Lists of tables in array columns: their elements become what a plain column would get."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.connectors.postgresql.sink.encode_copy import textual
from dataflow_assets.connectors.postgresql.table.column import PostgresqlColumn
from dataflow_assets.formats.columns import conform
from dataflow_assets.formats.json import JsonDecoder

NAIVE, ZONED, FINE = pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")
TIME = pa.time64("us")
DAY = 86_400_000_000
ENDLESS = 2**63 - 1


def arrays(base: str, declared: str, modifier: int = -1) -> pa.Field:
    """A column of arrays, as the table is described."""
    element = PostgresqlColumn("a", base, False, declared, modifier, False, False)
    column = PostgresqlColumn("a", f"_{base}", False, f"{declared}[]", modifier, False, False, True)
    return PostgresqlColumn(**{**vars(column), "element": element}).field


def stored(column: pa.Array, wanted: pa.Field) -> tuple[list[str | None], list[str]]:
    """How the rows of a table are sent to the server, and why others are refused."""
    batch = pa.RecordBatch.from_arrays([column], schema=pa.schema([pa.field("a", column.type)]))
    conformed = conform(batch, pa.schema([wanted]))
    rows = pa.RecordBatch.from_arrays([conformed.rows.column("a")], schema=pa.schema([wanted]))
    return textual(rows).column("a").to_pylist(), list(conformed.refused.values())


def of_numbers(kind: pa.DataType, *cells: list[int | None] | None) -> pa.Array:
    """Lists of moments, by their numbers."""
    lists = pa.array(cells, pa.list_(pa.int64()))
    values = lists.values.view(kind)
    return pa.ListArray.from_arrays(lists.offsets, values, mask=lists.is_null())


@pytest.mark.parametrize(
    ("column", "wanted", "text"),
    [
        (of_numbers(NAIVE, [0, None], None), arrays("timestamptz", "timestamptz"),
         '{"1970-01-01 00:00:00.000000Z",NULL}'),
        (of_numbers(ZONED, [0], None), arrays("timestamp", "timestamp"),
         '{"1970-01-01 00:00:00.000000"}'),
        (of_numbers(ZONED, [ENDLESS, -(2**63)], None), arrays("timestamptz", "timestamptz"),
         '{"infinity","-infinity"}'),
        (of_numbers(TIME, [DAY, 1], None), arrays("time", "time"),
         '{"24:00:00","00:00:00.000001"}'),
        (of_numbers(ZONED, [2_932_897 * DAY, 0], None), arrays("timestamptz", "timestamptz"),
         '{"10000-01-01 00:00:00.000000","1970-01-01 00:00:00.000000Z"}'),
        (pa.array([["1", "-2"], None]), arrays("int4", "integer"), "{1,-2}"),
        (pa.array([[1, 2], None]), arrays("text", "text"), '{"1","2"}'),
        (pa.array([[[1, 2], [3, 4]], None]), arrays("int8", "bigint"), "{{1,2},{3,4}}"),
        (pa.array([[True], None]), arrays("bit", "bit(1)", 1), '{"1"}'),
        (pa.array([[{"k": 'x"'}], None]), arrays("jsonb", "jsonb"), '{"{\\"k\\":\\"x\\\\\\"\\"}"}'),
        (pa.array([[b"\0\xff"], None]), arrays("bytea", "bytea"), '{"\\\\x00ff"}'),
        (pa.array([[], None], pa.list_(pa.int64())), arrays("text", "text"), "{}"),
    ],
    ids=str,
)  # fmt: skip
def test_elements_become_what_a_plain_column_would_get(
    column: pa.Array, wanted: pa.Field, text: str
) -> None:
    assert stored(column, wanted) == ([text, None], [])


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (of_numbers(FINE, [1], [1000]), arrays("timestamptz", "timestamptz")),
        (pa.array([["x"], ["1"]]), arrays("int4", "integer")),
        (pa.array([[2**40], [1]]), arrays("int4", "integer")),
        (pa.array([[1.5], [1.0]]), arrays("int4", "integer")),
    ],
    ids=str,
)
def test_what_a_plain_column_refuses_costs_its_own_row(column: pa.Array, wanted: pa.Field) -> None:
    texts, refused = stored(column, wanted)
    assert (len(texts), len(refused)) == (1, 1)


@pytest.mark.parametrize(
    ("base", "declared", "value", "text"),
    [
        ("money", "money", "12.50", "12.50"),
        ("money", "money", '"$1"', "$1"),
        ("oid", "oid", "7", "7"),
        ("bit", "bit(1)", "true", "true"),
        ("money", "money", "true", None),
        ("bit", "bit(1)", "1", None),
        ("bit", "bit(3)", "true", None),
        ("money", "money", "[1]", None),
        ("inet", "inet", "1", None),
    ],
)
def test_some_types_take_numbers_or_booleans_beside_text(
    base: str, declared: str, value: str, text: str | None
) -> None:
    field = PostgresqlColumn("a", base, False, declared, -1, False, False).field
    bodies: list[Any] = [f'{{"a":{value}}}'.encode(), b'{"a":null}', b"{}"]
    bodies.append(f'{{"a":{value},"a":"x"}}'.encode())
    decoder = JsonDecoder(pa.schema([field]))
    found = decoder.decode(pa.array(bodies, pa.binary()), pa.array(range(4)))
    assert found.rows.column("a").to_pylist() == ([text] if text else []) + [None, None]
    assert [one.offset for one in found.rejected] == ([] if text else [0]) + [3]
