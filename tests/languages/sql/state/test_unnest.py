"""UNNEST: what a row with arrays and maps becomes, and where it is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

import devservers
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.flow import Flow
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.manifests.load import load
from dataflow_assets.records.chain import Chain
from dataflow_assets.records.record import Record
from dataflow_assets.records.step import Context
from dataflow_assets.runs.request import Report
from dataflow_assets.testing import choose
from tests.languages.sql.files import Sql
from tests.languages.sql.state.test_model import LOG, Run, Sink, limits, log_source
from tests.languages.sql.test_rows import NOW, flow, table

Drain = Callable[[Flow], list[Report]]
ORDERS = "id BIGINT, xs ARRAY<INT>, ls ARRAY<ROW<sku STRING, n INT>>, m MAP<STRING, INT>"
KEYED = f"{ORDERS}, PRIMARY KEY (id) NOT ENFORCED"


def made(tmp_path: Path, into: str, query: str, body: dict[str, Any]) -> list[Any]:
    """The rows of one record."""
    found = flow(tmp_path, table("s", ORDERS), table("o", into), f"INSERT INTO o {query};")
    chain = Chain(found.transformations, Context(NOW))
    return [list(one.body.values()) for one in chain(Record(body, {}))]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT id, x FROM s CROSS JOIN UNNEST(xs) AS t (x)", [[7, 3], [7, None], [7, 3]]),
        ("SELECT id, x FROM s CROSS JOIN LATERAL UNNEST(xs) AS t (x)", [[7, 3], [7, None], [7, 3]]),
        ("SELECT id, t.x FROM s, UNNEST(s.xs) t (x) WHERE x > 0", [[7, 3], [7, 3]]),
        ("SELECT id, x FROM s JOIN UNNEST(xs) AS t (x) ON x > 0", [[7, 3], [7, 3]]),
        ("SELECT id, x FROM s INNER JOIN UNNEST(xs) AS t (x) ON TRUE WHERE x IS NULL", [[7, None]]),
        ("SELECT id, t FROM s CROSS JOIN UNNEST(xs) AS t WHERE t = 3", [[7, 3], [7, 3]]),
        ("SELECT id, `EXPR$0` FROM s, UNNEST(ARRAY[id, 1])", [[7, 7], [7, 1]]),
        (
            "SELECT x, o FROM s, UNNEST(xs) WITH ORDINALITY AS t (x, o)",
            [[3, 1], [None, 2], [3, 3]],
        ),
        ("SELECT id, ORDINALITY FROM s, UNNEST(m) WITH ORDINALITY AS t", [[7, 1], [7, 2]]),
        ("SELECT n, CHAR_LENGTH(sku) FROM s CROSS JOIN UNNEST(ls)", [[2, 1], [5, 2]]),
        ("SELECT id, b FROM s CROSS JOIN UNNEST(ls) AS t (a, b) WHERE a = 'bc'", [[7, 5]]),
        ("SELECT id, `VALUE` FROM s, UNNEST(m) AS t WHERE KEY <> 'p'", [[7, 2]]),
        ("SELECT o, x FROM s, UNNEST(xs) AS t (x), UNNEST(ARRAY[x, 9]) AS u (o) WHERE x > o", []),
        (
            "SELECT x, y FROM s, UNNEST(ARRAY[1, 2]) AS t (x), UNNEST(ARRAY[x * 2, 9]) AS u (y)",
            [[1, 2], [1, 9], [2, 4], [2, 9]],
        ),
        (
            "SELECT id, x FROM (SELECT id, ARRAY[id] AS y FROM s WHERE id > 1) v, UNNEST(y) t (x)",
            [[7, 7]],
        ),
    ],
)
def test_a_row_becomes_a_row_for_each_item(
    tmp_path: Path, query: str, wanted: list[list[Any]]
) -> None:
    body = {
        "id": 7,
        "xs": [3, None, 3],
        "ls": [{"sku": "a", "n": 2}, None, {"sku": "bc", "n": 5}],
        "m": {"p": 1, "q": 2},
    }
    assert made(tmp_path, "a BIGINT, b BIGINT", query, body) == wanted


@pytest.mark.parametrize("column", ["xs", "m", "ls"])
@pytest.mark.parametrize("empty", [True, False])
def test_a_row_without_items_stays_with_a_left_join_alone(
    tmp_path: Path, column: str, *, empty: bool
) -> None:
    body: dict[str, Any] = {"id": 7, column: ({} if column == "m" else []) if empty else None}
    query = f"SELECT id, ORDINALITY FROM s CROSS JOIN UNNEST({column}) WITH ORDINALITY AS t"
    assert made(tmp_path, "a BIGINT, b INT", query, body) == []
    query = query.replace("CROSS", "LEFT") + " ON TRUE"
    assert made(tmp_path, "a BIGINT, b INT", query, body) == [[7, None]]


def test_a_where_below_leaves_rows_out_before_their_items_are_computed(tmp_path: Path) -> None:
    """And a record of which one row cannot be computed is rejected with all of them."""
    below = (
        "SELECT x, 1 FROM (SELECT id, xs FROM s WHERE id <> 0) AS v, UNNEST(ARRAY[1 / id]) AS t (x)"
    )
    assert made(tmp_path, "a BIGINT, b INT", below, {"id": 0}) == []
    with pytest.raises(RejectedRecord, match="UNNEST: division by zero"):
        made(tmp_path, "a BIGINT, b INT", below.replace(" WHERE id <> 0", ""), {"id": 0})
    with pytest.raises(RejectedRecord, match="a: division by zero"):
        made(
            tmp_path, "a INT, b INT", "SELECT 6 / x, x FROM s, UNNEST(xs) AS t (x)", {"xs": [1, 0]}
        )


@pytest.mark.parametrize(
    ("query", "column", "says"),
    [
        (
            "SELECT id, 1 FROM s CROSS JOIN UNNEST(id) AS t (x)",
            53,
            "UNNEST takes an array or a map, ",
        ),
        (
            "SELECT id, x FROM s CROSS JOIN UNNEST(xs) AS t (x, y)",
            46,
            "UNNEST has 1 columns (INT), and",
        ),
        (
            "SELECT id, x FROM s CROSS JOIN UNNEST(ls) AS t (x, x)",
            46,
            "UNNEST has two columns of the",
        ),
        (
            "SELECT id, 1 FROM s CROSS JOIN UNNEST(xs) AS s (x)",
            46,
            "s is the name of another table",
        ),
        ("SELECT id, 1 FROM s, UNNEST(xs) AS t (id)", 22, "several tables of FROM have a column"),
        ("SELECT id, 1 FROM s RIGHT JOIN UNNEST(xs) AS t (x) ON TRUE", 35, "RIGHT JOIN UNNEST is"),
        (
            "SELECT id, 1 FROM s LEFT JOIN UNNEST(xs) AS t (x) ON x > 1",
            68,
            "LEFT JOIN UNNEST takes",
        ),
        ("SELECT id, 1 FROM s LEFT JOIN UNNEST(xs) AS t (x)", 64, "expected ON"),
        ("SELECT id, 1 FROM s, UNNEST(xs, xs) AS t (x)", 45, "UNNEST takes one array or map"),
        ("SELECT id, 1 FROM s, UNNEST(xs) AS t (x) JOIN s ON TRUE", 56, "a join is not supported"),
        (
            "SELECT n, 1 FROM (SELECT COUNT(*) AS n FROM s) v, UNNEST(ARRAY[n])",
            65,
            "UNNEST of groups, ",
        ),
        ("SELECT id, 1 FROM u, UNNEST(xs) AS t (x)", 36, "UNNEST of u, whose rows are replaced"),
    ],
)
def test_a_join_that_cannot_be(tmp_path: Path, query: str, column: int, says: str) -> None:
    into = "a BIGINT, b BIGINT, PRIMARY KEY (a) NOT ENFORCED"
    tables = f"{table('s', ORDERS)}\n{table('u', KEYED)}\n{table('o', into)}\n"
    file = tmp_path / "one.sql"
    file.write_text(f"{tables}INSERT INTO o {query};")
    (told, *_) = load(file).findings
    assert told.message.startswith(says)
    assert (told.line, told.column) == (4, column)


def test_items_that_a_row_has_lost_leave_their_groups(folder: Path) -> None:
    """Item by item, by SELECT DISTINCT and by GROUP BY, whatever is read at once."""
    for query, into in (
        (
            "SELECT DISTINCT id, x, 1 FROM s, UNNEST(xs) AS t (x)",
            "id BIGINT, x INT, n INT, PRIMARY KEY (id, x, n)",
        ),
        (
            "SELECT sku, SUM(n) FROM s CROSS JOIN UNNEST(ls) GROUP BY sku",
            "sku STRING, n INT, PRIMARY KEY (sku)",
        ),
    ):
        run = _run(folder, table("s", KEYED), table("o", f"{into} NOT ENFORCED"), query)
        sent: list[dict[str, Any]] = [
            {"id": 1, "xs": [1, 2], "ls": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}]},
            {"id": 2, "xs": [1], "ls": [{"sku": "a", "n": 5}]},
            {"id": 1, "xs": [2, 2, 3], "ls": [{"sku": "a", "n": 2}]},
        ]
        LOG["0"] = [(b'{"id":%d}' % one["id"], json.dumps(one).encode()) for one in sent]
        for upto in range(1, 4):
            run.span({"0": upto}, limits(Random(upto)), small=upto % 2 == 0)
        rows = sorted(list(one.values()) for one in run.sink.rows.values())
        assert rows == ([[1, 2, 1], [1, 3, 1], [2, 1, 1]] if "x" in into else [["a", 7]])
        LOG["0"].append((b'{"id":2}', None))
        run.span({"0": 4}, limits(Random(4)), small=True)
        rows = sorted(list(one.values()) for one in run.sink.rows.values())
        assert rows == ([[1, 2, 1], [1, 3, 1]] if "x" in into else [["a", 2]])


def _run(folder: Path, source: str, target: str, query: str) -> Run:
    file = folder / "one.sql"
    file.write_text(f"{source}\n{target}\nINSERT INTO o {query};")
    view = choose(load(file), None).source
    assert isinstance(view, ViewSource)
    keys = [one.name for one in view.view.outputs if one.key]
    LOG.clear()
    return Run(view, log_source(view.source), Sink(keys))


def test_the_key_of_numbered_items_has_their_number(folder: Path) -> None:
    """Two items of a row may be equal: their row's key does not tell them apart."""
    numbered = "SELECT *, ROW_NUMBER() OVER (PARTITION BY x ORDER BY id) AS rn FROM s, "
    into = "id BIGINT, o INT, x INT, PRIMARY KEY (id{}) NOT ENFORCED"
    query = (
        f"SELECT id, o, x FROM ({numbered} UNNEST(xs) WITH ORDINALITY AS t (x, o)) WHERE rn <= 9"
    )
    run = _run(folder, table("s", KEYED), table("o", into.format(", o")), query)
    LOG["0"] = [(b'{"id":1}', b'{"id":1,"xs":[4,4]}')]
    run.span({"0": 1}, limits(Random(1)), small=True)
    assert sorted(list(one.values()) for one in run.sink.rows.values()) == [[1, 1, 4], [1, 2, 4]]
    with pytest.raises(Exception, match=r"the PRIMARY KEY of o .id. must have the columns of"):
        _run(folder, table("s", KEYED), table("o", into.format("")), query)


