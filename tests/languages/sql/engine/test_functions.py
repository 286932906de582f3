"""Each row of the reference's table of functions, and what the types of results are."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dataflow_assets.languages.common.cursor import Cursor
from dataflow_assets.languages.common.tokens import Unreadable, tokens
from dataflow_assets.languages.sql.engine.expressions import Expression, cast_to, compile_expression
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.engine.functions import FUNCTIONS, regular
from dataflow_assets.languages.sql.engine.types import STRING
from dataflow_assets.languages.sql.reader.bind import Scope, bound
from dataflow_assets.languages.sql.reader.read_expressions import read_expression

NOW = Environment("UTC", datetime(2026, 7, 20, 10, tzinfo=UTC))
ROWS = [(name, *row) for name, one in FUNCTIONS.items() for row in one.examples]


def expression(text: str, environment: Environment = NOW) -> Expression:
    cursor = Cursor(list(tokens(text)))
    found = read_expression(cursor)
    assert cursor.next.kind == "end", text
    return bound(found, Scope((), environment=environment))


def result(text: str, environment: Environment = NOW) -> str | None:
    made = cast_to(expression(text, environment), STRING)
    found: str | None = compile_expression(made, environment)(())
    return found


def test_every_function_has_a_row() -> None:
    assert [name for name, one in FUNCTIONS.items() if not one.examples] == []


@pytest.mark.parametrize(("name", "text", "wanted"), ROWS, ids=[row[1] for row in ROWS])
def test_row_of_the_reference(name: str, text: str, wanted: str | None) -> None:
    assert result(text) == wanted, name


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1 + 2", "INT"),
        ("CAST(1 AS BIGINT) + 2", "BIGINT"),
        ("1.5 + 2", "DECIMAL(12, 1)"),
        ("1.50 * 2.5", "DECIMAL(6, 3)"),
        ("10.0 / 4", "DECIMAL(14, 12)"),
        ("1e0 + 1", "DOUBLE"),
        ("CAST(1 AS FLOAT) + 1", "FLOAT"),
        ("CAST(1 AS FLOAT) + 1.5", "DOUBLE"),
        ("ROUND(2.345, 2)", "DECIMAL(4, 2)"),
        ("CASE WHEN TRUE THEN 1 ELSE CAST(2 AS BIGINT) END", "BIGINT"),
        ("ARRAY[1, NULL]", "ARRAY<INT>"),
        ("CAST(NULL AS ROW<a INT, b STRING>).b", "STRING"),
    ],
)
def test_the_type_of(text: str, kind: str) -> None:
    assert str(expression(text).type) == kind


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("CAST('12' AS INT) + 1", "13"),
        ("CAST(-1.9 AS INT)", "-1"),
        ("CAST(300 AS TINYINT)", "44"),
        ("CAST(1e30 AS INT)", "2147483647"),
        ("CAST(123.456 AS DECIMAL(4, 2))", None),
        ("CAST(1.005 AS DECIMAL(4, 2))", "1.01"),
        ("CAST('1.005' AS DECIMAL(4, 2))", "1.01"),
        ("TRY_CAST('123.456' AS DECIMAL(4, 2))", None),
        ("ARRAY_CONTAINS(ARRAY[1, 2], 2.0)", "TRUE"),
        ("ARRAY_CONTAINS(ARRAY[1, 2], NULL)", "FALSE"),
        ("SUBSTR('abc', -5)", ""),
        ("SPLIT_INDEX('a b\tc', '', 2)", "c"),
        ("ROUND(995, -1) + ROUND(-9.96, 1) + TRUNCATE(99.9, 0)", "1089.0"),
        ("CHR(-1)", ""),
        ("1 BETWEEN ASYMMETRIC 2 AND 0", "FALSE"),
        ("TRY_CAST('x' AS INT)", None),
        ("CAST(TRUE AS STRING)", "TRUE"),
        ("CAST(1e20 AS STRING)", "1.0E20"),
        ("CAST(0.0001 AS DOUBLE)", "1.0E-4"),
        ("CAST(' 1.5 ' AS INT)", "1"),
        ("TRY_CAST('1e3' AS INT)", None),
        ("CAST('1e3' AS DOUBLE)", "1000.0"),
        ("TRY_CAST('nan' AS DOUBLE)", None),
        ("CAST('-Infinity' AS DOUBLE)", "-Infinity"),
        ("TRY_CAST('128' AS TINYINT)", None),
        ("CAST(CAST(0.1 AS FLOAT) AS STRING)", "0.1"),
        ("CAST(CAST('abc' AS VARBINARY(2)) AS STRING)", "ab"),
        ("CAST(TIME '12:13:14' AS TIMESTAMP(0))", "1970-01-01 12:13:14"),
        ("CAST(TO_TIMESTAMP_LTZ(0, 3) AS TIME)", "00:00:00"),
        ("TRY_CAST('2020-12-30T12:13:14' AS TIMESTAMP(3))", None),
        ("CAST('2020-12-30 12:13:14' AS DATE)", "2020-12-30"),
        ("CAST('a' AS CHAR(3)) || 'b'", "a  b"),
        ("CAST('abcd' AS VARCHAR(2))", "ab"),
        ("CAST('2020-12-30 12:13:14.5678' AS TIMESTAMP(3))", "2020-12-30 12:13:14.567"),
        ("CAST(DATE '2020-12-30' AS TIMESTAMP(0))", "2020-12-30 00:00:00"),
        ("CAST(ARRAY[1, 2] AS ARRAY<STRING>)[2]", "2"),
        ("NOT 1 = 2 AND 3 > 2 OR FALSE", "TRUE"),
        ("2 + 3 * 4 - -1", "15"),
        ("9223372036854775807 + 1", "-9223372036854775808"),
    ],
)
def test_casts_and_precedence(text: str, wanted: str | None) -> None:
    assert result(text) == wanted


def test_the_session_zone() -> None:
    berlin = Environment("Europe/Berlin", NOW.now)
    assert result("LOCALTIMESTAMP", berlin) == "2026-07-20 12:00:00.000"
    assert result("DATE_FORMAT(TO_TIMESTAMP_LTZ(0, 3), 'HH:mm')", berlin) == "01:00"
    assert result("FLOOR(TO_TIMESTAMP_LTZ(0, 3) TO DAY)", berlin) == "1970-01-01 00:00:00.000"
    assert result("UNIX_TIMESTAMP('1970-01-01 01:00:44')", berlin) == "44"


def test_a_day_on_which_clocks_change() -> None:
    """Instants have no clock; what a clock shows has no zone."""
    berlin = Environment("Europe/Berlin", NOW.now)
    day = ("TIMESTAMP '2026-03-29 00:00:00'", "TIMESTAMP '2026-03-30 00:00:00'")
    first, second = (f"CAST({one} AS TIMESTAMP_LTZ(3))" for one in day)
    assert result(f"TIMESTAMPDIFF(HOUR, {first}, {second})", berlin) == "23"
    assert result(f"TIMESTAMPDIFF(HOUR, {second}, {first})", berlin) == "-23"
    assert result(f"TIMESTAMPDIFF(DAY, {first}, {second})", berlin) == "0"
    assert result(f"TIMESTAMPDIFF(HOUR, {', '.join(day)})", berlin) == "24"
    later = f"{second} + INTERVAL '1' MONTH"  # of UTC, where it is the evening before
    assert result(later, berlin) == "2026-04-30 00:00:00.000"
    first = "CAST(TIMESTAMP '2026-05-01 00:00:00' AS TIMESTAMP_LTZ(3))"
    assert result(f"{first} + INTERVAL '1' MONTH", berlin) == "2026-05-31 00:00:00.000"


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("1 / 0", 0, "division by zero"),
        ("CAST('x' AS INT)", 0, "CAST to INT: the text is not a number"),
        ("CAST('123.4' AS DECIMAL(4, 2))", 0, r"the number does not fit into DECIMAL\(4, 2\)"),
        ("ELEMENT(ARRAY[1, 2])", 0, "ELEMENT: the array has more than one item"),
        ("REPEAT('ab', 2000000000)", 0, "the text would have more than 16777216 characters"),
        ("LPAD('ab', 2000000000, 'x')", 0, "the text would have more than 16777216 characters"),
        (
            "REPLACE(REPEAT('a', 5000), 'a', REPEAT('b', 5000))",
            0,
            "the text would have more than 16777216 characters",
        ),
        (
            "REGEXP_REPLACE(REPEAT('a', 5000), 'a', REPEAT('b', 5000))",
            0,
            "the text would have more than 16777216 characters",
        ),
        (
            """JSON_VALUE('{"a": "1"}', '$.a' RETURNING INT)""",
            0,
            "the value is not of the type INT",
        ),
        ("JSON_VALUE('{', '$.a' ERROR ON ERROR)", 0, "JSON_VALUE: there is no value at the path"),
        ("JSON_QUERY('{}', 'lax $.a' ERROR ON EMPTY)", 0, "JSON_QUERY: nothing is there"),
        ("FROM_BASE64('a b')", 0, "FROM_BASE64: the text is not base64"),
    ],
)
def test_a_value_that_does_not_exist_is_told(text: str, column: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        result(text)


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("UPPR('a')", 1, "the function UPPR is not supported; did you mean UPPER?"),
        ("RAND()", 1, "the function RAND is not supported; did you mean RPAD?"),
        ("MAP['a', 1].b", 12, "MAP<STRING, INT> has no fields, and so no b: an item of a map is"),
        ("BIN(4)", 1, "the function BIN is not supported; docs/reference/sql.md lists"),
        ("JSON_ARRAY(1)", 1, "the function JSON_ARRAY is not supported; write ARRAY[a, b]"),
        ("CURRENT_TIME", 1, "CURRENT_TIME is not supported; write CAST(LOCALTIMESTAMP AS TIME)"),
        ("1 BETWEEN SYMMETRIC 2 AND 0", 11, "SYMMETRIC is not supported: write the smaller"),
        ("NOW() - NOW()", 7, "-: two times are not subtracted: write TIMESTAMPDIFF(SECOND, a, b)"),
        ("UPPER(1)", 1, "UPPER: argument 1 is of type INT; allowed: text"),
        ("UPPER('a', 'b')", 1, "UPPER: takes 1 argument, not 2"),
        ("1 + 'a'", 3, "+: argument 2 is of type STRING; allowed: number"),
        ("ARRAY_CONTAINS(ARRAY[1], '1')", 1, "ARRAY_CONTAINS: INT and STRING cannot be compared"),
        ("'a' = 1", 5, "=: STRING and INT cannot be compared: cast one of them"),
        ("CAST(1.5 AS BOOLEAN)", 1, "DECIMAL(2, 1) cannot be cast to BOOLEAN"),
        ("DATE_FORMAT(CURRENT_DATE, 'yyyy[-MM')", 1, "DATE_FORMAT: the pattern has a [ or ]"),
        ("CAST(1 AS DATE)", 1, "INT cannot be cast to DATE"),
        ("CAST(1 AS NUMBR)", 11, "NUMBR is not a type; did you mean NUMERIC?"),
        ("REGEXP('a', '(')", 1, "REGEXP: the regular expression cannot be used"),
        ("DATE_FORMAT(CURRENT_DATE, 'QQ')", 1, "DATE_FORMAT: the pattern has the letter Q"),
        ("JSON_VALUE('{}', 'a')", 1, "JSON_VALUE: a path begins with $"),
        ("JSON_VALUE('{}', '$.a' RETURNING DATE)", 34, "RETURNING has STRING, BOOLEAN, INT or"),
        ("JSON_VALUE('{}', '$.a' NULL ON EROR)", 24, "JSON_VALUE: expected ) or what is returned"),
        ("CASE 1 END", 8, "expected WHEN, found END"),
        ("1 IN (SELECT 1)", 6, "a subquery in an expression is not supported"),
        ('"a"', 1, "double quotes are not Flink's"),
        ("'a", 1, "this text has no closing quote"),
        (
            "ROW_NUMBER() OVER (ORDER BY 1)",
            1,
            "ROW_NUMBER() is a column of its own: compute with it",
        ),
    ],
)
def test_what_is_wrong_is_told_at_its_column(text: str, column: int, says: str) -> None:
    with pytest.raises(Unreadable) as told:
        expression(text)
    assert told.value.message.startswith(says)
    assert told.value.place.column == column


def test_a_search_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record must not hold up its partition for ever."""
    monkeypatch.setattr(regular, "SECONDS", 0.05)
    with pytest.raises(ValueError, match="the regular expression takes more than"):
        result("REGEXP(REPEAT('a', 60) || 'b', '(a|aa)+c')")


def test_like_never_takes_long() -> None:
    """Of many `%` each is looked for once."""
    assert result("REPEAT('a', 30000) LIKE '%a%a%a%a%a%a%b'") == "FALSE"
