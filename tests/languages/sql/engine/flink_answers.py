"""What Flink 2.2 itself answers: expressions on values of a stream, and what it has written.

Flink took the values from columns, never from literals, which its planner computes by other rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, time
from decimal import Decimal

from dataflow_assets.languages.sql.engine.types import DOUBLE, INT, STRING, FlinkType

Answer = tuple[str, str | None]
"""An expression, and its result as CAST to STRING writes it."""
UNTIMELY = "-9223372036854775808"


def _patterns() -> Iterator[Answer]:
    form = "'yyyy-MM-dd hh:mm a'"
    for text, moment, seconds in (
        ("01:05 PM", "13:05", "1577883900"),
        ("12:05 AM", "00:05", "1577837100"),
        ("12:05 PM", "12:05", "1577880300"),
        ("00:05 AM", "00:05", "1577837100"),
        ("13:05 PM", None, "1577927100"),
    ):
        given = f"'2020-01-01 {text}'"
        wanted = moment and f"2020-01-01 {moment}:00.000"
        yield f"TO_TIMESTAMP({given}, {form})", wanted
        yield f"TO_TIMESTAMP_LTZ({given}, {form})", wanted
        yield f"UNIX_TIMESTAMP({given}, {form})", seconds
    for text, wanted in (("01:05 PM", None), ("12:05 AM", None), ("13:05 PM", "13:05")):
        given = f"TO_TIMESTAMP('2020-01-01 {text}', 'yyyy-MM-dd HH:mm a')"
        yield given, wanted and f"2020-01-01 {wanted}:00.000"
    for text, wanted in (("01:05", "00:05"), ("13:05", None)):
        given = f"TO_TIMESTAMP('2020-01-01 {text}', 'yyyy-MM-dd hh:mm')"
        yield given, wanted and f"2020-01-01 {wanted}:00.000"


def _decimals() -> Iterator[Answer]:
    for given in ("-0.010", "-0.001", "0.000"):
        value = f"CAST('{given}' AS DECIMAL(10, 3))"
        for form in ("CAST({} AS DECIMAL(10, 1))", "ROUND({}, 1)", "TRUNCATE({}, 1)"):
            yield form.format(value), "0.0"
        for form in ("{} * 0", "-({} * 0)", "{0} - {0}"):
            yield form.format(value), "0.000"
        yield f"CEIL({value})", "0"
        yield f"CAST(CAST({value} AS DECIMAL(10, 1)) AS DOUBLE)", "0.0"
    yield "CEIL(CAST('-0.500' AS DECIMAL(10, 3)))", "0"
    yield "FLOOR(CAST('-0.001' AS DECIMAL(10, 3)))", "-1"


def _months() -> Iterator[Answer]:
    for first, second, forth, back in (
        ("2020-01-31", "2020-02-29", 1, -1),
        ("2020-01-30", "2020-02-29", 1, -1),
        ("2020-03-31", "2020-04-30", 1, -1),
        ("2020-02-29", "2021-02-28", 12, -12),
        ("2020-01-15", "2020-01-15", 0, 0),
    ):
        for a, b, months in ((first, second, forth), (second, first, back)):
            yield f"TIMESTAMPDIFF(MONTH, DATE '{a}', DATE '{b}')", f"{months}"
            pair = f"TIMESTAMP '{a} 00:00:00', TIMESTAMP '{b} 00:00:00'"
            yield f"TIMESTAMPDIFF(MONTH, {pair})", f"{months}"
            yield f"TIMESTAMPDIFF(QUARTER, {pair})", f"{int(months / 3)}"
            yield f"TIMESTAMPDIFF(YEAR, {pair})", f"{int(months / 12)}"
    for first, second, forth, back in (
        ("2020-01-15 10:00:00", "2020-02-15 12:00:00", 1, -2),
        ("2020-01-15 12:00:00", "2020-02-15 10:00:00", 0, -1),
        ("2020-01-31 12:00:00", "2020-02-29 10:00:00", 0, -1),
        ("2020-01-31 10:00:00", "2020-02-29 12:00:00", 1, -1),
        ("2020-01-15 12:00:00", "2020-01-15 10:00:00", -1, 0),
        ("2020-01-01 00:00:00", "2020-12-31 23:59:59.999", 11, -11),
        ("2020-01-01 00:00:00.9999", "2020-01-01 00:00:01.0001", 0, -1),
    ):
        for a, b, months in ((first, second, forth), (second, first, back)):
            yield f"TIMESTAMPDIFF(MONTH, TIMESTAMP '{a}', TIMESTAMP '{b}')", f"{months}"


def _differences() -> Iterator[Answer]:
    for first, second, unit, answer in (
        ("1970-01-01 00:00:00", "2038-01-19 03:14:08", "SECOND", "-2147483648"),
        ("1970-01-01 00:00:00", "2038-01-19 03:14:08", "MINUTE", "35791394"),
        ("1970-01-01 00:00:00", "2038-01-19 03:14:08", "WEEK", "-3550"),
        ("1970-01-01 00:00:00", "2038-01-19 03:14:08", "DAY", "24855"),
        ("1900-01-01 00:00:00", "2100-01-01 00:00:00", "SECOND", "2016466304"),
        ("2100-01-01 00:00:00", "1900-01-01 00:00:00", "SECOND", "-2016466304"),
        ("1900-01-01 00:00:00", "2100-01-01 00:00:00", "WEEK", "3334"),
        ("2020-01-01 00:00:00.0009", "2020-01-01 00:00:01.0001", "SECOND", "1"),
        ("2020-01-01 00:00:00.9999", "2020-01-01 00:00:01.0001", "SECOND", "0"),
        ("2020-01-31 12:00:00", "2020-02-29 10:00:00", "DAY", "28"),
    ):
        given = f"TIMESTAMP '{first}', TIMESTAMP '{second}'"
        yield f"TIMESTAMPDIFF({unit}, {given})", answer
    yield "TIMESTAMPDIFF(SECOND, DATE '1970-01-01', DATE '2038-01-19')", "2147472000"


def _likes() -> Iterator[Answer]:
    texts = ("a_b", "a\\%", "a\\xb", "axb", "a\\", "a%", "a\\bc", "xa%y")
    for pattern, true in (
        ("a\\_b", {"a_b"}),
        ("a\\%", {"a\\%", "a\\xb", "a\\", "a\\bc"}),
        ("%\\_%", {"a_b"}),
        ("%\\%", {"a\\%", "a\\xb", "a\\", "a\\bc"}),
        ("%a\\%%", {"a\\%", "a\\xb", "a\\", "a\\bc"}),
        ("a\\%b%c", {"a\\bc"}),
        ("_\\%", {"a%"}),
        ("a\\\\_b", {"a\\xb"}),
        ("\\_", set[str]()),
        ("a\\xb", {"a\\xb"}),
    ):
        for text in texts:
            yield f"'{text}' LIKE '{pattern}'", "TRUE" if text in true else "FALSE"
    for text, pattern, holds in (
        ("a\\%", "a\\%", False),
        ("a%", "a\\%", True),
        ("xa%y", "%a\\%%", True),
        ("a\\bc", "a\\\\b_", True),
    ):  # of a pattern that is a column
        yield f"'{text}' LIKE CONCAT('{pattern}', '')", "TRUE" if holds else "FALSE"


def _unix() -> Iterator[Answer]:
    for text, answer in (
        ("2020-01-01 00:00:00.5", "1577833200"),
        ("2020-01-01 00:00:00 x", "1577833200"),
        ("2020-02-30 00:00:00", "1583017200"),
        ("2020-13-01 00:00:00", "1609455600"),
        ("2020-10-25 02:30:00", "1603589400"),
        ("2020-03-29 02:30:00", "1585445400"),
        ("2020-1-2 3:4:5", "1577930645"),
        (" 2020-01-01 00:00:00", "1577833200"),
        ("2020-01-01", UNTIMELY),
        ("20-01-01 00:00:00", "-61536243600"),
        ("2020-01-01 25:61:61", "1577926921"),
        ("2020-01-01T00:00:00", UNTIMELY),
        ("-2020-01-01 00:00:00", "-125913747600"),
        ("2020-01-01  00:00:00", "1577833200"),
        ("020200-01-01 00:00:00", "575283250800"),
        ("2020-01-01 -1:00:00", "1577829600"),
        ("", UNTIMELY),
        ("2020-01-01 00:00:0x", "1577833200"),
        ("1500-02-29 00:00:00", "-14825898000"),
    ):
        yield f"UNIX_TIMESTAMP('{text}')", answer


def _unix_by_pattern() -> Iterator[Answer]:
    for text, pattern, answer in (
        ("20200102", "yyyyMMdd", "1577923200"),
        ("2020010203", "yyyyMMddHHmmss", UNTIMELY),
        ("20200102x", "yyyyMMdd", "1577923200"),
        ("200102", "yyMMdd", "1577923200"),
        ("2/1/20", "d/M/yy", "1577923200"),
        ("2/1/1920", "d/M/yy", "-1577836800"),
        ("12 February 2020", "dd MMM yyyy", "1581465600"),
        ("12 FEBRUARY 2020", "dd MMMM yyyy", "1581465600"),
        ("12 feb 2020", "dd MMM yyyy", "1581465600"),
        ("Mon, 12 Feb 2020", "E, dd MMM yyyy", "1581465600"),
        ("2020-01-01 00:00:00.999999", "yyyy-MM-dd HH:mm:ss.SSSSSS", "1577837799"),
        ("2020-01-01 00:00:00.5", "yyyy-MM-dd HH:mm:ss[.SSS]", UNTIMELY),
        ("2020-01-01T05:06", "yyyy-MM-dd''T''HH:mm", "1577855160"),
        ("1577833200", "s", "1577833200"),
        ("5 pm", "h a", "61200"),
        ("5PM", "ha", "61200"),
        ("12 AM", "h a", "0"),
        ("20-1", "y-M", "1577836800"),
        ("99-1", "yy-M", "915148800"),
        ("45-1", "yy-M", "2366841600"),
        ("47-1", "yy-M", "-725846400"),
        ("020-1", "yy-M", "-61536240000"),
        ("2020-Feb", "yyyy-LLL", "1580515200"),
        ("2020-02", "yyyy-LL", "1580515200"),
        ("1x", "d''x''", "0"),
    ):
        yield f"UNIX_TIMESTAMP('{text}', '{pattern}')", answer


def _json() -> Iterator[Answer]:
    either = "DEFAULT 'empty' ON EMPTY DEFAULT 'error' ON ERROR"
    sign = "EMPTY ARRAY ON EMPTY EMPTY OBJECT ON ERROR"
    for text, path, value, query, exists in (
        ("broken", "lax $.x", "empty", "[]", "FALSE"),
        ("broken", "$.x", "error", "{}", "TRUE"),
        ("broken", "lax $", "empty", "[]", "FALSE"),
        ("null", "lax $.x", "error", "{}", "TRUE"),
        ("null", "$", "error", "{}", "TRUE"),
        ("  ", "lax $.x", "empty", "[]", "FALSE"),
        ('{"a":4} x', "$.a", "4", None, "TRUE"),
        ('{"a":1}{"a":2}', "$.a", "1", None, "TRUE"),
        ('{"a":7}]', "lax $", "empty", '{"a":7}', "TRUE"),
        ("4 5", "$", "4", "{}", "TRUE"),
        ('{"x":null}', "$.x", "error", "{}", "TRUE"),
        ('{"x":null}', "lax $.x", "empty", "[]", "FALSE"),
        ("[null]", "$[0]", "error", "{}", "TRUE"),
        ('\ufeff{"a":5}', "$.a", "error", "{}", "TRUE"),
    ):
        yield f"JSON_VALUE('{text}', '{path}' {either})", value
        if query is not None:
            yield f"JSON_QUERY('{text}', '{path}' {sign})", query
        yield f"JSON_EXISTS('{text}', '{path}' TRUE ON ERROR)", exists
    nested = '{"a":{"z":1,"b":2,"c":{"y":1e2,"x":1.50}}}'
    yield f"JSON_QUERY('{nested}', '$.a')", '{"b":2,"c":{"x":1.50,"y":1E+2},"z":1}'
    for text, answer in (("4 5", "TRUE"), ("null", "TRUE"), ('{"a":1} x', "FALSE")):
        yield f"'{text}' IS JSON SCALAR", answer
    for text, answer in (('{"a":7}]', "TRUE"), ("broken", "FALSE"), ("[1,2", "FALSE")):
        yield f"'{text}' IS JSON", answer


def _casts() -> Iterator[Answer]:
    for text, kind, answer in (
        (" true ", "BOOLEAN", None),
        ("Yes", "BOOLEAN", "TRUE"),
        (".5", "INT", "0"),
        ("-.5", "TINYINT", "0"),
        ("5.", "INT", "5"),
        ("+7", "INT", "7"),
        ("-0.9", "INT", "0"),
        (".", "INT", None),
        ("0x1p3", "DOUBLE", "8.0"),
        ("0X1.8P1", "FLOAT", "3.0"),
        (" 0x1p-2 ", "DOUBLE", "0.25"),
        ("-0x1p3f", "DOUBLE", "-8.0"),
        ("0x1p3", "INT", None),
        ("+NaN", "DOUBLE", "NaN"),
        ("1e400", "DOUBLE", "Infinity"),
        ("2020-01-01 24:00:00", "TIMESTAMP(3)", "2020-01-02 00:00:00.000"),
        ("2020-12-31 24:00:00", "TIMESTAMP_LTZ(3)", "2021-01-01 00:00:00.000"),
        ("2020-01-01 24:00:00.5", "TIMESTAMP(3)", None),
        ("2020-01-01 24:01:00", "TIMESTAMP(3)", None),
        ("2020-01-01 24:00:00", "DATE", "2020-01-01"),
        ("24:00:00", "TIME", None),
    ):
        yield f"TRY_CAST('{text}' AS {kind})", answer
    yield "TO_TIMESTAMP('2020-01-01 24:00:00')", "2020-01-02 00:00:00.000"
    yield "CAST(CAST('1e400' AS BINARY(8)) AS STRING)", "1e400\0\0\0"
    yield "CAST(CAST(CAST('1e400' AS VARBINARY(2)) AS BINARY(4)) AS STRING)", "1e\0\0"
    yield "CAST(CAST(CAST('1e400' AS BINARY(2)) AS VARBINARY(8)) AS STRING)", "1e"


IN_UTC: Sequence[Answer] = (
    *_patterns(),
    *_decimals(),
    *_months(),
    *_differences(),
    *_likes(),
    *_unix_by_pattern(),
    *_json(),
    *_casts(),
)
IN_BERLIN: Sequence[Answer] = tuple(_unix())
Options = Mapping[str, object]
PLAIN: Options = {"plain_decimals": True}
NO_NULLS: Options = {"ignore_nulls": True}
DECIMAL = FlinkType("DECIMAL", 20, 2)
FRACTION = FlinkType("DECIMAL", 38, 18)
WHOLE = FlinkType("DECIMAL", 20, 0)
FLOAT = FlinkType("FLOAT")


def _row(**fields: FlinkType) -> FlinkType:
    return FlinkType("ROW", items=tuple(fields.values()), names=tuple(fields))


def _map(kind: FlinkType) -> FlinkType:
    return FlinkType("MAP", items=(STRING, kind))


def _numbers() -> Iterator[tuple[FlinkType, object, str]]:
    for text, written in (
        *(("1.50", "1.5"), ("0.00", "0"), ("-0.01", "-0.01"), ("100.00", "1E+2")),
        *(("1234567.00", "1234567"), ("0.10", "0.1"), ("99.00", "99")),
    ):
        yield DECIMAL, Decimal(text), written
    for text, written in (
        *(("1.500000000000000000", "1.5"), ("0.000000000000000001", "1E-18")),
        *(("0.000000100000000000", "1E-7"), ("0.000001230000000000", "0.00000123")),
    ):
        yield FRACTION, Decimal(text), written
    for text, written in (
        *(("10000000", "1E+7"), ("0", "0"), ("100", "1E+2"), ("123", "123"), ("1200", "1.2E+3")),
        ("-100", "-1E+2"),
    ):
        yield WHOLE, Decimal(text), written
    for number, written in (
        *((1e16, "1.0E16"), (1e7, "1.0E7"), (0.001, "0.001"), (0.0001, "1.0E-4")),
        *((123456.789, "123456.789"), (-0.0, "-0.0"), (1e21, "1.0E21"), (5e-324, "4.9E-324")),
        *((12345678.9, "1.23456789E7"), (100.0, "100.0")),
    ):
        yield DOUBLE, number, written
    for number, written in (
        *((1e7, "1.0E7"), (0.001, "0.001"), (0.1, "0.1"), (3.4e38, "3.4E38")),
        *((1.401298464324817e-45, "1.4E-45"), (16777216.0, "1.6777216E7"), (-0.0, "-0.0")),
    ):
        yield FLOAT, number, written


NUMBERS: Sequence[tuple[FlinkType, object, str]] = tuple(_numbers())
"""Type, value, and the number in JSON and in CSV. Of Java 17, where later ones write the same."""
WRITTEN: Sequence[tuple[FlinkType, object, Options, str]] = (
    (DOUBLE, float("nan"), {}, '"NaN"'),
    (DOUBLE, float("-inf"), {}, '"-Infinity"'),
    (DECIMAL, Decimal("1.50"), PLAIN, "1.50"),
    (DECIMAL, Decimal("0.00"), PLAIN, "0.00"),
    (WHOLE, Decimal(10000000), PLAIN, "10000000"),
    (FRACTION, Decimal("0.000000000000000001"), PLAIN, "0.000000000000000001"),
    (FlinkType("ARRAY", items=(DECIMAL,)), [Decimal("1.50"), None], {}, "[1.5,null]"),
    (_map(DOUBLE), {"k": 1e16}, {}, '{"k":1.0E16}'),
    (_row(d=DECIMAL, f=DOUBLE), [Decimal("1.50"), 1e16], {}, '{"d":1.5,"f":1.0E16}'),
    (
        STRING,
        '\U0001f600 ä \u2028 \x7f \x00\x1f\x0b\b\f\n\r\t " \\ / <',
        {},
        '"\\uD83D\\uDE00 ä \u2028 \x7f \\u0000\\u001F\\u000B\\b\\f\\n\\r\\t \\" \\\\ / <"',
    ),
    (STRING, "\\u00ab", {}, '"\\\\u00ab"'),
    (_map(STRING), {"\U0001f600": "\U00010000"}, {}, '{"\\uD83D\\uDE00":"\\uD800\\uDC00"}'),
    (_row(p=INT, q=_row(x=INT)), [None, [None]], NO_NULLS, '{"q":{}}'),
    (FlinkType("ARRAY", items=(_row(p=INT),)), [[None], None], NO_NULLS, "[{},null]"),
    (_map(INT), {"k": None}, NO_NULLS, '{"k":null}'),
    (_map(_row(p=INT)), {"k": [None]}, NO_NULLS, '{"k":{}}'),
)
"""Type, value, options of the format, and the value in JSON."""
IGNORE: Options = {"ignore_errors": True}
COMPLETE: Options = {"fail_on_missing": True}
INTS = FlinkType("ARRAY", items=(INT,))
MILLIS = FlinkType("TIMESTAMP", 3)
INSTANT = FlinkType("TIMESTAMP_LTZ", 3)
CLOCK = FlinkType("TIME", 0)
REFUSED = "refused"
LATER = datetime(2020, 1, 2)  # noqa: DTZ001 - TIMESTAMP has no zone
LEAP = datetime(2020, 2, 29, 10)  # noqa: DTZ001
MIDNIGHT = datetime(2020, 1, 1)  # noqa: DTZ001


def _texts_of_numbers() -> Iterator[tuple[FlinkType, str, Options, object]]:
    for text in ("1e2", "1.50", "0.0000001", "-0", "-0.0", "1E+05", "1e400", "1" + "0" * 23):
        yield STRING, text, {}, text
    yield FlinkType("ARRAY", items=(STRING,)), "[1e2, -0]", {}, ["1e2", "-0"]
    yield _map(STRING), '{"k":1e2}', {}, {"k": "1e2"}
    yield _row(s=STRING), '{"s":1e2}', {}, ["1e2"]


READ: Sequence[tuple[FlinkType, str, Options, object]] = (
    *_texts_of_numbers(),
    (INTS, '[1,"x"]', {}, REFUSED),
    (INTS, '[1,"x"]', IGNORE, [1, None]),
    (_map(INT), '{"k":"x","j":1}', {}, REFUSED),
    (_map(INT), '{"k":"x","j":1}', IGNORE, {"k": None, "j": 1}),
    (_row(a=INT, b=_row(c=INT)), '{"a":"x","b":{"c":"y"}}', IGNORE, [None, [None]]),
    (_row(a=INT, b=INT), '{"a":1}', {}, [1, None]),
    (_row(a=INT, b=INT), '{"a":1}', COMPLETE, REFUSED),
    (MILLIS, '"2020-01-01 00:00"', {}, REFUSED),
    (MILLIS, '"2020-01-01 00:00"', IGNORE, None),
    (MILLIS, '"2020-01-01 24:00:00"', {}, LATER),
    (MILLIS, '"2020-02-30 10:00:00"', {}, LEAP),
    (MILLIS, '"2020-01-01T00:00"', {"times": "ISO-8601"}, MIDNIGHT),
    (MILLIS, '"2020-01-01T00:00:00Z"', {"times": "ISO-8601"}, REFUSED),
    (INSTANT, '"2020-01-01T00:00Z"', {"times": "ISO-8601"}, MIDNIGHT.replace(tzinfo=UTC)),
    (INSTANT, '"2020-01-01 00:00Z"', {}, REFUSED),
    (CLOCK, '"12:13"', {}, REFUSED),
    (CLOCK, '"12:13"', {"times": "ISO-8601"}, REFUSED),
    (CLOCK, '"24:00:00"', {}, time()),
    (FlinkType("DATE"), '"2020-02-30"', {}, REFUSED),
    (DOUBLE, '"0x1p3"', {}, 8.0),
    (DOUBLE, "-0", {}, -0.0),
    (FLOAT, '"-0"', {}, -0.0),
    (DECIMAL, '"-0.001"', {}, Decimal("0.00")),
    (FlinkType("BOOLEAN"), '" true "', {}, True),
)
"""Type, value in a JSON record, options of the format, and the value of the column."""
CSV: Sequence[tuple[FlinkType, str, Options, object]] = (
    (INTS, "x;2", {}, REFUSED),
    (INTS, "x;2", IGNORE, [None, 2]),
    (INTS, ";2", {}, REFUSED),
    (INTS, ";2", IGNORE, [None, 2]),
    (INTS, ";", IGNORE, [None, None]),
    (INTS, "1;;2", IGNORE, [1, None, 2]),
    (INTS, " 1 ; 2 ", {}, [1, 2]),
    (FlinkType("ARRAY", items=(STRING,)), ";x", IGNORE, ["", "x"]),
    (INTS, "NULL;2", {"null_literal": "NULL"}, [None, 2]),
    (FlinkType("BOOLEAN"), " true ", {}, True),
    (FlinkType("BOOLEAN"), "1", {}, False),
    (MILLIS, "2020-01-01 00:00", {}, REFUSED),
    (MILLIS, "2020-01-01 24:00:00", {}, LATER),
    (MILLIS, "2020-02-30 10:00:00", {}, LEAP),
    (MILLIS, "2020-01-01", {}, REFUSED),
    (CLOCK, "12:13", {}, time(12, 13)),
    (CLOCK, "24:00:00", {}, REFUSED),
    (CLOCK, "1:2:3", {}, REFUSED),
    (DOUBLE, "0x1p3", {}, 8.0),
    (DOUBLE, " 1.5 ", {}, 1.5),
    (DOUBLE, "-0", {}, -0.0),
)
"""Type, cell, options of the format, and the value of the column."""
RECORDS: Sequence[tuple[bytes, bool, Sequence[int | None]]] = (
    (b'[{"a":1},{"a":2}]', False, [1, 2]),
    (b'[{"a":1},{"a":2}]', True, [1, 2]),
    (b"[]", False, []),
    (b'\xef\xbb\xbf{"a":5}', False, [5]),
    (b'\xef\xbb\xbf{"a":5}', True, [5]),
    (b'{"a":4} x', True, [4]),
    (b'{"a":1}{"a":2}', True, [1]),
    (b'{"a":1}]', True, [1]),
    (b"7", True, []),
    (b"null", True, []),
    (b'"x"', True, []),
    (b'{"a":1', True, []),
    (b'[{"a":1},{"a":"x"}]', True, [1, None]),
)
"""A record of JSON, whether errors are ignored, and the column `a` of its rows."""
