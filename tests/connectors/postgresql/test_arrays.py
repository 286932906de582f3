"""JSON arrays in array columns: as JSON, or as PostgreSQL writes them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import devservers
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.sink import encode_arrays
from dataflow_assets.connectors.postgresql.table.column import PostgresqlColumn
from dataflow_assets.contracts import Chunk, OffsetSlice, Span
from dataflow_assets.formats.json import JsonDecoder
from tests.connectors.postgresql.driver import SOURCE, Place, start, write


@pytest.fixture
def place(postgresql: devservers.PostgreSQL, schema: str) -> Place:
    return Place(postgresql.dsn(), schema)


def stored(place: Place, declared: str, value: Any) -> tuple[str | None, list[str]]:
    """What became of a message: the array as text, and why it was refused."""
    place.run(f"CREATE TABLE orders (id int, a {declared})")
    texts, reasons = all_stored(place, [value])
    return texts[0], reasons


def all_stored(place: Place, values: list[Any]) -> tuple[list[str | None], list[str]]:
    """What became of messages that come together: by message the column as text; the refusals."""
    session = start(place.sink())
    bodies = [json.dumps({"id": at, "a": value}).encode() for at, value in enumerate(values)]
    decoded = JsonDecoder(session.ticket().schema).decode(
        pa.array(bodies, pa.binary()), pa.array(range(len(bodies)), pa.int64())
    )
    span = session.begin(Span((OffsetSlice("0", 0, len(bodies)),)))
    chunk = Chunk(decoded.rows, decoded.rejected, len(bodies), 1)
    receipt = write(place.sink(), session.ticket(), span.slices[0], chunk)
    session.finish(span, [receipt], SOURCE)
    session.close()
    rows = dict(place.run("SELECT id, a::text FROM orders"))
    return [rows.get(at) for at in range(len(values))], [str(row[3]) for row in place.rejected()]


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
        ("int[]", ["x"], "element 1: Expected `int | null`, got `str` (22P02, column a)"),
        ("int[]", {"a": 1}, '"a" is not how PostgreSQL writes a value of type integer'),
        ("text[]", {"a": 1}, "malformed array literal"),
        ("int[]", 7, "malformed array literal"),
        ("int[]", "", "malformed array literal"),
        ("int[]", [[1], [2, 3]], "malformed array literal"),
        ("bytea[]", ["?"], "Invalid base64"),
    ],
)
def test_what_is_no_such_array_is_refused(
    place: Place, declared: str, value: Any, reason: str
) -> None:
    text, reasons = stored(place, declared, value)
    assert text is None
    assert len(reasons) == 1
    assert reason in reasons[0]


def array_field(base: str, declared: str) -> pa.Field:
    """The column of a table that has arrays of a type."""
    element = PostgresqlColumn("a", base, False, declared, -1, False, False)
    kind = f"_{base}", False, f"{declared}[]", -1
    return PostgresqlColumn("a", *kind, False, False, True, True, element).field


@pytest.fixture
def singles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arrays that are read one by one."""
    found, alone = list[str](), encode_arrays._single

    def noted(text: str, field: pa.Field) -> str:
        found.append(text)
        return alone(text, field)

    monkeypatch.setattr(encode_arrays, "_single", noted)
    return found


UNUSUAL = {
    "PostgreSQL's own": ("int4", "integer", "[1,2,3]", '"{1,2}"', "{1,2}"),
    "two dimensions": ("int4", "integer", "[1,2,3]", "[[1,2],[3,4]]", "{{1,2},{3,4}}"),
    "three": ("int4", "integer", "[1,2,3]", "[[[1],[2]]]", "{{{1},{2}}}"),
    "a number among texts": ("text", "text", '["a","b"]', '["a",1]', '{"a","1"}'),
    "none": ("int4", "integer", "[1,2,3]", None, None),
    "no text at all": ("int4", "integer", "[1,2,3]", "", ""),  # which the server refuses
}


@pytest.mark.parametrize("case", UNUSUAL)
def test_one_unusual_array_leaves_the_others_a_column(singles: list[str], case: str) -> None:
    base, declared, usual, odd, literal = UNUSUAL[case]
    field = array_field(str(base), str(declared))
    expected = encode_arrays.literals(pa.array([usual]), field)[0].as_py()
    found = encode_arrays.literals(pa.array([usual] * 70 + [odd] + [usual] * 30), field)
    assert found.to_pylist() == [expected] * 70 + [literal] + [expected] * 30
    assert set(singles) <= {odd}


