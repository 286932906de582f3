"""A rejected record is named by its place in the source: other parts and readings name it alike."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from dataflow_assets.connectors.memory import MemorySliceSink, Store
from dataflow_assets.contracts import Entry, Limit, Rejects, Run
from dataflow_assets.errors import Stopped
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.records.chain import Transformation
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.replay import replay
from dataflow_assets.runs.request import Patience, Request, Start
from dataflow_assets.transforms.validate import Validate
from tests.contract import SOURCES
from tests.contract.conftest import CHECKPOINT, numbered
from tests.contract.drivers import Row, SourceDriver
from tests.contract.real_drivers import PostgresqlTable

REWOUND = Start("earliest", table="truncate", confirmed=True)
BAD = {"schema": {"properties": {"name": {"not": {"const": "bad"}}}}}
PARTS = [name for name, driver in SOURCES.items() if driver.type not in ("kafka", "memory-offsets")]


class Naming:
    """A flow of any source into a store, whose step rejects the rows called `bad`."""

    def __init__(self, request: pytest.FixtureRequest, source: SourceDriver, engine: SparkSession):
        self.source, self.engine = source, engine
        self.name = f"naming-{uuid.uuid4().hex[:8]}"
        self.store = Store(self.name)
        self.store.create()
        request.addfinalizer(self.store.remove)
        self.strict, self.way, self.limit = True, Rejects(), 1_000_000

    def flow(self) -> Flow:
        steps = (Transformation(Validate.model_validate(BAD)),) if self.strict else ()
        sink = MemorySliceSink(store=self.name, table="target", unknown_fields="ignore")
        policies = Policies(limit=Limit(records=self.limit), rejects=self.way)
        source = self.source.declare()
        return Flow("n", self.name, source, (Branch(sink),), policies, steps, hash="h")

    def drain(self, start: Start = CHECKPOINT, limit: int = 1_000_000) -> None:
        self.limit = limit
        order = Request(run=Run(), start=start, patience=Patience(20, 0.01, 0.05))
        list(drain(self.flow(), lambda: self.engine, order))

    def waiting(self) -> list[Entry]:
        flow = self.flow()
        return flow.branches[0].sink.rejected().pending(flow.id, None, 1_000)

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


def test_a_record_that_was_rejected_twice_is_put_back_once(naming: Naming) -> None:
    naming.source.seed(rows(1, 8))
    naming.drain(limit=3)
    naming.source.seed(rows(8, 11))
    naming.drain()
    naming.drain(REWOUND)
    naming.strict = False
    assert naming.replay() == 3
    assert naming.ids() == list(range(1, 11))
    assert naming.replay() == 0


@pytest.mark.parametrize("source", ["postgresql"], indirect=True)
def test_rows_of_one_key_and_of_a_table_that_was_altered(naming: Naming) -> None:
    assert isinstance(naming.source, PostgresqlTable)
    naming.source._execute("alter table {}.{} drop constraint source_pkey")
    naming.source.seed([(1, "a"), (3, "bad"), (3, "bad"), (3, "c")])
    naming.drain()
    assert len(naming.waiting()) == 2
    naming.source._execute("alter table {}.{} add column more text")
    naming.drain(REWOUND)
    naming.strict = False
    assert naming.replay() == 2
    assert naming.ids() == [1, 3, 3, 3]


@pytest.mark.parametrize("source", PARTS, indirect=True)
def test_where_a_flow_stops_is_said_in_the_words_of_the_source(naming: Naming) -> None:
    naming.source.seed(rows(1, 5))
    naming.way = Rejects("fail")
    with pytest.raises(Stopped, match=r"stops at \S+, (id \d|file \S+, (byte|row) \d)") as caught:
        naming.drain()
    assert "part-" not in str(caught.value)
