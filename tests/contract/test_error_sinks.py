"""The laws of rejected records on real servers: each main sink with each error sink."""

from __future__ import annotations

import tempfile
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.connectors.clickhouse import client as clients
from dataflow_assets.contracts import ErrorRecord, Rejects, Run
from dataflow_assets.errors import PermanentError, Stopped, TransientError
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.records.record import encode
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Report, Request
from dataflow_assets.sdk.rejected_records import HELD
from tests.connectors.kafka.impatient import impatient
from tests.contract.clickhouse_drivers import Clickhouse
from tests.contract.conftest import numbered
from tests.contract.drivers import MemoryOffsets, SinkDriver
from tests.contract.error_drivers import ERRORS, Beside, ErrorDriver, Lake, Merged
from tests.contract.iceberg_drivers import Iceberg
from tests.contract.mysql_drivers import Mysql
from tests.contract.nessie_drivers import Nessie
from tests.contract.postgresql_drivers import Postgresql
from tests.contract.trino_drivers import Trino

BAD = (b"no json", b'{"id": "x"}')
MAIN: dict[str, type[Clickhouse | Iceberg | Mysql | Postgresql | Trino]] = {
    "clickhouse": Clickhouse,
    "iceberg": Iceberg,
    "mysql": Mysql,
    "nessie": Nessie,
    "postgresql": Postgresql,
    "trino": Trino,
}


class Rejecting:
    """A topic, a target that refuses negative ids, and an error sink."""

    def __init__(
        self, request: pytest.FixtureRequest, engine: SparkSession, main: str, errors: str
    ) -> None:
        self.source = MemoryOffsets(request)
        self.engine = engine
        self.name = f"errors-{uuid.uuid4().hex[:8]}"
        self.sink: SinkDriver = MAIN[main](request)
        self.errors: ErrorDriver = ERRORS[errors](request)
        if isinstance(self.sink, Postgresql):
            with psycopg.connect(self.sink.dsn, autocommit=True) as connection:
                table = f"{self.sink.schema}.target"
                connection.execute(f"alter table {table} add constraint positive check (id >= 0)")

    def drain(self, rejects: Rejects, patience: float = 20) -> list[Report]:
        branches = (Branch(self.sink.declare()),)
        source, policies = self.source.declare(), Policies(rejects=rejects)
        flow = Flow("contract", self.name, source, branches, policies, hash="h")
        order = Request(run=Run(), patience=Patience(patience, 0.01, 0.05))
        return list(drain(flow, lambda: self.engine, order))

    @property
    def rejects(self) -> Rejects:
        return Rejects("errors", self.errors.declare())

    def ids(self) -> list[int]:
        return [row[0] for row in self.sink.rows()]

    def beside(self) -> list[str]:
        """What landed in the target's own table of rejected records, if there is one."""
        if isinstance(self.sink, Iceberg):
            name = (self.sink.namespace, "target_rejected")
            return self.sink.rejected() if self.sink.catalog.table_exists(name) else []
        if isinstance(self.sink, Clickhouse):
            return self.sink.rejected() if self.sink.query("exists target_rejected")[0][0] else []
        if isinstance(self.sink, Trino):
            there = self.sink.query("show tables like 'target_rejected'")
            return self.sink.rejected() if there else []
        return self.sink.rejected()


PAIRS = [("postgresql", errors) for errors in sorted(ERRORS)]
PAIRS += [("iceberg", "beside"), ("iceberg", "lake")]
PAIRS += [("clickhouse", "beside"), ("clickhouse", "merged"), ("mysql", "mysql")]
PAIRS += [("nessie", "nessie"), ("nessie", "trino"), ("trino", "beside"), ("trino", "trino")]


@pytest.fixture(params=PAIRS, ids="-".join)
def case(request: pytest.FixtureRequest, engine: SparkSession) -> Rejecting:
    return Rejecting(request, engine, *request.param)


def test_an_error_sink_gets_each_rejected_record_once(case: Rejecting) -> None:
    case.source.seed(numbered(1, 20), raw=BAD)
    reports = case.drain(case.rejects)
    assert case.ids() == list(range(1, 20))
    assert sum(report.delta.rejected for report in reports) == 2
    found = sorted(case.errors.stored(), key=lambda one: "id" in one["original_message"])
    text, mistyped = found
    assert text["original_message"] == {"original_data": "no json"}
    assert mistyped["original_message"] == {"id": "x"}
    error = text["error"]
    assert error["original_sink"] == case.sink.type
    assert error["type"] == "invalid_data"
    assert error["flow"] == f"contract/{case.name}"
    assert error["metadata"]["offset"] == error["source"]["offset"]
    assert error["id"].endswith("/0/decode")
    case.source.seed(numbered(20, 30))
    case.drain(case.rejects)
    assert len(case.errors.stored()) == 2
    assert case.beside() == []