def test_one_element_that_does_not_fit_is_read_alone(singles: list[str]) -> None:
    field = array_field("timestamptz", "timestamp with time zone")
    usual, bad = '["2026-01-31T10:00:00Z"]', '["2026-02-30T10:00:00Z"]'
    with pytest.raises(PostgresqlFailure):
        encode_arrays.literals(pa.array([usual] * 70 + [bad] + [usual] * 30), field)
    assert singles == [bad]


AWARE, NAIVE = "timestamptz", "timestamp"
ALIKE = {
    "a zone in timestamp": (NAIVE, "2026-01-01T15:00:00+05:30", "2026-01-01 09:30:00"),
    "a zone in timestamptz": (AWARE, "2026-01-01T15:00:00+0530", "2026-01-01 09:30:00+00"),
    "a short zone": (AWARE, "2026-01-01 15:00:00+02", "2026-01-01 13:00:00+00"),
    "no zone": (AWARE, "2026-01-01T15:00:00", None),
    "a time in a date": ("date", "2026-01-01T15:00:00Z", None),
    "a date without dashes": ("date", "20260102", "2026-01-02"),
    "a date by DateStyle": ("date", "01/02/2026", None),
    "a number as date": ("date", 20260102, None),
    "now in a date": ("date", "now", None),
    "tomorrow": (NAIVE, "tomorrow", None),
    "now": (AWARE, "now", None),
    "now in a time": ("time", "now", None),
    "infinity": (AWARE, "infinity", "infinity"),
    "an infinite date": ("date", "-infinity", "-infinity"),
    "now in timetz": ("timetz", "now", None),
    "a day in timetz": ("timetz", "2026-001", None),
    "timetz": ("timetz", "23:59:59.5+05:30", "23:59:59.5+05:30"),
    "24 o'clock in timetz": ("timetz", "24:00:00+01", "24:00:00+01"),
    "the end of a day in timetz": ("timetz", "23:59:59.9999996+00", "24:00:00+00"),
    "the end of a day": ("time", "23:59:59.9999996", "24:00:00"),
    "24 o'clock": ("time", "24:00:00", "24:00:00"),
    "a zone in a time": ("time", "10:00:00+02:00", None),
    "now in a range": ("tstzrange", "[now,)", None),
    "DateStyle in a range": ("daterange", "[01-02-2026,)", None),
    "slashes in a range": ("daterange", "[01/02/2026,)", None),
    "a range": ("tsrange", "[2026-01-01T10:00:00,infinity)", '["2026-01-01 10:00:00",infinity)'),
    "an empty range": ("daterange", "empty", "empty"),
    "a number in bytea": ("bytea", 1, None),
    "true in bytea": ("bytea", True, None),
    "bytes": ("bytea", "AP8=", "\\x00ff"),
    "hexadecimal": ("int", "0x10", None),
    "underscores": ("int", "1_000", None),
    "digits as text": ("int", "1", None),
    "a fraction": ("int", 1.0, None),
    "beyond the range": ("smallint", 40_000, None),
    "0 in a boolean": ("boolean", 0, None),
    "text in a boolean": ("boolean", "t", None),
    "true": ("boolean", True, "true"),
    "a number in float": ("real", 1.5, "1.5"),
    "hexadecimal float": ("float8", "0x10", None),
    "not a number": ("float8", "NaN", "NaN"),
    "digits": ("numeric(10,2)", 1.005, "1.01"),
    "digits in text": ("numeric", "1e2", "100"),
    "words in numeric": ("numeric", "many", None),
    "too long": ("varchar(2)", "abc", None),
    "no uuid": ("uuid", "a0eebc99", None),
    "true in a bit": ("bit(1)", True, "1"),
    "a bit": ("bit(1)", "0", "0"),
    "a number in a bit": ("bit(1)", 1, None),
    "a number in money": ("money", 12.5, "$12.50"),
    "text in money": ("money", "$1,234.50", "$1,234.50"),
    "a number in an address": ("inet", 1, None),
    "a number in an interval": ("interval", 5, None),
}


