"""UNION ALL inside of views and subqueries: with state and without."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from dataflow_assets.assets.graph import build
from dataflow_assets.contracts import OffsetSlice, PartSlice
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.state import output
from dataflow_assets.languages.sql.state.output import OutputRow, batches
from dataflow_assets.languages.sql.state.reading import ViewReader
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.manifests.load import load
from dataflow_assets.micro_batch.places import Places
from dataflow_assets.runs.request import Report, Start
from dataflow_assets.testing import choose
from tests.conftest import Topics
from tests.drained import drained
from tests.languages.sql.files import Sql, latest
from tests.languages.sql.test_rows import table

Drain = Callable[[Flow], list[Report]]
ROWS = "g STRING, n INT"
MORE = "g STRING, n BIGINT, x STRING"
VIEW = "CREATE VIEW v AS SELECT g, n FROM s UNION ALL SELECT g, n FROM w WHERE n > 0;"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))


def written(tmp_path: Path, into: str, *statements: str) -> Path:
    """A file with two tables to read and one to write."""
    file = tmp_path / "one.sql"
    tables = [
        table("s", ROWS),
        table("w", MORE),
        table("u", f"{ROWS}, PRIMARY KEY (g) NOT ENFORCED"),
    ]
    file.write_text("\n".join([*tables, table("o", into), *statements]))
    return file


@pytest.mark.parametrize(
    "query",
    [
        "SELECT g, n FROM v WHERE g <> 'x'",
        "SELECT * FROM (SELECT g, n FROM s UNION ALL (SELECT g, n FROM w))",
        "SELECT * FROM ((SELECT g, n FROM s) UNION ALL SELECT g, n FROM w) AS y",
        "(SELECT g, n FROM s UNION ALL SELECT g, n FROM w)",
    ],
)
def test_without_state_each_table_is_a_flow(tmp_path: Path, query: str) -> None:
    flows = load(written(tmp_path, MORE[:-10], VIEW, f"INSERT INTO o {query};")).flows
    assert [one.name for one in flows] == ["o.s", "o.w"]


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "SELECT g, n FROM s UNION ALL SELECT g FROM w",
            "UNION ALL: this query has 1 columns, and",
        ),
        (
            "SELECT g, n FROM s UNION ALL SELECT n, g FROM w",
            "UNION ALL: g is STRING, and here BIGINT: wr",
        ),
        ("SELECT g, n FROM s UNION SELECT g, n FROM w", "UNION is not supported: write UNION ALL"),
    ],
)
def test_queries_that_cannot_be_united(tmp_path: Path, statement: str, says: str) -> None:
    file = written(
        tmp_path, ROWS, f"CREATE VIEW x AS {statement};", "INSERT INTO o SELECT * FROM x;"
    )
    (told,) = load(file).findings
    assert told.message.startswith(says)
    assert told.line == 5


@pytest.mark.parametrize(
    ("union", "says"),
    [
        (
            "SELECT g, n FROM s UNION ALL SELECT g, n FROM u",
            "u, whose rows are replaced and deleted, is",
        ),
        (
            "SELECT g, n FROM s UNION ALL SELECT g, COUNT(*) FROM w GROUP BY g",
            "the part that reads w, a query of",
        ),
    ],
)
def test_what_cannot_be_grouped_together(tmp_path: Path, union: str, says: str) -> None:
    into = "g STRING, n BIGINT, PRIMARY KEY (g) NOT ENFORCED"
    file = written(tmp_path, into, f"INSERT INTO o SELECT g, SUM(n) FROM ({union}) GROUP BY g;")
    (told,) = load(file).findings
    assert says in told.message
    numbered = "SELECT g, n, ROW_NUMBER() OVER (PARTITION BY g ORDER BY n) AS r FROM v"
    top = f"SELECT g, n FROM ({numbered}) WHERE r = 1"
    file = written(tmp_path, into, VIEW, f"INSERT INTO o {top};")
    (told,) = load(file).findings
    assert "ROW_NUMBER() over UNION ALL is not supported" in told.message


def test_groups_of_two_topics_together(sql: Sql, run: Drain, topic: Topics, tmp_path: Path) -> None:
    """One flow, with a position of its own in each of them."""
    other = Sql(sql.path, sql.kafka, topic(), sql.target)
    into = "g STRING, n BIGINT, PRIMARY KEY (g) NOT ENFORCED"
    sql.write(ROWS, into, "SELECT g, SUM(n) FROM s GROUP BY g")
    more = (
        f"CREATE TABLE w WITH ('topic' = '{other.source}') LIKE s (OVERWRITING OPTIONS);\n{VIEW}\n"
    )
    text = sql.path.read_text().replace("FROM s GROUP", "FROM v GROUP")
    sql.path.write_text(text.replace("INSERT INTO", f"{more}INSERT INTO"))
    flow = choose(load(sql.path), None)
    assert flow.name == "o.s"
    assert isinstance(flow.source, ViewSource)
    for turn in (1, 2):
        sql.send([(None, b'{"g":"a","n":1}'), (None, b'{"g":"b","n":-5}'), (None, b"{bad")])
        other.send([(None, b'{"g":"a","n":10}'), (None, b'{"g":"b","n":-7}'), (None, b"{bad")])
        reports = run(flow)
        found = {
            json.loads(key or b"")["g"]: json.loads(row)["n"]
            for key, row in latest(sql.stored()).items()
        }
        assert found == {"a": 11 * turn, "b": -5 * turn}
    assert reports[-1].lag.records == 0
    rejected = sql.stored(f"{sql.target}.rejected")
    errors = [json.loads(row or b"")["error"] for _, _, row in rejected]
    places = {(one["metadata"]["topic"], one["metadata"]["offset"]) for one in errors}
    assert places == {(one.source, offset) for one in (sql, other) for offset in (2, 5)}
    assert len({one["id"] for one in errors}) == len(errors) == 4


def test_the_graph_has_an_edge_from_each_topic(tmp_path: Path) -> None:
    into = "g STRING, n BIGINT, PRIMARY KEY (g) NOT ENFORCED"
    query = "INSERT INTO o SELECT g, COUNT(*) FROM v GROUP BY g;"
    graph = build(load(written(tmp_path, into, VIEW, query)).flows)
    (node,) = graph.nodes
    assert node.source is not None
    assert [one[-1] for one in (node.source, *node.also)] == ["s", "w"]
    assert [one.name for one in graph.topics.values()] == ["s", "w"]


def _texts(sql: Sql, other: Sql) -> tuple[str, str]:
    """Groups over one table, and over two of them; each topic has a record."""
    into = "g STRING, n BIGINT, PRIMARY KEY (g) NOT ENFORCED"
    sql.write(ROWS, into, "SELECT g, SUM(n) FROM s GROUP BY g")
    alone = sql.path.read_text()
    more = (
        f"CREATE TABLE w WITH ('topic' = '{other.source}') LIKE s (OVERWRITING OPTIONS);\n{VIEW}\n"
    )
    return alone, alone.replace("FROM s GROUP", "FROM v GROUP").replace("INSERT", f"{more}INSERT")


def test_a_table_more_or_less_is_another_query(sql: Sql, run: Drain, topic: Topics) -> None:
    """The flow keeps its name, so that it stops as for any changed query, and its lag is told.

    Rows of a table that is read no more are deleted.
    """
    other = Sql(sql.path, sql.kafka, topic(), sql.target)
    alone, united = _texts(sql, other)
    sql.send([(None, b'{"g":"a","n":1}')])
    other.send([(None, b'{"g":"a","n":10}'), (None, b'{"g":"b","n":5}')])
    run(choose(load(sql.path), None))
    for text, totals in ((united, {"a": 11, "b": 5}), (alone, {"a": 1})):
        sql.path.write_text(text)
        flow = choose(load(sql.path), None)
        with pytest.raises(PermanentError, match=r"read .* in another way"):
            run(flow)
        drained(flow, Start("earliest", confirmed=True))
        rows = map(json.loads, latest(sql.stored()).values())
        assert {row["g"]: row["n"] for row in rows} == totals


def test_another_topic_in_place_of_the_second_one(sql: Sql, run: Drain, topic: Topics) -> None:
    """It is shorter than the topic before: rows that only that one had are deleted all the same."""
    other, another = (Sql(sql.path, sql.kafka, topic(), sql.target) for _ in range(2))
    _, united = _texts(sql, other)
    sql.send([(None, b'{"g":"a","n":1}')])
    other.send([(None, b'{"g":"%s","n":10}' % name) for name in (b"a", b"b", b"c")])
    another.send([(None, b'{"g":"a","n":100}')])
    sql.path.write_text(united)
    run(choose(load(sql.path), None))
    assert _totals(sql) == {"a": 11, "b": 10, "c": 10}
    sql.path.write_text(united.replace(other.source, another.source))
    flow = choose(load(sql.path), None)
    with pytest.raises(PermanentError, match=f"one of .*/{sql.source}, .*/{another.source} was"):
        run(flow)
    drained(flow, Start("earliest", confirmed=True))
    assert _totals(sql) == {"a": 101}


def _totals(sql: Sql) -> dict[str, int]:
    rows = map(json.loads, latest(sql.stored()).values())
    return {row["g"]: row["n"] for row in rows}


@pytest.mark.parametrize(("topic_of_w", "apart"), [("s", True), ("w", False)])
def test_a_record_that_two_tables_read_is_rejected_for_each_of_them(
    tmp_path: Path, topic_of_w: str, *, apart: bool
) -> None:
    """Each rejection has an id of its own; that of the first table is what it would be alone."""
    into = "g STRING, n BIGINT, PRIMARY KEY (g) NOT ENFORCED"
    query = "INSERT INTO o SELECT g, COUNT(*) FROM v GROUP BY g;"
    source = choose(load(written(tmp_path, into, VIEW, query)), None).source
    assert isinstance(source, ViewSource)
    now = Environment("UTC", datetime(2026, 7, 20, tzinfo=UTC))
    reader = ViewReader(source.source, f"s {topic_of_w}", source.view, now, others=source.others)
    sent = pa.RecordBatch.from_pydict({"_at": [7], "body": pa.array([b"{bad"])})
    places = [_place(reader.read(OffsetSlice(f"{n}/0", 7, 8), [sent]).refused) for n in (0, 1)]
    assert "table" not in places[0]
    assert ("table=2" in places[1]) == apart


def _place(refused: Sequence[OutputRow]) -> str:
    (batch,) = batches(output.write_rows(refused))
    found = Places(PartSlice("view", "", "", "")).of(batch, 0, 0, None)
    assert found is not None
    return found.key