@pytest.fixture
def beside(request: pytest.FixtureRequest, engine: SparkSession) -> Rejecting:
    return Rejecting(request, engine, "postgresql", "beside")


def test_a_row_that_postgresql_refuses_is_a_constraint_violation(beside: Rejecting) -> None:
    beside.source.seed([*numbered(1, 20), (-1, "refused")])
    beside.drain(beside.rejects)
    (found,) = beside.errors.stored()
    assert found["original_message"] == {"id": -1, "name": "refused"}
    assert found["error"]["type"] == "constraint_violation"
    assert found["error"]["stage"] == "sink"
    assert "23514" in found["error"]["message"]


POINTS = {
    "postgresql": ("postgresql.before-commit", "postgresql.after-commit"),
    "mysql": ("mysql.before-commit", "mysql.after-commit"),
    "iceberg": ("iceberg.staged", "iceberg.before-commit", "iceberg.after-commit"),
    "nessie": ("iceberg.staged", "iceberg.before-commit", "iceberg.after-commit"),
    "clickhouse": ("clickhouse.recorded", "clickhouse.inserted", "clickhouse.done"),
    "trino": ("trino.staged", "trino.recorded"),  # what is behind these is not done again
}
STORES = {
    "beside": ("postgresql.errors", "postgresql.errors-stored"),
    "elsewhere": ("postgresql.errors", "postgresql.errors-stored"),
    "lake": ("iceberg.errors", "iceberg.errors-stored"),
    "nessie": ("iceberg.errors", "iceberg.errors-stored"),
    "merged": ("clickhouse.errors", "clickhouse.errors-stored"),
    "lines": ("files.errors", "files.errors-stored"),
    "mysql": ("mysql.errors", "mysql.errors-stored"),
    "topic": ("kafka.errors", "kafka.errors-stored"),
    "trino": ("trino.errors", "trino.errors-stored"),
}
CRASHES = [
    (main, errors, point)
    for main, errors in PAIRS
    for point in (*POINTS[main], *STORES[errors])
    if (main, errors) != ("postgresql", "beside") or point in POINTS[main]
]