@pytest.mark.parametrize(("declared", "value", "text"), ALIKE.values(), ids=ALIKE)
def test_elements_follow_the_rules_of_the_plain_column(
    place: Place, declared: str, value: Any, text: str | None
) -> None:
    """Beside others, in arrays of one dimension and of more, and in three ways to be stored."""
    found = {}
    arrays = [[value], [None, value], [[value]], [[[value]]]]
    for form, kind, values in (
        ("plain", declared, [value, None]),
        ("array", f"{declared}[]", [*arrays, [None]]),
        ("alone", f"{declared}[]", [arrays[0]]),
    ):
        place.run(f"DROP TABLE IF EXISTS orders; CREATE TABLE orders (id int, a {kind})")
        place.run("DROP TABLE IF EXISTS dataflow_checkpoint, dataflow_checkpoint_partition")
        place.run("DROP TABLE IF EXISTS dataflow_rejected")
        found[form] = all_stored(place, values)
    assert found["plain"][0] == [text, None]
    assert len(found["plain"][1]) == (text is None)
    if text is None:
        assert found["array"][0] == [None, None, None, None, "{NULL}"]
        assert (len(found["array"][1]), found["alone"][0]) == (4, [None])
    else:
        place.run(f"DROP TABLE orders; CREATE TABLE orders (a {declared}[])")
        ((inner,),) = place.run(f"SELECT ARRAY['{text}'::text::{declared}]::text")
        written = inner[1:-1]
        expected = [f"{{{written}}}", f"{{NULL,{written}}}", f"{{{{{written}}}}}"]
        assert found["array"] == ([*expected, f"{{{{{{{written}}}}}}}", "{NULL}"], [])
        assert found["alone"] == (expected[:1], [])


@pytest.mark.parametrize(
    ("declared", "value", "text"),
    [
        ("timestamptz[]", "{2026-01-01 15:00:00+05:30,NULL}", '{"2026-01-01 09:30:00+00",NULL}'),
        ("timestamptz[]", '{"2026-01-01 15:00:00"}', None),
        ("timestamp[]", '{"2026-01-01 15:00:00+05:30"}', None),
        ("timestamp[]", "{now}", None),
        (
            "date[]",
            '{"0044-03-15 BC",10000-01-01,infinity}',
            '{"0044-03-15 BC",10000-01-01,infinity}',
        ),
        ("date[]", "{01/02/2026}", None),
        ("timetz[]", "{now}", None),
        ("int[]", "[0:1]={1,2}", "[0:1]={1,2}"),
        ("int[]", "{{1,2},{3,4}}", "{{1,2},{3,4}}"),
        ("int[]", "{0x10}", None),
        ("int[]", "{1,2", None),
        ("boolean[]", "{t,false}", "{t,f}"),
        ("boolean[]", "{0}", None),
        ("bytea[]", '{"\\\\x00ff"}', '{"\\\\x00ff"}'),
        ("bytea[]", "{t}", None),
        ("text[]", '{now,"NULL",NULL}', '{now,"NULL",NULL}'),
        ("numeric[]", "{1.50,NaN}", "{1.50,NaN}"),
    ],
)
def test_the_same_holds_for_what_postgresql_has_written(
    place: Place, declared: str, value: str, text: str | None
) -> None:
    found, reasons = stored(place, declared, value)
    assert found == text
    assert len(reasons) == (text is None)


def test_the_settings_of_a_role_change_no_array(place: Place) -> None:
    role = f"r{place.schema}"
    place.run(f"CREATE ROLE {role} LOGIN SUPERUSER")
    for setting in ("array_nulls = off", "timezone = 'Asia/Tokyo'", "datestyle = 'SQL, DMY'"):
        place.run(f"ALTER ROLE {role} SET {setting}")
    there = Place(place.dsn.replace("//postgres@", f"//{role}@"), place.schema)
    place.run("CREATE TABLE orders (id int, a text[])")
    found, reasons = all_stored(there, [["x", None, "NULL"], '{xy,NULL,"NULL"}'])
    assert (found, reasons) == (['{x,NULL,"NULL"}', '{xy,NULL,"NULL"}'], [])
    place.run(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def test_one_array_that_is_refused_costs_its_own_record(place: Place) -> None:
    place.run("CREATE TABLE orders (id int, a timestamptz[])")
    good = ["2026-01-01T00:00:00Z"]
    values: list[Any] = [good] * 40
    values[17] = ["now"]
    texts, reasons = all_stored(place, values)
    assert [at for at, text in enumerate(texts) if text is None] == [17]
    assert "expected a time with a timezone" in reasons[0]
