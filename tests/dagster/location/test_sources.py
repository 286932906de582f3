"""The sensors' sessions of sources: many threads ask, on real servers."""

import os
import threading
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # public, untyped

import devservers
from dataflow_assets.assets import graph
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.memory import MemoryPartSource, MemorySliceSink, Store
from dataflow_assets.connectors.memory.source.session import MemoryPartSession
from dataflow_assets.connectors.postgresql import PostgresqlSource
from dataflow_assets.contracts import Lag, Positions, Run, Source
from dataflow_assets.errors import TransientError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.location.sensors.flows import Board
from dataflow_assets.location.sensors.ingest import Location
from dataflow_assets.location.sensors.lag import lag_sensor
from dataflow_assets.location.sensors.sources import Sources, sources
from dataflow_assets.runs.together import open_together
from dataflow_assets.spark import system
from tests.conftest import Topics
from tests.connectors.kafka.test_session import eventually
from tests.dagster.switch import mirror

THREADS, ROUNDS = 6, 5
TABLE = "(id bigint PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now())"


class Shop:
    """A flow from any source into memory, and Dagster's history in a folder."""

    def __init__(self, source: Source, store: Store, instance: dg.DagsterInstance) -> None:
        name = store.name
        branches = (Branch(MemorySliceSink(store=name, table="orders")),)
        self.flow = Flow("default", "orders", source, branches, hash="h")
        self.graph, self.instance = graph.build([self.flow]), instance

    def stand(self, positions: Positions) -> None:
        """As if a run had committed these positions and reported them."""
        branch = self.flow.branches[0]
        session = branch.sink.open(self.flow.target(branch), Run())
        session.restart(positions, "orders")
        mirror(self.instance, self.graph.nodes[0], session.checkpoint)

    def tick(self) -> Any:
        """What the sensor of the location does about the flow: a run, or the reason why not."""
        board = Board()
        requests = Location(self.graph, board).look(self.instance)
        return requests[0] if requests else dg.SkipReason(board.read(self.flow))

    def lag(self) -> Any:
        return lag_sensor(self.graph)(dg.build_sensor_context(self.instance))


