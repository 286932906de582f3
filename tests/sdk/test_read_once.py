"""A query without changeTrackingColumn into sinks that append: each of its rows stands once."""

from __future__ import annotations

import json
import logging
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.news import news
from dataflow_assets.runs.request import Start
from dataflow_assets.runs.statuses import statuses
from dataflow_assets.testing import choose
from tests.drained import drain_apart, drained
from tests.flows import SYSTEMS
from tests.systems import Change, Config, System

EACH = 1_000  # rows of the answer for each row of the table
QUERIES = {
    "postgresql": "SELECT id * {n} + g AS id FROM {table}, generate_series(0, {n} - 1) AS g "
    "ORDER BY random()",
    "clickhouse": "SELECT id * {n} + number AS id FROM {table} CROSS JOIN numbers({n}) AS s "
    "ORDER BY rand()",
    "trino": "SELECT id * {n} + g AS id FROM {table} CROSS JOIN UNNEST(sequence(0, {n} - 1)) "
    "AS s (g) ORDER BY random()",
}
"""In another order each time."""


@dataclass
class Ends:
    """A query of one system, and a table or topic of another one."""

    source: System
    sink: System
    config: dict[str, Config]
    path: Path

    @classmethod
    def make(cls, request: Any, source: str, sink: str, path: Path, **options: Any) -> Ends:
        ends = SYSTEMS[source](request), SYSTEMS[sink](request)
        made = {} if sink == "kafka" else {"autoCreateTable": True}
        config = {
            "source": ends[0].at("source", {"pollInterval": 0}),
            "sink": ends[1].at("sink", made | options),
        }
        return cls(*ends, config, path)

    def insert(self, *numbers: int) -> None:
        self.source.change(self.config["source"], [Change("insert", {"id": n}) for n in numbers])

    def write(self, each: int = EACH, **source: Any) -> Flow:
        """The manifest; what of `source` is None is left out."""
        asked = QUERIES[self.source.type].format(table=self.config["source"]["table"], n=each)
        given = {**self.config["source"], "query": asked, **source}
        given = {name: value for name, value in given.items() if value is not None}
        spec = {
            "source": {"type": self.source.type, "config": given},
            "sink": {"type": self.sink.type, "config": self.config["sink"]},
        }
        head = {"apiVersion": "dataflow.dataflow.io/v1", "kind": "DataFlow"}
        name = {"name": f"once-{uuid.uuid4().hex[:8]}", "namespace": "tests"}
        name = self._name = getattr(self, "_name", name)
        self.path.write_text(json.dumps({**head, "metadata": name, "spec": spec}))
        return choose(load(self.path), None)

    def ids(self) -> Counter[int]:
        return Counter(int(row["id"]) for row in self.sink.rows(self.config["sink"]))


def answer(*numbers: int, each: int = EACH) -> Counter[int]:
    """What the query gives for these rows of the table."""
    return Counter(n * each + g for n in numbers for g in range(each))


SOURCES = ("postgresql", "clickhouse", pytest.param("trino", marks=pytest.mark.full))


@pytest.fixture(params=SOURCES)
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> Ends:
    return Ends.make(request, request.param, "postgresql", tmp_path / "a.yaml")


