"""Killed at each step and run again: items of records, and groups over two topics, count once."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import Topics
from tests.drained import drain_apart
from tests.languages.sql.files import Sent, Sql, latest

STEPS = (
    "kafka.begin",
    "kafka.before-commit",
    "kafka.after-commit",
    "drain.passed",
    "kafka.finish",
)
VIEW_STEPS = ("view.read", "view.output", "view.manifest", *STEPS)
SOME = ("kafka.before-commit", "kafka.after-commit", "kafka.finish")
VIEW_SOME = ("view.output", "view.manifest", "kafka.before-commit", "kafka.finish")
"""Around what is kept; groups of one topic are killed at the others, too."""


def some(steps: Sequence[str], all_of_them: Sequence[str]) -> pytest.MarkDecorator:
    """`make test-all` kills at all of them."""
    every = pytest.param(all_of_them, marks=pytest.mark.full)
    return pytest.mark.parametrize("steps", [steps, every], ids=["some", "all"])


def sent(turn: int) -> list[Sent]:
    """Rows with as many items as their number says, some of them with none."""
    numbers = range(turn * 6, turn * 6 + 6)
    return [(None, json.dumps({"g": n % 3, "xs": [*range(n % 4)]}).encode()) for n in numbers]


def killed(sql: Sql, step: str) -> None:
    """Once at the step, and then to the end."""
    assert drain_apart(str(sql.path), failpoint=f"{step}:kill:1") == -signal.SIGKILL, step
    assert drain_apart(str(sql.path)) == 0


@pytest.mark.crash
@pytest.mark.timeout(600)
@some(SOME, STEPS)
def test_each_item_is_stored_once_and_in_order(sql: Sql, steps: Sequence[str]) -> None:
    sql.write("g INT, xs ARRAY<INT>", "g INT, x INT", "SELECT g, x FROM s, UNNEST(xs) AS t (x)")
    wanted: list[tuple[int, int]] = []
    for turn, step in enumerate(steps):
        sql.send(sent(turn))
        rows = [json.loads(value or b"") for _, value in sent(turn)]
        wanted += [(row["g"], x) for row in rows for x in row["xs"]]
        killed(sql, step)
        assert [(*json.loads(value or b"").values(),) for _, value in sql.rows()] == wanted, step


@pytest.mark.crash
@pytest.mark.timeout(600)
@some(VIEW_SOME, VIEW_STEPS)
def test_groups_of_items_of_two_topics(
    sql: Sql,
    steps: Sequence[str],
    topic: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    other = Sql(sql.path, sql.kafka, topic(), sql.target)
    columns, into = "g INT, xs ARRAY<INT>", "x INT, n BIGINT, PRIMARY KEY (x) NOT ENFORCED"
    sql.write(columns, into, "SELECT x, COUNT(*) FROM s, UNNEST(xs) AS t (x) GROUP BY x")
    with_options = f"WITH ('topic' = '{other.source}') LIKE s (OVERWRITING OPTIONS);"
    union = "(SELECT g, xs FROM s UNION ALL SELECT g, xs FROM w WHERE g > 0) AS v"
    text = sql.path.read_text().replace("FROM s,", f"FROM {union},")
    sql.path.write_text(text.replace("INSERT", f"CREATE TABLE w {with_options}\nINSERT"))
    counted: Counter[int] = Counter()
    for turn, step in enumerate(steps):
        for one in (sql, other):
            one.send(sent(turn))
            rows = [json.loads(value or b"") for _, value in sent(turn)]
            counted.update(x for row in rows for x in row["xs"] if one is sql or row["g"] > 0)
        killed(sql, step)
        found = [json.loads(row) for row in latest(sql.stored()).values()]
        assert {row["x"]: row["n"] for row in found} == counted, step