def test_items_in_windows(folder: Path) -> None:
    columns = "xs ARRAY<INT>, t TIMESTAMP(3), WATERMARK FOR t AS t"
    window = "TABLE(TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '1' MINUTE)) AS w"
    query = (
        f"SELECT window_start, x, COUNT(*) FROM {window} CROSS JOIN UNNEST(w.xs) AS u (x) "
        "GROUP BY window_start, window_end, x"
    )
    into = "t TIMESTAMP(3), x INT, n BIGINT, PRIMARY KEY (t, x) NOT ENFORCED"
    run = _run(folder, table("s", columns), table("o", into), query)
    body = '{"xs":%s,"t":"2026-01-01 00:0%d:00"}'
    rows = [("[1,1,2]", 0), ("[]", 0), ("[1]", 1), ("null", 2)]
    LOG["0"] = [(None, (body % one).encode()) for one in rows]
    run.span({"0": 4}, limits(Random(1)), small=True)
    found = sorted([one["t"][14:16], one["x"], one["n"]] for one in run.sink.rows.values())
    assert found == [["00", 1, 2], ["00", 2, 1], ["01", 1, 1]]


BODY = '{"x":%d,"t":"2026-01-01 00:0%d:00"}'


def test_records_in_arrays_are_counted_each(folder: Path) -> None:
    """Beside records that come alone, in groups and in windows."""
    sent = [f"[{BODY % (1, 0)},{BODY % (2, 0)}]", BODY % (1, 0), "[]", f"[{BODY % (3, 2)}]"]
    window = "TABLE(TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '1' MINUTE))"
    in_windows = (
        f"SELECT x, COUNT(*), window_start FROM {window} GROUP BY window_start, window_end, x"
    )
    for query, into, wanted in (
        ("SELECT x, COUNT(*) FROM s GROUP BY x", "x", [[1, 2], [2, 1], [3, 1]]),
        (in_windows, "x, t", [[1, 2], [2, 1]]),
    ):
        columns = "x INT, t TIMESTAMP(3), WATERMARK FOR t AS t"
        at = ", t TIMESTAMP(3)" * ("t" in into)
        target = table("o", f"x INT, n BIGINT{at}, PRIMARY KEY ({into}) NOT ENFORCED")
        run = _run(folder, table("s", columns), target, query)
        LOG["0"] = [(None, one.encode()) for one in sent]
        run.span({"0": 4}, limits(Random(1)), small=True)
        assert sorted([one["x"], one["n"]] for one in run.sink.rows.values()) == wanted


