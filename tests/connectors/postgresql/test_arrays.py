"""JSON arrays in array columns: as JSON, or as PostgreSQL writes them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import devservers
from dataflow_assets.contracts import Chunk, OffsetSlice, Span
from dataflow_assets.formats.json import JsonDecoder
from tests.connectors.postgresql.driver import SOURCE, Place, start, write


@pytest.fixture
def place(postgresql: devservers.PostgreSQL, schema: str) -> Place:
    return Place(postgresql.dsn(), schema)


def stored(place: Place, declared: str, value: Any) -> tuple[str | None, list[str]]:
    """What became of a message: the array as text, and why it was refused."""
    place.run(f"CREATE TABLE orders (a {declared})")
    session = start(place.sink())
    body = json.dumps({"a": value}).encode()
    decoded = JsonDecoder(session.ticket().schema).decode(
        pa.array([body], pa.binary()), pa.array([0], pa.int64())
    )
    span = session.begin(Span((OffsetSlice("0", 0, 1),)))
    chunk = Chunk(decoded.rows, decoded.rejected, 1, len(body))
    receipt = write(place.sink(), session.ticket(), span.slices[0], chunk)
    session.finish(span, [receipt], SOURCE)
    session.close()
    rows = place.run("SELECT a::text FROM orders")
    return rows[0][0] if rows else None, [str(row[3]) for row in place.rejected()]


@pytest.mark.parametrize(
    ("declared", "value", "text"),
    [
        ("int[]", [1, None, -3], "{1,NULL,-3}"),
        ("int[]", [], "{}"),
        ("int[]", [[1, 2], [3, 4]], "{{1,2},{3,4}}"),
        ("bigint[]", [2**62], "{4611686018427387904}"),
        ("numeric[]", [1.50, 10**30], "{1.5,1000000000000000000000000000000}"),
        ("text[]", ["a", 'b "c" \\', "NULL", "", "{}"], '{a,"b \\"c\\" \\\\","NULL","","{}"}'),
        ("text[]", '{a,"b c"}', '{a,"b c"}'),
        ("text[]", [{"k": 1}], '{"{\\"k\\":1}"}'),
        ("boolean[]", [True, False], "{t,f}"),
        ("jsonb[]", [{"k": [1]}, [2], "x"], '{"{\\"k\\": [1]}",[2],"\\"x\\""}'),
        ("bytea[]", ["AP8="], '{"\\\\x00ff"}'),
        ("timestamptz[]", ["2026-01-02T03:04:05Z"], '{"2026-01-02 03:04:05+00"}'),
        ("int[]", None, None),
    ],
)
def test_an_array_is_stored(place: Place, declared: str, value: Any, text: str | None) -> None:
    assert stored(place, declared, value) == (text, [])


@pytest.mark.parametrize(
    ("declared", "value", "reason"),
    [
        ("int[]", ["x"], 'invalid input syntax for type integer: "x"'),
        ("int[]", {"a": 1}, "malformed array literal"),
        ("int[]", 7, "malformed array literal"),
        ("int[]", [[1], [2, 3]], "malformed array literal"),
        ("bytea[]", ["?"], "not base64"),
    ],
)
def test_what_is_no_such_array_is_refused(
    place: Place, declared: str, value: Any, reason: str
) -> None:
    text, reasons = stored(place, declared, value)
    assert text is None
    assert len(reasons) == 1
    assert reason in reasons[0]
