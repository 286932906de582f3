"""A rejected record is named by its place in the source: other parts and readings name it alike."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

from dataflow_assets.connectors.memory import MemorySliceSink, Store
from dataflow_assets.contracts import Entry, Limit, Rejects, Run
from dataflow_assets.errors import Stopped
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.records.chain import Transformation
from dataflow_assets.records.conditions.condition import Condition
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.replay import replay
from dataflow_assets.runs.request import Patience, Request, Start
from dataflow_assets.transforms.insert_field import InsertField
from dataflow_assets.transforms.validate import Validate
from tests.contract import SOURCES
from tests.contract.conftest import CHECKPOINT, numbered
from tests.contract.drivers import Row, SourceDriver
from tests.contract.error_drivers import ERRORS
from tests.contract.postgresql_drivers import PostgresqlTable
from tests.contract.test_replays import TABLE

REWOUND = Start("earliest", table="truncate", confirmed=True)
IS_BAD = Condition.parse("$.name == 'bad'")
BAD = {"schema": {"properties": {"name": {"not": {"const": "bad"}}}}}
REJECTED = Transformation(Validate.model_validate(BAD))
UNKNOWN = Transformation(InsertField.model_validate({"fields": {"x": "1"}}), IS_BAD)
PARTS = [name for name in SOURCES if name not in ("kafka", "memory-offsets")]
REREAD = [name for name in SOURCES if name != "postgresql-cdc"]
"""A rewound log is not read again: the tables are, whose rows are other records."""
IN_PROCESS = ("memory-offsets", *PARTS)


def _pair(source: str, errors: str) -> Any:
    """Each source with the table's own entries, each error store with both kinds of source."""
    quick = source in IN_PROCESS and (errors == TABLE or source.startswith("memory-"))
    marks = () if quick else (pytest.mark.full,)
    return pytest.param(source, errors, id=f"{source}-{errors}", marks=marks)


PAIRS = [_pair(source, errors) for source in REREAD for errors in (TABLE, *ERRORS)]


class Naming:
    """A flow of any source into a store, whose steps let the rows called `bad` be rejected."""

    def __init__(
        self, request: pytest.FixtureRequest, source: SourceDriver, engine: SparkSession
    ) -> None:
        self.source, self.engine = source, engine
        self.name = f"naming-{uuid.uuid4().hex[:8]}"
        self.store = Store(self.name)
        self.store.create()
        request.addfinalizer(self.store.remove)
        self.steps: tuple[Transformation, ...] = (REJECTED,)
        self.unknown: Literal["reject", "ignore"] = "ignore"
        self.way, self.limit = Rejects(), 1_000_000

    def flow(self) -> Flow:
        sink = MemorySliceSink(store=self.name, table="target", unknown_fields=self.unknown)
        policies = Policies(limit=Limit(records=self.limit), rejects=self.way)
        source = self.source.declare()
        return Flow("n", self.name, source, (Branch(sink),), policies, self.steps, hash="h")

    def drain(self, start: Start = CHECKPOINT, limit: int = 1_000_000) -> None:
        self.limit = limit
        order = Request(run=Run(), start=start, patience=Patience(20, 0.01, 0.05))
        list(drain(self.flow(), lambda: self.engine, order))

    def waiting(self) -> list[Entry]:
        flow, sink = self.flow(), self.way.sink
        kept = sink.error_store() if sink else flow.branches[0].sink.rejected_entries()
        return kept.pending(flow.id, None, 1_000)

    def replay(self) -> int:
        return sum(one.rows for one in replay(self.flow(), lambda: self.engine, Run()))

    def ids(self) -> Sequence[int]:
        return [id_ for (id_,) in self.store.query("select row->>'id' from rows order by 1")]


@pytest.fixture
def naming(request: pytest.FixtureRequest, source: SourceDriver, engine: SparkSession) -> Naming:
    return Naming(request, source, engine)


def rows(low: int, high: int) -> list[Row]:
    """Every third one is bad."""
    return [(id_, name if id_ % 3 else "bad") for id_, name in numbered(low, high)]


@pytest.mark.parametrize("source", IN_PROCESS, indirect=True)
def test_other_parts_and_readings_name_a_record_alike(naming: Naming) -> None:
    naming.source.seed(rows(1, 14))
    naming.drain(limit=2)
    first = {one.body: one.id for one in naming.waiting()}
    assert len(first) == len(set(first.values())) == 4
    naming.source.seed(rows(14, 20))
    naming.drain()
    naming.drain(REWOUND, limit=5)
    again = {one.body: one.id for one in naming.waiting()}
    assert len(naming.waiting()) == len(again) == len(set(again.values())) == 6
    assert first.items() <= again.items()
    assert all(len(id_) < 400 for id_ in again.values())


@pytest.mark.parametrize("source", [one for one in IN_PROCESS if one in REREAD], indirect=True)
def test_a_record_that_was_rejected_twice_is_put_back_once(naming: Naming) -> None:
    naming.source.seed(rows(1, 8))
    naming.drain(limit=3)
    naming.source.seed(rows(8, 11))
    naming.drain()
    naming.drain(REWOUND)
    naming.steps = ()
    assert naming.replay() == 3
    assert naming.ids() == list(range(1, 11))
    assert naming.replay() == 0


@pytest.mark.parametrize(("source", "errors"), PAIRS, indirect=["source"])
def test_of_two_entries_of_one_record_that_wait_together_one_is_put_back(
    naming: Naming, errors: str, request: pytest.FixtureRequest
) -> None:
    if errors != TABLE:
        naming.way = Rejects("errors", ERRORS[errors](request).declare())
    naming.source.seed(rows(1, 5))
    naming.drain(limit=2)  # the step rejects it
    naming.source.seed(rows(5, 6))
    naming.drain()
    naming.steps, naming.unknown = (UNKNOWN,), "reject"
    naming.drain(REWOUND)  # and now the table does
    assert sorted(one.stage for one in naming.waiting()) == ["encode", "step"]
    naming.steps = ()
    assert naming.replay() == 1
    assert naming.ids() == [1, 2, 3, 4, 5]
    assert naming.waiting() == []


@pytest.mark.parametrize("source", ["postgresql"], indirect=True)
def test_rows_of_one_key_and_of_a_table_that_was_altered(naming: Naming) -> None:
    assert isinstance(naming.source, PostgresqlTable)
    naming.source._execute("alter table {}.{} drop constraint source_pkey")
    naming.source.seed([(1, "a"), (3, "bad"), (3, "bad"), (3, "c")])
    naming.drain()
    assert len(naming.waiting()) == 2
    naming.source._execute("alter table {}.{} add column more text")
    naming.drain(REWOUND)
    naming.steps = ()
    assert naming.replay() == 2
    assert naming.ids() == [1, 3, 3, 3]


@pytest.mark.parametrize("source", PARTS, indirect=True)
def test_where_a_flow_stops_is_said_in_the_words_of_the_source(naming: Naming) -> None:
    naming.source.seed(rows(1, 5))
    naming.way = Rejects("fail")
    with pytest.raises(
        Stopped,
        match=r"stops at \S+, ((table \S+, lsn \S+, )?(id|change) \d|file \S+, (byte|row) \d|"
        r"shard \S+, record \d)",
    ) as caught:
        naming.drain()
    assert "part-" not in str(caught.value)