def test_items_in_a_topic_and_in_a_table(
    sql: Sql, run: Drain, postgresql: devservers.PostgreSQL, schema: str
) -> None:
    """Each item once, in order; of the items with the same key the last one counts."""
    bodies = [
        {"id": k, "xs": [], "m": {}, "ls": [{"sku": "a", "n": n} for n in range(k)]}
        for k in range(4)
    ]
    sql.send((None, json.dumps(one).encode()) for one in bodies)
    query = "SELECT id, n FROM s CROSS JOIN UNNEST(ls)"
    run(sql.write(ORDERS, "id BIGINT, n INT", query))
    wanted = [(k, n) for k in range(4) for n in range(k)]
    assert [tuple(json.loads(value or b"").values()) for _, value in sql.rows()] == wanted
    with psycopg.connect(postgresql.dsn(), autocommit=True) as link:
        link.execute(f"CREATE TABLE {schema}.t (id bigint PRIMARY KEY, n int)".encode())
        options = {"connector": "postgresql", "url": postgresql.dsn(), "table-name": f"{schema}.t"}
        into = "id BIGINT, n INT, PRIMARY KEY (id) NOT ENFORCED"
        run(sql.write(ORDERS, into, query, target_with=options))
        found = link.execute(f"SELECT * FROM {schema}.t ORDER BY id".encode()).fetchall()
    assert found == [(1, 0), (2, 1), (3, 2)]
