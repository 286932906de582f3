"""The laws of a replay on real servers: each main sink with each place for rejected records."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from dataflow_assets import failpoints
from dataflow_assets.contracts import ErrorRecord, Rejects, Run, Sink
from dataflow_assets.errors import TransientError
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.records.record import encode
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.replay import replay
from dataflow_assets.runs.request import Patience, Request
from tests.contract.clickhouse_drivers import Clickhouse
from tests.contract.conftest import numbered
from tests.contract.iceberg_drivers import Iceberg
from tests.contract.mysql_drivers import Mysql
from tests.contract.postgresql_drivers import Postgresql
from tests.contract.test_error_sinks import Rejecting
from tests.contract.trino_drivers import Trino

pytestmark = pytest.mark.timeout(600)  # a heavy server may have to start

TABLE = "table"  # beside the target, instead of an error sink
UNKNOWN = (b'{"id": 100, "name": "a", "nom": 1}', b'{"id": 101, "name": "b", "nom": 1.10}')


class Replaying(Rejecting):
    """The same; `unknownFields: ignore` mends what UNKNOWN is rejected for."""

    def __init__(
        self, request: pytest.FixtureRequest, engine: SparkSession, main: str, kept: str
    ) -> None:
        super().__init__(request, engine, main, "beside" if kept == TABLE else kept)
        self.kept, self.mended = kept, False
        self.options: dict[str, Any] = {}

    @property
    def rejects(self) -> Rejects:
        return Rejects() if self.kept == TABLE else super().rejects

    def flow(self) -> Flow:
        change = {"unknown_fields": "ignore"} if self.mended else {}
        sink: Sink = self.sink.declare().model_copy(update={**self.options, **change})
        policies = Policies(rejects=self.rejects)
        source = self.source.declare()
        return Flow("contract", self.name, source, (Branch(sink),), policies, hash="h")

    def replay(self, since: datetime | None = None) -> list[tuple[int, int, int]]:
        failpoints.arm(failpoints.from_environment())
        done = list(replay(self.flow(), lambda: self.engine, Run(), since))
        return [(one.entries, one.rows, one.rejected_again) for one in done]

    def kept_ids(self) -> list[str]:
        """The ids of the entries, whether they wait or not."""
        if self.kept != TABLE:
            return sorted(one["error"]["id"] for one in self.errors.stored())
        if isinstance(self.sink, Iceberg):
            table = self.sink.catalog.load_table((self.sink.namespace, "target_rejected"))
            return sorted(table.scan().to_arrow().column("id").to_pylist())
        if isinstance(self.sink, Clickhouse):
            found = self.sink.query("select id from target_rejected final order by 1")
            return [str(id_) for (id_,) in found]
        if isinstance(self.sink, Trino):  # rows are only added: also that a record was replayed
            query = "select distinct id from target_rejected where replayed_at is null order by 1"
            return [str(id_) for (id_,) in self.sink.query(query)]
        if isinstance(self.sink, Mysql):
            return [id_ for (id_,) in self.sink.run("SELECT id FROM dataflow_rejected ORDER BY 1")]
        return [id_ for (id_,) in self.query("select id from {s}.dataflow_rejected order by 1")]

    def query(self, sql: str) -> list[Any]:
        assert isinstance(self.sink, Postgresql)
        with psycopg.connect(self.sink.dsn, autocommit=True) as connection:
            cursor = connection.execute(sql.format(s=self.sink.schema).encode())
            return cursor.fetchall() if cursor.description else []


KEPT = {
    "postgresql": ("beside", "elsewhere", "lake", TABLE),
    "iceberg": ("beside", "lake", TABLE),
    "clickhouse": ("merged", TABLE),
    "mysql": ("mysql", TABLE),
    "nessie": ("nessie", TABLE),
    "trino": ("trino", TABLE),
}
PAIRS = [(main, kept) for main, places in KEPT.items() for kept in places]


@pytest.fixture(params=[pair for pair in PAIRS if pair[1] != "elsewhere"], ids="-".join)
def case(request: pytest.FixtureRequest, engine: SparkSession) -> Replaying:
    return Replaying(request, engine, *request.param)


def test_a_replay_puts_entries_back_once(case: Replaying) -> None:
    case.source.seed(numbered(1, 5), raw=[*UNKNOWN, b"no json"])
    case.drain(case.rejects)
    assert case.ids() == [1, 2, 3, 4]
    case.mended = True
    assert case.replay(datetime.now(UTC) + timedelta(hours=1)) == []
    assert case.replay(datetime.now(UTC) - timedelta(hours=1)) == [(3, 2, 1)]
    assert case.ids() == [1, 2, 3, 4, 100, 101]
    (again,) = [id_ for id_ in case.kept_ids() if id_.endswith("/0/decode#attempt-2")]
    assert case.replay() == [(1, 0, 1)]
    assert again.replace("#attempt-2", "#attempt-3") in case.kept_ids()
    assert case.ids() == [1, 2, 3, 4, 100, 101]


def test_entries_wait_in_the_order_of_their_records(case: Replaying) -> None:
    """Also where ids have another one: `10` is before `9` among texts."""
    ids = range(100, 124)  # of two partitions
    case.source.seed([], raw=[b'{"id": %d, "name": "a", "nom": 1}' % id_ for id_ in ids])
    case.drain(case.rejects)
    rejects, sink = case.rejects, case.flow().branches[0].sink
    store = rejects.sink.error_store() if rejects.sink else sink.rejected_entries()
    waiting = store.pending(case.flow().id, None, 100)
    found = [json.loads(one.body or b"")["id"] for one in waiting]
    assert sorted(found) == [*ids]
    for parity in (0, 1):
        mine = [id_ for id_ in found if id_ % 2 == parity]
        assert mine == sorted(mine)


STORES = {
    "lake": "iceberg",
    "merged": "clickhouse",
    "nessie": "iceberg",
    "beside": "postgresql",
    "elsewhere": "postgresql",
}
"""By sink or place: under whose name its failpoints are, where that is another one."""


def points(main: str, kept: str) -> tuple[str, ...]:
    """Where replays are cut off one after the other, each further than the one before."""
    # The first commit is that of the epoch; that of `<table>_rejected` comes before the rows'.
    rows = f"iceberg.after-commit:raise:{3 if kept == TABLE else 2}"
    before = {
        "postgresql": ("postgresql.before-commit", "postgresql.after-commit", "postgresql.finish"),
        "mysql": ("mysql.before-commit", "mysql.after-commit", "mysql.finish"),
        "iceberg": ("iceberg.staged", "replay.passed", rows),
        "clickhouse": ("clickhouse.recorded", "clickhouse.inserted", "clickhouse.finish"),
        "trino": ("trino.staged", "trino.recorded", "trino.written"),
    }
    own = STORES.get(main, main)
    kept_by = own if kept == TABLE else STORES.get(kept, kept)
    return f"{own}.begin", "replay.begun", *before[own], f"{kept_by}.replayed"


@pytest.mark.parametrize(("main", "kept"), PAIRS, ids=map("-".join, PAIRS))
def test_a_replay_that_is_cut_off_again_and_again_puts_nothing_back_twice(
    main: str,
    kept: str,
    request: pytest.FixtureRequest,
    engine: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Replaying(request, engine, main, kept)
    case.source.seed(numbered(1, 3), raw=[*UNKNOWN, b"no json"])
    case.drain(case.rejects)
    case.mended = True
    for point in points(main, kept):
        with monkeypatch.context() as patch:
            patch.setenv("DATAFLOW_FAILPOINT", point if ":" in point else f"{point}:raise")
            patch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
            with pytest.raises(TransientError, match=point.partition(":")[0]):
                case.replay()
    case.source.seed([], raw=[b"no json either"])
    case.drain(case.rejects)
    case.replay()
    assert case.ids() == [1, 2, 100, 101]
    assert [rows for _, rows, _ in case.replay()] == [0]
    assert case.ids() == [1, 2, 100, 101]
    ids = case.kept_ids()
    assert len(ids) == len(set(ids))


def test_a_row_that_a_constraint_refused_is_replayed_once_it_is_dropped(
    request: pytest.FixtureRequest, engine: SparkSession
) -> None:
    case = Replaying(request, engine, "postgresql", TABLE)
    case.source.seed([*numbered(1, 5), (-1, "naïve")])
    case.drain(case.rejects)
    case.query("alter table {s}.target drop constraint positive")
    assert case.replay() == [(1, 1, 0)]
    assert case.ids() == [-1, 1, 2, 3, 4]
    assert case.query("select count(*) from {s}.dataflow_rejected where replayed_at is null") == [
        (0,)
    ]


@pytest.mark.parametrize(("strategy", "name"), [("always", "a"), ("ifNewer", "later")])
def test_what_is_put_back_is_older_unless_a_version_is_compared(
    strategy: str, name: str, request: pytest.FixtureRequest, engine: SparkSession
) -> None:
    case = Replaying(request, engine, "postgresql", TABLE)
    case.query("alter table {s}.target add primary key (id)")
    case.options = {"upsert_mode": True, "conflict_key": ("id",)}
    if strategy == "ifNewer":
        case.options |= {"upsert_strategy": strategy, "upsert_version_column": "name"}
    case.source.seed([], raw=[UNKNOWN[0], b'{"id": 100, "name": "later"}'])
    list(drain(case.flow(), lambda: engine, Request(patience=Patience(20, 0.01, 0.05))))
    case.mended = True
    assert sum(entries for entries, _, _ in case.replay()) == 1
    assert case.sink.rows() == [(100, name)]


def test_a_row_that_was_put_back_is_not_put_back_by_a_late_repeat(
    request: pytest.FixtureRequest, engine: SparkSession
) -> None:
    """A crash before the rows' commit repeats an entry, here after two replays took it out."""
    case = Replaying(request, engine, "postgresql", "lake")
    case.source.seed([], raw=[UNKNOWN[0]])
    case.drain(case.rejects)
    store = case.errors.declare().error_store()
    (first,) = store.pending(case.flow().id, None, 10)
    (row,) = case.errors.stored()
    case.mended = True
    assert case.replay() == [(1, 1, 0)]
    case.source.seed([], raw=[UNKNOWN[1]])
    case.drain(case.rejects)
    assert case.replay() == [(1, 1, 0)]
    store.store([ErrorRecord(first.id, case.flow().id, encode(row), b"{}")])
    assert [rows for _, rows, _ in case.replay()] == [0]
    assert case.ids() == [100, 101]
    assert case.replay() == []


def test_an_older_table_of_rejected_records_gets_its_column(
    request: pytest.FixtureRequest, engine: SparkSession
) -> None:
    case = Replaying(request, engine, "postgresql", TABLE)
    case.source.seed(numbered(1, 5), raw=UNKNOWN)
    case.drain(case.rejects)
    case.query("alter table {s}.dataflow_rejected drop column replayed_at")
    case.mended = True
    assert case.replay() == [(2, 2, 0)]
    assert case.replay() == []