@pytest.fixture
def history(home: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("DATAFLOW_START", "1")
    with dg.DagsterInstance.local_temp(home) as instance:
        yield instance
    sources.close()


@pytest.fixture
def orders(postgresql: devservers.PostgreSQL, schema: str) -> PostgresqlSource:
    """A table of three rows."""
    _execute(postgresql, f"CREATE TABLE {schema}.orders {TABLE}")
    _execute(postgresql, f"INSERT INTO {schema}.orders SELECT generate_series(1, 3)")
    config = {"connectionString": postgresql.dsn(), "table": f"{schema}.orders"}
    return PostgresqlSource.model_validate(config)


def test_threads_that_ask_one_source_do_not_meet(
    orders: PostgresqlSource,
    postgresql: devservers.PostgreSQL,
    schema: str,
    store: Store,
    history: dg.DagsterInstance,
) -> None:
    """Each question is several statements on one connection, some of them in a transaction."""
    shop = Shop(orders, store, history)
    with closing(orders.open(shop.flow.id)) as source:
        shop.stand(source.end())
    _execute(postgresql, f"INSERT INTO {schema}.orders VALUES (4)")
    with ThreadPoolExecutor(THREADS) as pool:
        ticks = [pool.submit(shop.tick) for _ in range(THREADS * ROUNDS)]
        lags = [pool.submit(shop.lag) for _ in range(THREADS * ROUNDS)]
    assert [found.result() for found in ticks] == [ticks[0].result()] * len(ticks)
    assert isinstance(ticks[0].result(), dg.RunRequest)
    assert {str(found.result().skip_reason) for found in lags} == {"None"}
    records = [found.result().asset_events[0].metadata["lag_records"].value for found in lags]
    assert records == [1] * len(lags)


def test_a_question_that_failed_is_asked_of_a_new_session(
    orders: PostgresqlSource, postgresql: devservers.PostgreSQL, schema: str
) -> None:
    own = Sources()
    flow = Flow("default", "orders", orders, (), hash="h")
    assert _lag(own, flow) == 3
    _execute(postgresql, f"DROP TABLE {schema}.orders")
    _execute(postgresql, f"CREATE TABLE {schema}.orders {TABLE}")
    assert isinstance(own.lags([(flow, None)])[0], TransientError)
    assert _lag(own, flow) == 0
    own.close()


FLOWS = 60


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_many_flows_of_one_broker_share_their_connections(
    kafka: devservers.Kafka, topic: Topics
) -> None:
    """Each is behind, so that the age of its oldest record is looked up too."""
    own, name, process = Sources(), topic(), psutil.Process(os.getpid())
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(name, b"{}")
    assert producer.flush(30) == 0
    source = KafkaSource(brokers=(kafka.bootstrap,), topic=name, consumer_group=name)
    flows = [Flow("default", f"f{n}", source, (), hash="h") for n in range(FLOWS)]
    threads, descriptors = process.num_threads(), process.num_fds()
    news = own.news([(flow, ({"0": 0}, {"0": 1})) for flow in flows])
    assert news == {flow.id: (True, False) for flow in flows}
    lags = own.lags([(flow, {"0": 0}) for flow in flows])
    assert all(isinstance(lag, Lag) and (lag.seconds or 0) > 0 for lag in lags)
    more = process.num_threads() - threads, process.num_fds() - descriptors
    own.close()
    assert max(more) < FLOWS // 2, more  # one connection for questions, and one for ages


def test_a_server_that_cannot_be_reached_holds_up_nobody(
    orders: PostgresqlSource,
) -> None:
    port = system.free_ports(1)[0]
    away = KafkaSource(brokers=(f"127.0.0.1:{port}",), topic="t", consumer_group="g")
    own, gone = Sources(), Flow("default", "gone", away, (), hash="h")
    here = Flow("default", "here", orders, (), hash="h")
    news = own.news([(gone, ({"0": 1},)), (here, (None,))])
    assert news[here.id] == (True,)
    assert isinstance(news[gone.id], TransientError)
    own.close()


def test_a_session_whose_opening_takes_longer_than_a_tick_waits_is_used_by_a_later_tick(
    orders: PostgresqlSource, postgresql: devservers.PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataflow_assets.location.sensors.sources.OPEN_SECONDS", 0.2)
    own, opened, late = Sources(), list[str](), threading.Event()
    original = open_together

    def slowly(sources: Mapping[str, Source]) -> object:
        opened.extend(sources)
        late.wait(60)
        return original(sources)

    monkeypatch.setattr("dataflow_assets.location.sensors.sources.open_together", slowly)
    flow = Flow("default", "slow", orders, (), hash="h")
    assert isinstance(own.news([(flow, (None,))])[flow.id], TransientError)
    late.set()
    eventually(lambda: own.news([(flow, (None,))])[flow.id] == (True,))
    assert len(opened) == 1, "it was not thrown away and begun again"
    own.close()


def test_a_server_that_takes_long_to_connect_delays_one_tick(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = list[int]()

    def noted(answers: Collection[object], _seconds: float) -> None:
        waited.append(len(answers))

    monkeypatch.setattr("dataflow_assets.location.sensors.sources.wait_for", noted)
    own, connected = Sources(), threading.Event()

    class Slow(MemoryPartSource):
        def open(self, flow: str) -> MemoryPartSession:
            connected.wait(60)
            return super().open(flow)

    source = Slow(store=store.name, topic="t")
    flow = Flow("default", "slow", source, (), hash="h")
    assert isinstance(own.news([(flow, (None,))])[flow.id], TransientError)
    assert isinstance(own.news([(flow, (None,))])[flow.id], TransientError)
    assert waited == [1, 0]
    connected.set()
    eventually(lambda: own.news([(flow, (None,))])[flow.id] == (True,))
    own.close()


def _lag(own: Sources, flow: Flow) -> int:
    (lag,) = own.lags([(flow, None)])
    assert isinstance(lag, Lag), lag
    return lag.records


def test_a_partition_that_is_added_to_a_topic_is_news_once_it_holds_something(
    kafka: devservers.Kafka, topic: Topics, store: Store, history: dg.DagsterInstance
) -> None:
    name = topic()
    source = KafkaSource(brokers=(kafka.bootstrap,), topic=name, consumer_group=name)
    shop = Shop(source, store, history)
    shop.stand({"0": 0})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for grown in admin.create_partitions([NewPartitions(name, 2)]).values():
        grown.result(30)
    with closing(source.open("grown")) as session:
        eventually(lambda: len(session.end()) == 2)
    assert isinstance(shop.tick(), dg.SkipReason)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(name, b"{}", partition=1)
    assert producer.flush(30) == 0
    assert isinstance(shop.tick(), dg.RunRequest)


def _execute(postgresql: devservers.PostgreSQL, statement: str) -> None:
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(statement.encode())