@pytest.mark.parametrize(("main", "errors", "point"), CRASHES, ids=map("-".join, CRASHES))
def test_a_failure_around_the_commit_stores_each_error_once(
    main: str,
    errors: str,
    point: str,
    request: pytest.FixtureRequest,
    engine: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Rejecting(request, engine, main, errors)
    case.source.seed(numbered(1, 20), raw=BAD)
    token = uuid.uuid4().hex
    monkeypatch.setenv("DATAFLOW_FAILPOINT", f"{point}:raise")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", token)
    case.drain(case.rejects)
    counted = Path(tempfile.gettempdir(), f"dataflow-failpoint-{point}-{token}")
    assert len(counted.read_bytes()) > 1, "the failure must have been met, and then passed"
    assert case.ids() == list(range(1, 20))
    assert len(case.errors.stored()) == 2


def test_records_in_the_same_database_are_part_of_the_rows_commit(
    beside: Rejecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside.source.seed(numbered(1, 20), raw=BAD)
    monkeypatch.setenv("DATAFLOW_FAILPOINT", "postgresql.before-commit:raise:1")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
    with pytest.raises(TransientError, match=r"failpoint postgresql.before-commit"):
        beside.drain(beside.rejects, patience=0)
    rows, errors = beside.ids(), beside.errors.stored()
    even, odd = [n for n in rows if n % 2 == 0], [n for n in rows if n % 2]
    assert len(errors) == bool(even) + bool(odd), "an error record without its rows, or the reverse"
    beside.drain(beside.rejects)
    assert beside.ids() == list(range(1, 20))
    assert len(beside.errors.stored()) == 2


def test_an_error_sink_out_of_reach_loses_nothing(
    case: Rejecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.source.seed(numbered(1, 20), raw=BAD)
    with monkeypatch.context() as patch:
        impatient(patch)
        with pytest.raises(TransientError, match=r"gave up after .* the error sink"):
            case.drain(Rejects("errors", case.errors.unreachable()), patience=0.5)
    case.drain(case.rejects)
    assert case.ids() == list(range(1, 20))
    assert len(case.errors.stored()) == 2


TRIGGERS = ("beside", "elsewhere")
_DOWN = """
create function {s}.down() returns trigger language plpgsql as
$$ begin raise exception 'going down' using errcode = '57P03'; end $$;
create trigger down before insert on {t} for each row execute function {s}.down()
"""


@pytest.mark.parametrize(("main", "errors"), [pair for pair in PAIRS if pair[1] in TRIGGERS])
def test_an_error_sink_that_goes_down_holds_the_commit(
    main: str, errors: str, request: pytest.FixtureRequest, engine: SparkSession
) -> None:
    case = Rejecting(request, engine, main, errors)
    assert isinstance(case.errors, Beside)
    case.drain(case.rejects)
    case.source.seed(numbered(1, 20), raw=BAD)
    case.errors.execute(_DOWN)
    with pytest.raises(TransientError, match=r"gave up .* the error sink .*going down"):
        case.drain(case.rejects, patience=1)
    assert case.ids() == []
    case.errors.execute("drop trigger down on {t}")
    case.drain(case.rejects)
    assert case.ids() == list(range(1, 20))
    assert len(case.errors.stored()) == 2


def test_an_error_sink_that_refuses_stops_the_flow(beside: Rejecting) -> None:
    assert isinstance(beside.errors, Beside)
    beside.drain(beside.rejects)
    beside.source.seed(numbered(1, 20), raw=BAD)
    beside.errors.execute("alter table {t} add constraint no check (flow is null)")
    with pytest.raises(
        PermanentError, match=r"cannot store rejected records in the error sink .*23514"
    ):
        beside.drain(beside.rejects)
    assert beside.ids() == []


def test_with_never_the_record_is_in_the_error_sink_and_the_flow_stops(case: Rejecting) -> None:
    case.source.seed(numbered(1, 21), raw=[b"no json"])  # the last one of partition 0
    rejects = replace(case.rejects, holds=True)
    for _ in range(2):
        with pytest.raises(Stopped, match="it is in the error sink"):
            case.drain(rejects)
        assert case.ids() == list(range(1, 21))
    (held,) = (one["error"]["id"] for one in case.errors.stored())
    store, flow = case.errors.declare().error_store(), f"contract/{case.name}"
    assert store.pending(flow, None, 10) == []
    case.drain(case.rejects)
    (waiting,) = (one.id for one in store.pending(flow, None, 10))
    assert held == f"{waiting}{HELD}"
    assert sorted(one["error"]["id"] for one in case.errors.stored()) == [waiting, held]


@pytest.mark.parametrize("main", sorted(MAIN))
def test_without_an_error_sink(
    main: str, request: pytest.FixtureRequest, engine: SparkSession
) -> None:
    case = Rejecting(request, engine, main, "beside")
    case.source.seed(numbered(1, 21), raw=[b"no json"])
    with pytest.raises(Stopped, match=r"partition 0, offset 10, .*decode"):
        case.drain(Rejects("fail"))
    assert case.ids() == list(range(1, 21))
    assert case.beside() == []
    reports = case.drain(Rejects("skip"))
    assert sum(report.delta.rejected for report in reports) == 1
    assert case.beside() == []


def record(id_: str) -> ErrorRecord:
    error: dict[str, Any] = {
        "id": id_,
        "flow": "contract/f",
        "branch": "b",
        "stage": "decode",
        "key": None,
    }
    error |= {"timestamp": "2026-01-31T12:00:00Z", "encoding": "json", "metadata": {}}
    error |= {"source": {"type": "memory", "partition": "0", "offset": 1, "n": 0}}
    return ErrorRecord(id_, "contract/f", encode({"error": error, "original_message": {}}), b"{}")


def test_a_table_that_lost_a_column_under_a_run_is_an_error(
    request: pytest.FixtureRequest,
) -> None:
    errors = Merged(request)
    store = errors.declare().error_store()
    store.prepare()
    with clients.connect(errors.dsn, "tests") as client:
        client.command("alter table errors rename column error to other")
    with pytest.raises(PermanentError, match="No such column error"):
        store.store([record("a/0")])
    with clients.connect(errors.dsn, "tests") as client:
        assert clients.query_rows(client, "select count() from errors") == [(0,)]
        client.command("drop table errors")
    with pytest.raises(PermanentError, match="errors does not exist"):
        store.store([record("a/0")])


OWN = pa.schema(
    [
        pa.field("flow", pa.string()),
        pa.field("error", pa.string()),
        pa.field("original_message", pa.string()),
        pa.field("rejected_at", pa.timestamp("us")),
    ]
)


def test_rows_of_a_table_of_users_wait_also_without_their_time(
    request: pytest.FixtureRequest,
) -> None:
    errors = Lake(request)
    errors.catalog.create_table(
        (errors.namespace, "errors"), OWN.append(pa.field("id", pa.string()))
    )
    store = errors.declare().error_store()
    store.prepare()
    store.store([record("a/0")])
    assert [one.id for one in store.pending("contract/f", None, 10)] == ["a/0"]


def test_a_table_without_ids_is_refused_only_where_a_record_of_it_waits(
    request: pytest.FixtureRequest,
) -> None:
    errors = Lake(request)
    errors.catalog.create_table((errors.namespace, "errors"), OWN)
    store = errors.declare().error_store()
    store.prepare()
    store.store([record(f"a/0{HELD}")])
    assert store.pending("contract/f", None, 10) == []
    store.store([record("b/0")])
    with pytest.raises(PermanentError, match="has no column id"):
        store.pending("contract/f", None, 10)
