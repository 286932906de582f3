"""Views over views: work for each of them, not for each way through them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dataflow_assets.languages.sql.engine import expressions
from dataflow_assets.languages.sql.engine.arrivals import Arrivals
from dataflow_assets.languages.sql.engine.expressions import (
    Expression,
    FlinkCall,
    FlinkColumn,
    conjuncts,
)
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.engine.query import SqlQuery
from dataflow_assets.languages.sql.engine.types import BOOLEAN
from dataflow_assets.languages.sql.reader import read_expressions
from dataflow_assets.languages.sql.reader.syntax import Invoked
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.manifests.load import load
from tests.languages.sql.test_rows import table

LEVELS = 20
MOST = 50_000  # looks at an expression; a look for each way through the views would be a million
LAYERS = {
    "case": "SELECT k, CASE WHEN a > {at} THEN a ELSE a + 1 END AS a, f FROM v{below}"
    " WHERE a <> {at}",
    "sum": "SELECT k, a + a AS a, f FROM v{below} WHERE a <> {at}",
    "functions": "SELECT k, COALESCE(a, 0) + IF(a > {at}, 1, 0) AS a, f FROM v{below}",
    "conditions": "SELECT k, a, f AND f AS f FROM v{below} WHERE f",
}
QUERIES = {
    "rows": "SELECT k, a FROM v{below} WHERE f",
    "groups": "SELECT k, SUM(a) FROM v{below} WHERE f GROUP BY k",
    "ranked": "SELECT k, a FROM (SELECT k, a, ROW_NUMBER() OVER (PARTITION BY k ORDER BY a DESC)"
    " AS n FROM v{below}) WHERE n = 1",
}
APPENDED = "k BIGINT, a BIGINT, f BOOLEAN"
UPSERTED = f"{APPENDED}, PRIMARY KEY (k) NOT ENFORCED"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often somebody looked into an expression."""
    count = [0]
    operands = expressions.operands

    def counted(expression: Expression) -> tuple[Expression, ...]:
        count[0] += 1
        assert count[0] < MOST, "work for each way through the views"
        return operands(expression)

    monkeypatch.setattr(expressions, "operands", counted)
    return count


def layered(folder: Path, columns: str, layer: str, query: str) -> Path:
    file = folder / "one.sql"
    views = [
        f"CREATE VIEW v{at} AS {layer.format(at=at, below=at - 1)};" for at in range(1, LEVELS + 1)
    ]
    target = table("o", "k BIGINT, a BIGINT, PRIMARY KEY (k) NOT ENFORCED")
    first = "CREATE VIEW v0 AS SELECT k, a, f FROM s;"
    insert = f"INSERT INTO o {query.format(below=LEVELS)};"
    file.write_text("\n".join([table("s", columns), target, first, *views, insert]))
    return file


@pytest.mark.parametrize("columns", [APPENDED, UPSERTED], ids=["appended", "upserted"])
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_flow_over_many_views_is_loaded_and_traced_in_few_steps(
    tmp_path: Path, looks: list[int], layer: str, query: str, columns: str
) -> None:
    found = load(layered(tmp_path, columns, LAYERS[layer], QUERIES[query]))
    assert found.findings == ()
    (flow,) = found.flows
    step = flow.transformations[0].step
    assert step.origins("k") == frozenset({"k"})
    assert step.origins("a") == frozenset({"a"})
    if isinstance(flow.source, ViewSource):
        view = flow.source.view
        Arrivals(view, view.tables[0], Environment("UTC", datetime(2026, 7, 20, tzinfo=UTC)))
    else:
        assert isinstance(step, SqlQuery)
    assert looks[0] > 0


@pytest.mark.parametrize("query", ["rows", "groups"])
def test_a_view_that_is_united_with_itself_level_by_level_is_refused(
    tmp_path: Path, query: str
) -> None:
    layer = "SELECT * FROM v{below} UNION ALL SELECT * FROM v{below}"
    (finding, *_) = load(layered(tmp_path, APPENDED, layer, QUERIES[query])).findings
    assert finding.message == (
        "UNION ALL: these are the rows of 1024 queries, with those of the views, and at most 1000 "
        "are supported: a view that is united with itself doubles them"
    )


def test_equal_columns_of_many_views_are_compared_in_few_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = [0]
    equal = FlinkCall.__eq__

    def counted(one: FlinkCall, other: object) -> bool:
        compared[0] += 1
        assert compared[0] < MOST, "work for each way through the views"
        return equal(one, other)

    monkeypatch.setattr(FlinkCall, "__eq__", counted)
    layer = "SELECT k, a + a AS a, c + c AS c FROM v{below}"
    query = "SELECT DISTINCT k, IF(a = c, a, c) FROM (SELECT DISTINCT k, a, c FROM v{below})"
    file = layered(tmp_path, APPENDED, layer, query)
    text = file.read_text().replace("SELECT k, a, f FROM s", "SELECT k, a, a AS c FROM s")
    file.write_text(text.replace("PRIMARY KEY (k)", "PRIMARY KEY (k, a)"))
    assert load(file).findings == ()
    assert compared[0] > 0


def test_a_condition_of_many_parts_is_read_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each AND adds one part, and copies none of those before it."""
    copied: list[int] = []

    @dataclass(frozen=True)
    class Counted(Invoked):
        def __post_init__(self) -> None:
            copied.append(len(self.arguments))

    monkeypatch.setattr(read_expressions, "Invoked", Counted)
    many = " AND ".join(f"a <> {at}" for at in range(1_000))
    found = load(layered(tmp_path, APPENDED, LAYERS["sum"], f"SELECT k, a FROM v0 WHERE {many}"))
    assert found.findings == ()
    assert max(copied) == 1_000
    assert sum(copied) < 10_000


def test_what_an_and_holds_is_there_as_often_as_views_use_it() -> None:
    """States of earlier versions are stored by it; of very many parts each is there once."""
    a, b, c = (FlinkColumn(BOOLEAN, at) for at in range(3))
    active = FlinkCall(BOOLEAN, "AND", (a, b))
    paying = FlinkCall(BOOLEAN, "AND", (active, c))
    assert conjuncts(FlinkCall(BOOLEAN, "AND", (active, paying))) == (a, b, a, b, c)
    condition: Expression = active
    for _ in range(60):
        condition = FlinkCall(BOOLEAN, "AND", (condition, condition))
    assert conjuncts(condition) == (a, b)
