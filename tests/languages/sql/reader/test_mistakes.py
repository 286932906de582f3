"""What is said of each mistake, with line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.languages.sql.reader.reading import (
    KEYED,
    PLAIN,
    SOURCE,
    TARGET,
    UPSERTS,
    loaded,
)

MISTAKES: list[tuple[str, int, int, str]] = [
    ("SELCT 1;", 1, 1, "expected a statement, found SELCT; did you mean "),
    ("CREATE TABEL x (a INT)", 1, 8, "expected TABLE or VIEW, found TABEL"),
    ("DROP MODEL s;", 1, 1, "DROP is not supported: "),
    (f"CREATE TABLE x (a INTT) WITH ({PLAIN})", 1, 19, "INTT is not a type; did you mean INT?"),
    ("CREATE TABLE x (a INT", 1, 22, "expected , or ) behind a column, found the end of the"),
    ("CREATE TABLE x (a INT);", 1, 23, "table x: WITH is missing, and so the connector"),
    (f"CREATE TABLE x (a INT, a INT) WITH ({PLAIN})", 1, 24, "the column a is written twice"),
    (
        f"CREATE TABLE x (a INT, PRIMARY KEY (a)) WITH ({KEYED})",
        1,
        39,
        "a PRIMARY KEY is NOT ENFORCED in Flink",
    ),
    (
        f"CREATE TABLE x (a INT, PRIMARY KEY (b) NOT ENFORCED) WITH ({KEYED})",
        1,
        24,
        "PRIMARY KEY: no column b; allowed: a",
    ),
    (
        f"CREATE TABLE x (a INT, PRIMARY KEY (a) NOT ENFORCED) WITH ({PLAIN})",
        1,
        24,
        "a PRIMARY KEY needs the connector upsert-kafka",
    ),
    (
        f"CREATE TABLE x (a INT) WITH ({KEYED})",
        1,
        14,
        "PRIMARY KEY is required with upsert-kafka",
    ),
    (
        f"CREATE TABLE x (a TIMESTAMP(9)) WITH ({PLAIN})",
        1,
        28,
        "at most 6 digits of a second are kept, not 9",
    ),
    (
        f"CREATE TABLE x (a INT METADATA FROM 'headers') WITH ({PLAIN})",
        1,
        17,
        "METADATA headers is MAP<STRING, BYTES>, which cannot be cast to INT",
    ),
    (
        f"CREATE TABLE x (a INT METADATA FROM 'offst') WITH ({PLAIN})",
        1,
        17,
        "no METADATA offst; did you mean offset?",
    ),
    (
        f"CREATE TABLE x (a INT, WATERMARK FOR a AS a) WITH ({PLAIN})",
        1,
        24,
        "WATERMARK: a is INT, and no TIMESTAMP(3)",
    ),
    (
        "CREATE TABLE x (a INT) WITH (\n'connector' = 'kafak')",
        2,
        15,
        "is not supported; did you mean kafka?",
    ),
    (
        f"CREATE TABLE x (a INT) WITH (\n{PLAIN},\n'formt' = 'json')",
        3,
        1,
        "unknown option; did you mean format?",
    ),
    (
        f"CREATE TABLE x (a INT) WITH (\n{PLAIN.replace('json', 'jsn')})",
        2,
        93,
        "unknown format; did you mean json?",
    ),
    (
        f"CREATE TABLE x (a INT) WITH (\n{PLAIN},\n'scan.bounded.modes' = 'latest-offset')",
        3,
        1,
        "unknown option; did you mean scan.bounded.mode?",
    ),
    (
        f"CREATE TABLE x (a INT) WITH (\n{PLAIN},\n'csv.allow-comments' = 'true')",
        3,
        24,
        "is of the format csv, and the format is json",
    ),
    (
        f"CREATE TABLE x (a INT) WITH (\n{PLAIN},\n'key.fields' = 'a')",
        1,
        14,
        "is required with key.fields",
    ),
    (
        f"CREATE TABLE x (a INT) WITH (\n{PLAIN},\n'key.format' = 'json', 'key.fields' = 'z')",
        3,
        39,
        "no column z; allowed: a",
    ),
    (
        (
            f"CREATE TABLE x (a INT) WITH (\n{PLAIN},\n'json.fail-on-missing-field' = 'true',\n"
            "'json.ignore-parse-errors' = 'true')"
        ),
        3,
        32,
        "and json.ignore-parse-errors exclude each other: keep one",
    ),
    (
        f"CREATE TABLE x (a INT, b INT) WITH ({PLAIN.replace('json', 'raw')})",
        1,
        129,
        "raw is one column, and the value has 2",
    ),
    (f"{SOURCE}{SOURCE}", 1, None, "is declared twice in this file"),  # type: ignore[list-item]
    ("SET 'table.local-time-zone' = 'Berlin'", 1, 31, "is not a time zone"),
]


@pytest.mark.parametrize(
    ("text", "line", "column", "says"), MISTAKES, ids=[row[3][:40] for row in MISTAKES]
)
def test_a_mistake_in_a_declaration(
    tmp_path: Path, text: str, line: int, column: int | None, says: str
) -> None:
    found = loaded(tmp_path, text)
    assert found.flows == ()
    (told,) = found.findings
    assert told.message.startswith(says)
    assert (told.line, column or told.column) == (line, told.column)


TOP = "INSERT INTO o SELECT a, b FROM (SELECT *, ROW_NUMBER() OVER ("


@pytest.mark.parametrize(
    ("query", "column", "says"),
    [
        ("INSERT INTO o SELECT a FROM s", 15, "the query has 1 columns, and o takes 2: k, v"),
        ("INSERT INTO o SELECT a, B FROM s", 25, "no column B; did you mean b?"),
        ("INSERT INTO o SELECT 1.5, b FROM s", 22, "is DECIMAL(2, 1), and o.k is BIGINT"),
        ("INSERT INTO o SELECT b, b FROM s", 22, "is STRING, and o.k is BIGINT: write CAST(... AS"),
        (
            "INSERT INTO x SELECT a, b FROM s",
            13,
            "no table x above, or in another file of",
        ),
        (
            "INSERT INTO o SELECT a, b FROM t",
            32,
            "no table t above, or in another file of",
        ),
        ("INSERT INTO o (k, z) SELECT a, b FROM s", 13, "no column z in o; allowed: k, v"),
        ("INSERT INTO o (k, v, k) SELECT a, b, a FROM s", 13, "the column k is written twice"),
        ("INSERT INTO o SELECT a, b FROM s WHERE a", 40, "WHERE takes a condition, not BIGINT"),
        ("INSERT INTO o SELECT DISTINCT a, b FROM s", 13, "the PRIMARY KEY of o (k) must be the"),
        ("INSERT INTO o SELECT a, b FROM s GROUP BY a", 25, "b is neither in GROUP BY nor inside"),
        ("INSERT INTO o SELECT * FROM s GROUP BY a", 22, "* stands for columns that are not in GR"),
        ("INSERT INTO o SELECT a, LISTAGG(b) FROM s", 25, "LISTAGG is not supported; aggregates a"),
        (
            "INSERT INTO o SELECT a, SUM(b) FROM s GROUP BY a",
            25,
            "SUM: the argument is of type S",
        ),
        ("INSERT INTO o SELECT a, b FROM s WHERE COUNT(*) > 1", 40, "COUNT is an aggregate: it is"),
        (
            "INSERT INTO o SELECT MAX(MIN(a)), 'x' FROM s",
            26,
            "MIN is an aggregate: it is of",
        ),
        ("INSERT INTO o SELECT a, MAX(b, b) FROM s GROUP BY a", 25, "MAX takes 1 argument, not 2"),
        ("INSERT INTO o SELECT a, MAX(*) FROM s GROUP BY a", 29, "* is of COUNT(*) alone"),
        ("INSERT INTO o SELECT a + 1, MAX(b) FROM s GROUP BY a", 13, "the PRIMARY KEY of o (k) mu"),
        ("INSERT INTO o SELECT a, MAX(b) FROM s GROUP BY a, b", 13, "the PRIMARY KEY of o (k) mus"),
        ("INSERT INTO o SELECT a, MAX(b) FROM s GROUP BY CUBE (a)", 48, "CUBE is not sup"),
        ("INSERT INTO s SELECT a, MAX(b) FROM u GROUP BY a", 48, "no column a; allowed: id, b"),
        ("INSERT INTO s SELECT id, MAX(b) FROM u GROUP BY id", 13, "the query has updates and del"),
        ("INSERT INTO o SELECT a, b FROM s LIMIT 3", 34, "LIMIT is not sup"),
        ("INSERT INTO o SELECT s.a, s.b FROM s JOIN u ON TRUE", 38, "a join is not sup"),
        (
            "INSERT INTO o SELECT a, b FROM s UNION SELECT a, b FROM s",
            34,
            "UNION is not supported: write UNION ALL",
        ),
        (
            "INSERT INTO o SELECT a, b FROM s UNION ALL SELECT a, b FROM s",
            44,
            "a second query of s",
        ),
        (
            "INSERT INTO o SELECT a, b FROM s UNION ALL SELECT a FROM w",
            44,
            "the query has 1 columns",
        ),
        ("INSERT INTO o SELECT a, SUM(a) OVER (ORDER BY a) FROM s", 32, "OVER is supported with R"),
        ("INSERT INTO o SELECT a, ROW_NUMBER() OVER () FROM s", 44, "expected ORDER BY, found )"),
        (f"{TOP}ORDER BY b) AS n FROM s)", 43, "ROW_NUMBER() is supported for the first rows of"),
        (f"{TOP}ORDER BY b) AS n FROM s) WHERE n <= 3", 13, "the PRIMARY KEY of o (k) must have"),
        (f"{TOP}ORDER BY ROW(a)) AS n FROM s)", 71, "ORDER BY: ROW<EXPR$0 BIGINT> has no order"),
        (f"{TOP}ORDER BY a) AS n, ROW_NUMBER() OVER (ORDER BY b) AS m FROM s)", 80, "a second ROW"),
        ("INSERT INTO o SELECT 1 + ROW_NUMBER() OVER (ORDER BY b), b FROM s", 26, "ROW_NUMBER() "),
        ("INSERT INTO o SELECT a, b FROM TABLE(TUMBLE(TABLE s))", 52, "expected ,, found )"),
        ("INSERT OVERWRITE o SELECT a, b FROM s", 8, "INSERT OVERWRITE is not supported"),
        ("INSERT INTO s SELECT * FROM s", 13, "the flow reads what it writes: t is also its"),
        ("INSERT INTO s SELECT id, b FROM u", 13, "u has updates and deletes, and s takes inserts"),
        (
            "INSERT INTO o SELECT id + 1, b FROM u",
            13,
            "the PRIMARY KEY of o must be the columns of",
        ),
    ],
)
def test_a_mistake_in_a_query(tmp_path: Path, query: str, column: int, says: str) -> None:
    found = loaded(tmp_path, SOURCE + SOURCE.replace("TABLE s", "TABLE w"), TARGET, UPSERTS, query)
    assert found.flows == ()
    (told,) = found.findings
    assert told.message.startswith(says)
    assert (told.line, told.column) == (4, column)


_NUMBERED = "number the rows in a subquery, ROW_NUMBER() OVER ("


_DATABASE = "write each table into a database by an INSERT of its own, and join them there"


_ASSET = "in an asset of PySpark over the target table"


@pytest.mark.parametrize(
    ("query", "column", "instead"),
    [
        ("SELECT s.a, s.b FROM s LEFT JOIN u ON s.a = u.id", 38, _DATABASE),
        ("SELECT s.a, s.b FROM s, u WHERE s.a = u.id", 37, _DATABASE),
        ("SELECT s.a, u.b FROM s JOIN u FOR SYSTEM_TIME AS OF s.c ON TRUE", 38, _DATABASE),
        ("SELECT id, b FROM u FOR SYSTEM_TIME AS OF PROCTIME()", 35, _DATABASE),
        ("SELECT a, b FROM s WHERE a IN (SELECT id FROM u)", 45, _DATABASE),
        ("SELECT a, b FROM s WHERE EXISTS (SELECT 1 FROM u)", 40, _DATABASE),
        ("SELECT a, (SELECT MAX(b) FROM u) FROM s", 26, _DATABASE),
        ("SELECT a, b FROM s, LATERAL TABLE(f(a)) AS x (e)", 33, "CROSS JOIN UNNEST(items), or"),
        ("SELECT a, b FROM UNNEST(c)", 32, "beside the row that has it: FROM t CROSS JOIN"),
        ("SELECT a, 'x' FROM s GROUP BY a, SESSION(c, INTERVAL '1' DAY)", 48, "windows are TUMBLE"),
        ("SELECT a, 'x' FROM TABLE(SESSION(TABLE s))", 40, f"compute the sessions {_ASSET}"),
        ("SELECT a, b FROM TABLE(TUMBLE(TABLE s PARTITION BY a))", 53, "windows are TUMBLE"),
        ("SELECT a, b FROM s ORDER BY a", 34, _NUMBERED),
        ("SELECT a, b FROM s FETCH FIRST 3 ROWS ONLY", 34, _NUMBERED),
        ("SELECT a, b FROM s OFFSET 3", 34, _NUMBERED),
        ("SELECT a, b FROM s WINDOW w AS (PARTITION BY a)", 34, "behind OVER"),
        ("SELECT a, b FROM s QUALIFY ROW_NUMBER() OVER (ORDER BY a) = 1", 34, "around this one"),
        ("SELECT a, b FROM s MINUS SELECT a, b FROM w", 34, "a table of its own, and compare"),
        (
            "SELECT a, MAX(b) FROM (SELECT a, b FROM s UNION ALL SELECT id, b FROM u) GROUP BY a",
            15,
            "one topic",
        ),
        ("SELECT a, MAX(b) FROM s GROUP BY ROLLUP (a)", 48, "an INSERT INTO with a GROUP BY for"),
        (
            "SELECT a, RANK() OVER (ORDER BY a) FROM s",
            32,
            f"write GROUP BY, or compute them {_ASSET}",
        ),
        ("SELECT a, LAST_VALUE(b) FROM s GROUP BY a", 25, _NUMBERED),
        ("SELECT a, LISTAGG(b) FROM s GROUP BY a", 25, f"compute it {_ASSET}"),
        ("SELECT a, b FROM s MATCH_RECOGNIZE (PATTERN (A B)) AS x", 34, f"find such rows {_ASSET}"),
        ("SELECT a, b FROM (VALUES (1, 'x')) AS x (a, b)", 32, "send such rows to its topic"),
        ("SELECT a, b FROM s WHERE CURRENT_WATERMARK(c) < c", 40, "windows leave out and count"),
    ],
)
def test_each_refusal_has_a_place_and_says_what_to_write_instead(
    tmp_path: Path, query: str, column: int, instead: str
) -> None:
    tables = SOURCE.replace("b STRING", "b STRING, c TIMESTAMP(3)")
    both = (tables + tables.replace("TABLE s", "TABLE w"), TARGET, UPSERTS)
    told, *_ = loaded(tmp_path, *both, f"INSERT INTO o {query}").findings
    assert (told.line, told.column) == (4, column)
    assert instead in told.message
