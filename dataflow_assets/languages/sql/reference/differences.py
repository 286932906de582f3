"""Writes the part of the page of SQL files on bytes, and on differences from Flink."""

from collections.abc import Sequence

BYTES = """\
Keys and values are the bytes that Flink 2.2 writes, so a topic that Flink has filled can be taken
over: a row is found again by the bytes of its key. In JSON and CSV decimals have no zeros at the
end, and exponents as Java writes them (`1.5`, `0`, `1E+7`), unless an option asks for plain
numbers; floating-point numbers are written as Java 19 and later do (`1.0E16`; Java 17 writes more
digits than it needs for a few numbers). In JSON characters beyond 16 bits are two escapes
(`\\uD83D\\uDE00`). The entries of a map may be in another order than Flink has them.

Earlier versions wrote `1.50`, `1E+16` and the characters themselves. A flow that began with such a
version goes on writing the keys of its topic in that way, because the rows that it has written
would otherwise stay beside the new ones. `dataflow run --from earliest --table truncate` empties
the topic and changes to Flink's keys. A flow that is renamed, or whose checkpoint topic is deleted,
is new and writes Flink's keys: empty its topic, too, if the PRIMARY KEY has a DECIMAL, a FLOAT, a
DOUBLE, or texts with such characters."""
MEASURED = (
    "Measured against Flink 2.2, by some 900 queries and expressions. Where an answer differs, it "
    "is one of these."
)
DIFFERENCES: Sequence[tuple[str, str, str]] = (
    ("`FLOAT` with `DOUBLE`: `+`, `-`, `*`, `/`", "FLOAT, if it is on the left", "DOUBLE"),
    ("`INITCAP` of letters beyond ASCII, `ASCII` of them", "`éLan`; -61 for `ä`", "`Élan`; 228"),
    ("`LPAD`, `RPAD` of characters beyond 16 bits", "each counts as two", "each counts as one"),
    (
        'a text behind the JSON value of a record (`{"a":4} x`, `{"a":1}{"a":2}`)',
        "is dropped",
        "the record is rejected; with `json.ignore-parse-errors` it is dropped",
    ),
    (
        "an array of records in a table of `upsert-kafka`",
        "a row for each, of the same key",
        "the record is rejected",
    ),
    (
        "an item of an array of records that is not an object",
        "ends the record",
        "is left out, with `json.ignore-parse-errors`; else the record is rejected",
    ),
    (
        "numbers inside of an object that becomes a STRING",
        "as DOUBLE: `1.5`, `100.0`",
        "with their own digits: `1.50`, `1E+2`",
    ),
    (
        "invalid UTF-8, and a key that an object has twice",
        "replaced; the last one counts",
        "the record is rejected",
    ),
    ("a CSV record of several lines", "the first line counts", "the record is rejected"),
    ("a PRIMARY KEY column that is in the key alone", "null", "has the key's value"),
    ("a ROW column in CSV", "its fields as an array", "refused"),
    ("sums and averages of floating-point numbers", "rounded at each step", "rounded once"),
    ("-0.0 and 0.0 in `GROUP BY`", "two groups", "one group"),
    ("`MAX` of -0.0 and 0.0", "the first one", "0.0"),
    (
        (
            "before 1970, with a fraction of a second: CAST to DATE, TIME and TIMESTAMP(0), "
            "EXTRACT, FLOOR"
        ),
        "the next second, also if that is 1970",
        "the second that it is in",
    ),
    (
        "`CEIL` to WEEK of a Sunday, `CEIL` of a TIMESTAMP_LTZ where clocks change",
        "another unit",
        "the next unit",
    ),
    ("years beyond 1 to 9999", "other digits", "the record is rejected"),
    (
        "a time window with an offset, with a watermark in each row; HOP before 1970",
        "rows are lost",
        "all rows count",
    ),
    (
        "`WATERMARK FOR` a TIMESTAMP without digits, as on Flink's page of upsert-kafka",
        "refused",
        "taken",
    ),
    ("`a LIKE ''`", "true for every text", "true for the empty text"),
    (
        "`TRUNCATE(1.8E308, 1)`, `JSON_VALUE(... RETURNING DOUBLE)` of a whole number",
        "an error",
        "the value",
    ),
    ("`TRY_CAST('99999999.995' AS DECIMAL(10, 2))`", "100000000.00", "null"),
    ("TIMESTAMP(3) of a JSON text with six digits", "keeps six", "cuts to three"),
    (
        "a letter `u` in a pattern of `UNIX_TIMESTAMP`",
        "a day of the week",
        "is read and does not count",
    ),
)
"""Where, Flink's answer, ours."""
ONE_SIDED = """\
**Taken here and not by Flink:** `%` of floating-point numbers, a DATE beside a TIMESTAMP,
`'a' || 1` and CONCAT of numbers, a NULL without a type in AND, IF and CONCAT_WS, `LENGTH`,
`DATE_FORMAT` of a DATE.

**Taken by Flink and refused here**, with a sentence that says what to write: a TIMESTAMP_LTZ beside
a TIMESTAMP, `SPLIT_INDEX` with a character's number, intervals of two units (`'1-2' YEAR TO
MONTH`), `FLOOR` and `TIMESTAMPADD` of a TIME, the letter `D` in `DATE_FORMAT`, JSON paths with
negative indexes or spaces. `TIMESTAMPADD(HOUR, n, DATE)` is TIMESTAMP(6) in Flink and TIMESTAMP(0)
here."""
