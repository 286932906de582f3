"""Digests of queries as stored states have them: a state with another one is not found again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.languages.sql.engine.plan import FlinkPlan
from dataflow_assets.languages.sql.engine.query import SqlQuery
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.state import compute
from dataflow_assets.languages.sql.state.digests import PLANS, Digests, digests, former_digests
from dataflow_assets.languages.sql.state.manifest import MANIFEST
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.request import Report
from dataflow_assets.testing import choose
from tests.forms import problems
from tests.languages.sql.files import Sql

Run = Callable[[Flow], list[Report]]
STORED = json.loads(Path(__file__).with_name("stored_digests.json").read_text())
QUERIES: list[dict[str, Any]] = STORED["queries"]
ROWS = "k BIGINT, g STRING, a BIGINT, PRIMARY KEY (k) NOT ENFORCED"
SUMS = "g STRING, n BIGINT, PRIMARY KEY (g) NOT ENFORCED"
SUMMED = "SELECT g, SUM(a) FROM s GROUP BY g"


def plan(flow: Flow) -> FlinkPlan | ViewPlan:
    if isinstance(flow.source, ViewSource):
        return flow.source.view
    step = flow.transformations[0].step
    assert isinstance(step, SqlQuery)
    return step.plan


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Flow]:
    """The flow of a query over the tables of the stored digests."""
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    file = tmp_path / "one.sql"

    def flow(query: str) -> Flow:
        file.write_text("\n".join([*STORED["tables"], f"{query};"]))
        return choose(load(file), None)

    return flow


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query["sql"])
def test_a_state_that_is_stored_is_one_of_its_query(
    read: Callable[[str], Flow], query: dict[str, Any]
) -> None:
    """Where this fails, everybody would have to build states again: read the older digest too.

    `former` is what releases before this encoding have stored with states of these queries.
    """
    flow = read(query["sql"])
    found: dict[str, Any] = {"sql": query["sql"]}
    if isinstance(view := plan(flow), ViewPlan):
        found["former"] = [*dataclasses.astuple(former_digests(view))]
        found["stored"] = [*dataclasses.astuple(digests(view))]
    found["hash"] = flow.hash[:16]
    assert found == query


def test_stored_digests_are_of_plans_of_every_class(read: Callable[[str], Flow]) -> None:
    seen = {type(part) for query in QUERIES for part in parts(plan(read(query["sql"])))}
    assert seen == {form.kind for form in PLANS.all}


def parts(value: object) -> Iterator[object]:
    """All instances of our classes that a plan is made of."""
    if isinstance(value, tuple):
        for one in value:
            yield from parts(one)
    elif dataclasses.is_dataclass(value):
        yield value
        for field in dataclasses.fields(value):
            yield from parts(getattr(value, field.name))


def test_every_class_of_a_plan_has_a_form_with_all_of_its_fields() -> None:
    assert problems(PLANS, FlinkPlan, ViewPlan) == []


def test_an_expression_of_as_many_levels_as_there_may_be_has_digests(
    read: Callable[[str], Flow],
) -> None:
    deep = "b" + " || b" * 98
    view = plan(read(f"INSERT INTO o SELECT a, MAX({deep}) FROM s GROUP BY a"))
    assert isinstance(view, ViewPlan)
    assert digests(view) != former_digests(view)


class TestStatesOfTheVersionBefore:
    """Their digests were made of Python's `repr`."""

    @pytest.fixture(autouse=True)
    def states(self, folder: Path) -> Path:
        return folder

    @pytest.fixture
    def run_before(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
        """A run that stores what the version before has stored."""

        def ran(flow: Flow) -> list[Report]:
            with monkeypatch.context() as patch:
                patch.setattr(compute, "digests", former_digests)
                return run(flow)

        return ran

    @pytest.fixture
    def stored(self, states: Path) -> Callable[[], Digests]:
        def newest() -> Digests:
            texts = [file.read_text() for file in states.rglob(MANIFEST)]
            found = [one for one in map(json.loads, texts) if one["offsets"]]
            last = max(found, key=lambda one: one["at"])
            return Digests(last["shape"], last["query"])

        return newest

    def test_go_on_and_get_the_digest_of_this_version(
        self, sql: Sql, run: Run, run_before: Run, stored: Callable[[], Digests]
    ) -> None:
        flow = sql.write(ROWS, SUMS, SUMMED)
        view = plan(flow)
        assert isinstance(view, ViewPlan)
        sql.send([(b'{"k":1}', b'{"k":1,"g":"x","a":5}')])
        run_before(flow)
        assert stored() == former_digests(view)
        sql.send([(b'{"k":2}', b'{"k":2,"g":"x","a":6}')])
        run(flow)
        assert stored() == digests(view)
        sql.send([(b'{"k":1}', None)])
        run(flow)
        assert sql.rows()[-1][1] == b'{"g":"x","n":6}'

    def test_of_another_query_are_refused_or_accepted_by_their_digest(
        self, sql: Sql, run: Run, run_before: Run, stored: Callable[[], Digests]
    ) -> None:
        sql.send([(b'{"k":1}', b'{"k":1,"g":"x","a":5}')])
        run_before(sql.write(ROWS, SUMS, SUMMED))
        with pytest.raises(PermanentError, match="what is kept for it is of another one"):
            run(sql.write(ROWS, SUMS, SUMMED.replace("SUM", "MAX")))
        having = f"{SUMMED} HAVING SUM(a) > 3"
        accept = f"SET 'dataflow.acceptState' = '{stored().query}';"
        with pytest.raises(PermanentError, match=accept):
            run(sql.write(ROWS, SUMS, having))
        flow = sql.write(ROWS, SUMS, having, accept)
        sql.send([(b'{"k":2}', b'{"k":2,"g":"x","a":6}')])
        run(flow)
        view = plan(flow)
        assert isinstance(view, ViewPlan)
        assert stored() == digests(view)
        assert sql.rows()[-1][1] == b'{"g":"x","n":11}'
