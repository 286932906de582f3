"""The first rows of each key, and the only one: what is in the topic for what was sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.runs.request import Report, Start
from tests.drained import drained
from tests.languages.sql.files import Sent, Sql, latest

Run = Callable[[Flow], list[Report]]
NUMBERED = "SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY a DESC) AS rn FROM s"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))


def table(sql: Sql) -> list[tuple[object, ...]]:
    """What the topic says, in the order of its keys."""
    stored = latest(sql.stored())
    return [tuple(json.loads(value).values()) for _, value in sorted(stored.items())]


def plain(**values: object) -> Sent:
    return None, json.dumps(values).encode()


def row(key: int, group: str, a: int | None) -> Sent:
    return b'{"k":%d}' % key, json.dumps({"g": group, "a": a}).encode()


ORDERS = "id BIGINT, state STRING, at TIMESTAMP(3)"
ORDER = "id BIGINT, state STRING, PRIMARY KEY (id) NOT ENFORCED"


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("at", [(1, "first"), (2, "only")]),
        ("at DESC", [(1, "latest of two"), (2, "only")]),
        ("PROCTIME()", [(1, "late"), (2, "only")]),
        ("PROCTIME() DESC", [(1, "first"), (2, "only")]),
    ],
)
def test_one_row_of_each_key(order: str, wanted: list[object], sql: Sql, run: Run) -> None:
    """Of rows of the same time the first one that came, or the last one, whatever the order is."""
    query = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY {order}) AS rn FROM s"
    flow = sql.write(ORDERS, ORDER, f"SELECT id, state FROM ({query}) WHERE rn = 1")
    at = ("2026-01-01 00:00:01", "2026-01-01 00:00:00")
    sql.send([plain(id=1, state="late", at=at[0]), plain(id=1, state="latest of two", at=at[0])])
    run(flow)
    sql.send([plain(id=1, state="first", at=at[1]), plain(id=2, state="only", at=at[1])])
    sql.send([plain(id=2, state="only", at=at[1])])
    run(flow)
    assert table(sql) == wanted
    before = sql.rows()
    sql.send([plain(id=1, state="no", at=None)])
    run(flow)
    assert (sql.rows() == before) == (order in ("at DESC", "PROCTIME()"))


ROWS = "k BIGINT, g STRING, a BIGINT, PRIMARY KEY (k) NOT ENFORCED"
RANKED = "g STRING, rn BIGINT, k BIGINT, a BIGINT, PRIMARY KEY (g, rn) NOT ENFORCED"


def test_the_first_rows_with_their_numbers_are_followed_by_the_next(sql: Sql, run: Run) -> None:
    flow = sql.write(ROWS, RANKED, f"SELECT g, rn, k, a FROM ({NUMBERED}) WHERE rn <= 2")
    sql.send([row(1, "x", 5), row(2, "x", 9), row(3, "x", 3), row(4, "y", None)])
    run(flow)
    assert table(sql) == [("x", 1, 2, 9), ("x", 2, 1, 5), ("y", 1, 4, None)]
    sql.send([(b'{"k":2}', None), row(4, "x", 7)])
    run(flow)
    assert table(sql) == [("x", 1, 4, 7), ("x", 2, 1, 5)]
    before = sql.rows()
    sql.send([row(3, "x", 4), row(1, "x", 5)])
    run(flow)
    assert sql.rows() == before  # nothing of the first two has changed


def test_rows_by_their_own_key_move_between_groups_in_one_micro_batch(sql: Sql, run: Run) -> None:
    """A key that leaves the first rows of one group for those of another one stays in the table."""
    into = "k BIGINT, g STRING, a BIGINT, PRIMARY KEY (k) NOT ENFORCED"
    flow = sql.write(ROWS, into, f"SELECT k, g, a FROM ({NUMBERED}) WHERE rn <= 2")
    sql.send([row(n, group, n) for n, group in enumerate("xyxyxy")])
    run(flow)
    assert table(sql) == [(2, "x", 2), (3, "y", 3), (4, "x", 4), (5, "y", 5)]
    sql.send([row(n, group, n) for n, group in enumerate("yxyxyx")])
    run(flow)
    assert table(sql) == [(2, "y", 2), (3, "x", 3), (4, "y", 4), (5, "x", 5)]
    assert (b'{"k":2}', None) not in sql.rows()


def test_the_first_groups_by_what_they_count(sql: Sql, run: Run) -> None:
    """GROUP BY and ROW_NUMBER() in one SELECT, numbers from the second on, in a view."""
    into = "rn BIGINT, g STRING, n BIGINT, PRIMARY KEY (rn) NOT ENFORCED"
    counted = (
        "SELECT g, COUNT(*) AS n, ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC, g) AS rn FROM s "
        "GROUP BY g"
    )
    flow = sql.write(
        "g STRING", into, f"SELECT rn, g, n FROM ({counted}) WHERE rn BETWEEN 2 AND 3 AND n > 1"
    )
    sql.send(plain(g=one) for one in "xxxxyyyzzu")
    run(flow)
    assert table(sql) == [(2, "y", 3), (3, "z", 2)]
    sql.send(plain(g=one) for one in "zzz")
    run(flow)
    assert table(sql) == [(2, "x", 4), (3, "y", 3)]


def test_a_row_that_cannot_be_computed_is_rejected_and_the_others_are_written(
    sql: Sql, run: Run
) -> None:
    into = RANKED.replace(", a BIGINT", "")
    flow = sql.write(ROWS, into, f"SELECT g, rn, 10 / a FROM ({NUMBERED}) WHERE rn <= 2")
    sql.send([row(1, "x", 0), row(2, "x", 5), row(3, "x", -1)])
    (*_, last) = run(flow)
    assert table(sql) == [("x", 1, 2)]
    assert last.checkpoint.totals.rejected == 1
    (_, told) = sql.stored(f"{sql.target}.rejected")[0][1:]
    assert json.loads(told or b"")["error"]["message"].endswith("row 2: k: division by zero")


def test_fewer_rows_are_built_again_and_the_others_are_deleted(sql: Sql, run: Run) -> None:
    query = f"SELECT g, rn, k, a FROM ({NUMBERED}) WHERE rn <= 3"
    sql.send([row(n, "x", n) for n in range(4)])
    run(sql.write(ROWS, RANKED, query))
    assert [one[1] for one in table(sql)] == [1, 2, 3]
    drained(sql.write(ROWS, RANKED, query.replace("3", "1")), Start("earliest"))
    assert table(sql) == [("x", 1, 3, 3)]


def test_a_changed_column_beside_a_number_is_built_again(sql: Sql, run: Run) -> None:
    """A row that keeps its number would keep what the query before had made of it."""
    query = f"SELECT g, rn, k, a FROM ({NUMBERED}) WHERE rn <= 3"
    sql.send([row(1, "x", 4)])
    run(sql.write(ROWS, RANKED, query))
    sql.send([row(2, "x", 5)])
    with pytest.raises(PermanentError, match="the query was changed, and what is kept for it"):
        run(sql.write(ROWS, RANKED, query.replace(" a FROM", " a * 100 FROM", 1)))
