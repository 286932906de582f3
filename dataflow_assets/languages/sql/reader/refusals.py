"""The parts of Flink's SQL that do not run here, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_PYSPARK = "in an asset of PySpark over the target table"
_JOINED = (
    "write each table into a database by an INSERT of its own, and join them there, or in an asset "
    "of PySpark over the target tables"
)
_UNNESTED = (
    "an array, or a map, is unnested beside the row that has it: FROM t CROSS JOIN UNNEST(items) "
    "AS x (item)"
)
_OF_FUNCTIONS = (
    "functions of tables are not run: unnest an array by CROSS JOIN UNNEST(items), or compute the "
    f"rows {_PYSPARK}"
)
_NUMBERED = "number the rows in a subquery, ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) AS rn"
_FIRST = f"{_NUMBERED}, and write WHERE rn <= 10, or another number, around it"
_ONE = f"for the first or the last row of each key {_NUMBERED}, and write WHERE rn = 1 around it"
_COMPARED = "write each query into a table of its own, and compare the tables where they are read"
_SESSIONS = (
    "windows are TUMBLE, HOP and CUMULATE; write one of them, or write the rows into a table, and "
    f"compute the sessions {_PYSPARK}"
)
_INSTEAD: Mapping[str, str] = {
    "ORDER BY": f"sort where the target is read; for the first rows of each key {_FIRST}",
    **dict.fromkeys(("LIMIT", "FETCH", "OFFSET"), _FIRST),
    "WINDOW": "write what it names behind OVER",
    "QUALIFY": "write a query around this one, with a WHERE",
    "UNION": "write UNION ALL; where the target has a PRIMARY KEY, equal rows are one row",
    **dict.fromkeys(("EXCEPT", "INTERSECT", "MINUS"), _COMPARED),
    **dict.fromkeys(
        ("GROUPING", "ROLLUP", "CUBE"), "write an INSERT INTO with a GROUP BY for each of them"
    ),
    **dict.fromkeys(("a join", "a temporal join", "a subquery in an expression"), _JOINED),
    "UNNEST": _UNNESTED,
    "LATERAL": _OF_FUNCTIONS,
    "WITH": "write it behind INSERT INTO and the table, or a CREATE VIEW for each of its queries",
    "VALUES": "a flow reads a table; send such rows to its topic, or insert them into the target",
    "MATCH_RECOGNIZE": f"find such rows {_PYSPARK}",
    **dict.fromkeys(("SESSION", "SESSION_START", "SESSION_END", "SESSION_ROWTIME"), _SESSIONS),
    **dict.fromkeys(
        ("TUMBLE_PROCTIME", "HOP_PROCTIME"),
        "it is for windows over windows, which are not run; for a time write TUMBLE_END, HOP_END "
        "or PROCTIME()",
    ),
    "CURRENT_WATERMARK": "windows leave out and count rows that are late; leave the condition out",
    "CATALOG": "write a CREATE TABLE for each of its tables that the file uses",
    "MATERIALIZED": "write a CREATE TABLE and an INSERT INTO",
}

OVER = (
    "OVER is supported with ROW_NUMBER() alone, for the first rows of each key; for sums and "
    f"counts write GROUP BY, or compute them {_PYSPARK}"
)
UNITED = (
    "UNION ALL below GROUP BY, DISTINCT or an aggregate is supported over tables of kafka, with "
    "expressions, WHERE and UNNEST: {} is something else. Write all rows into one topic, and read "
    "that one"
)


def refusal(what: str) -> str:
    """The sentence about a clause of Flink's that does not run here."""
    return f"{what} is not supported: {_INSTEAD[what]}"


def is_refused(name: str) -> bool:
    return name in _INSTEAD


def refused_aggregate(name: str, allowed: Iterable[str]) -> str:
    instead = _ONE if name in ("FIRST_VALUE", "LAST_VALUE") else f"compute it {_PYSPARK}"
    return f"{name} is not supported; aggregates are {', '.join(allowed)}: {instead}"


ELSEWHERE: Mapping[str, str] = {
    "=>": "at least is written >=, and arguments of a function are given without their names",
    "==": "equality is written =",
    "::": "a type is changed by CAST(value AS type)",
    "ILIKE": "write LOWER(value) LIKE 'pattern'",
    "RLIKE": "write REGEXP(value, 'pattern')",
    "SIMILAR": "write REGEXP(value, '^(pattern)$'), whose signs are those of Java",
    "PLACING": "write SUBSTRING(a, 1, 2) || b || SUBSTRING(a, 5)",
    "REGEXP": "write REGEXP(value, 'pattern')",
    "QUALIFY": "write a query around this one, with a WHERE",
}
"""Signs and words of other databases, and how they are written in Flink's SQL."""