def test_the_query_is_appended_once_and_says_that_it_is_complete(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    ends.insert(1, 2)
    flow = ends.write(each=3)
    (hint,) = load(ends.path).hints
    assert hint.path == "spec.source.config.query"
    assert hint.message.startswith("is read once, since its rows are appended")
    with caplog.at_level(logging.WARNING):
        drained(flow)
    assert ends.ids() == answer(1, 2, each=3)
    assert "complete. All its rows were read at" in caplog.text
    caplog.clear()
    drained(flow)
    assert ends.ids() == answer(1, 2, each=3)
    assert "complete. All its rows were read at" in caplog.text
    ((status,),) = (one.found for one in statuses([flow]))
    assert (status.lag.records, status.lag.seconds) == (0, 0.0)
    assert status.checkpoint is not None
    with closing(flow.source.open(flow.id)) as session:
        assert news(session, session.start(), session.end())
        assert not news(session, status.checkpoint.positions, session.end())
    with pytest.raises(PermanentError, match="is appended to: rewinding would store its records"):
        drained(flow, Start("earliest"))
    drained(flow, Start("earliest", table="truncate"))
    assert ends.ids() == answer(1, 2, each=3)


def test_into_sinks_that_upsert_the_query_is_read_again(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    ends.config["sink"] |= {"upsertMode": True, "conflictKey": "id"}
    ends.insert(1)
    flow = ends.write(each=1)
    assert load(ends.path).hints == ()
    reports = drained(flow)
    assert reports[-1].checkpoint.totals.rows == 1
    assert drained(flow)[-1].checkpoint.totals.rows == 2
    assert ends.ids() == {1: 1}
    assert "complete" not in caplog.text


def test_an_upserted_query_that_is_appended_from_now_on_is_complete(ends: Ends) -> None:
    """What has been read is not appended to itself."""
    ends.config["sink"] |= {"upsertMode": True, "conflictKey": "id"}
    ends.insert(1)
    drained(ends.write(each=1))
    del ends.config["sink"]["upsertMode"], ends.config["sink"]["conflictKey"]
    assert drained(ends.write(each=1))[-1].checkpoint.totals.rows == 1


def test_a_query_whose_change_column_is_taken_out_is_not_appended_as_a_whole(ends: Ends) -> None:
    ends.insert(1)
    drained(ends.write(each=1, changeTrackingColumn="id"))
    with pytest.raises(PermanentError, match="set changeTrackingColumn as it was"):
        drained(ends.write(each=1))
    assert ends.ids() == {1: 1}


STEPS = {
    "postgresql": ("begin", "copy", "before-commit", "after-commit", "finish"),
    "clickhouse": ("begin", "write", "recorded", "inserted", "done", "finish"),
    "kafka": ("begin", "produce", "before-commit", "after-commit", "finish"),
    "trino": ("write", "staged"),
    "iceberg": (),
}
OF_ALL = ("drain.begun", "drain.passed", "drain.finished")
ALWAYS = {
    ("postgresql", "postgresql", "postgresql.read-batch"),
    ("postgresql", "postgresql", "postgresql.after-commit"),
    ("postgresql", "kafka", "kafka.before-commit"),
    ("clickhouse", "postgresql", "postgresql.before-commit"),
    ("clickhouse", "clickhouse", "clickhouse.inserted"),
}
"""`make test-all` kills at all of them."""


def crashes() -> Iterator[Any]:
    for source, (sink, steps) in product(QUERIES, STEPS.items()):
        for point in (f"{source}.read-batch", *(f"{sink}.{one}" for one in steps), *OF_ALL):
            marks = [] if (source, sink, point) in ALWAYS else [pytest.mark.full]
            yield pytest.param(source, sink, point, marks=marks)


@pytest.mark.crash
@pytest.mark.parametrize(("source", "sink", "point"), [*crashes()])
def test_a_load_that_is_killed_stores_each_row_once(
    source: str, sink: str, point: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Rows come in another order after the crash."""
    ends = Ends.make(request, source, sink, tmp_path / "a.yaml")
    numbers = range(1, 71)  # more rows than a batch of a read has
    ends.insert(*numbers)
    ends.write()
    assert drain_apart(str(ends.path), failpoint=f"{point}:kill:1") == -signal.SIGKILL
    assert drain_apart(str(ends.path)) == 0
    assert ends.ids() == answer(*numbers)
    assert drain_apart(str(ends.path)) == 0
    assert ends.ids() == answer(*numbers)


@pytest.mark.crash
def test_a_killed_load_into_a_partitioned_clickhouse_goes_on_with_the_very_same_rows(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """An INSERT into partitions is several blocks: other rows could be there twice."""
    rest = {"partitionBy": "id % 4", "columns": {"id": "Int64"}}
    ends = Ends.make(request, "postgresql", "clickhouse", tmp_path / "a.yaml", **rest)
    ends.insert(1)
    ends.write()
    assert drain_apart(str(ends.path), failpoint="clickhouse.inserted:kill:1") == -signal.SIGKILL
    with pytest.raises(PermanentError, match="its records give other rows now"):
        drained(choose(load(ends.path), None))
    sorted_ = QUERIES["postgresql"].replace("random()", "1")
    asked = sorted_.format(table=ends.config["source"]["table"], n=EACH)
    ends.config["sink"]["table"] = "sorted"
    ends.write(query=asked)
    assert drain_apart(str(ends.path), failpoint="clickhouse.inserted:kill:1") == -signal.SIGKILL
    assert drain_apart(str(ends.path)) == 0
    assert ends.ids() == answer(1)
