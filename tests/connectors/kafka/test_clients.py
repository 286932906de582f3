"""No Kafka client outlives what opened it: a code location lives for weeks."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

import devservers
from dataflow_assets.connectors.kafka import KafkaSource, consumer_groups
from dataflow_assets.connectors.kafka.client import KafkaBroker
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.producer import Fenced, KafkaTransaction
from dataflow_assets.connectors.kafka.rejected.error_sink import KafkaErrors
from dataflow_assets.connectors.kafka.values import Outgoing
from dataflow_assets.contracts import Entry, ErrorRecord, Limit, OffsetSlice
from dataflow_assets.errors import TransientError
from tests.conftest import Topics
from tests.connectors.kafka.impatient import impatient
from tests.connectors.kafka.sinking import Into, Make, Sent, branches

BRIEF = {"transaction.timeout.ms": 10_000}
ROWS = [Sent(b"x"), Sent(b"y")]


def clients() -> int:
    """Threads of librdkafka in this process."""
    found = 0
    for comm in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # it has just ended
            found += comm.read_text().startswith("rdk:")
    return found


@contextmanager
def none_left() -> Iterator[None]:
    """By itself, not when the garbage collector comes by."""
    gc.collect()
    gc.disable()
    try:
        before = clients()
        yield
        deadline = time.monotonic() + 5  # clients end in threads of their own
        while clients() > before:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        gc.enable()


@pytest.fixture
def into(kafka: devservers.Kafka, topic: Topics) -> Iterator[Make]:
    with branches(kafka, topic) as make:
        yield make


def test_a_session_of_a_source_that_was_closed_has_no_client(
    kafka: devservers.Kafka, into: Make
) -> None:
    target = into()
    target.put(ROWS)
    config = {"brokers": [kafka.bootstrap], "topic": target.topic, "consumerGroup": target.topic}
    source = KafkaSource.model_validate(config)
    with none_left():
        session = source.open("default/flow")
        assert not session.plan(session.start(), Limit(bytes=1)).empty
        assert session.lag({"0": 0}).records
        assert session.peek({}, 1)
        session.acknowledge({"0": 1})
        assert clients()
        session.close()
        session.close()


def test_a_session_that_could_not_be_opened_has_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient(monkeypatch)
    source = KafkaSource.model_validate({"brokers": ["127.0.0.1:1"], "topic": "t"})
    with none_left(), pytest.raises(TransientError):
        source.open("default/flow")


def _committed(target: Into) -> None:
    target.put(ROWS)


def _aborted(target: Into) -> None:
    session, _ = target.begun(OffsetSlice("0", 0, 2))
    target.write(session, OffsetSlice("0", 0, 2), ROWS).abort()


@pytest.mark.parametrize("use", [_committed, _aborted])
def test_a_sink_keeps_no_client_when_its_thread_ends(
    into: Make, use: Callable[[Into], None]
) -> None:
    """What a thread keeps warm for its next session goes with the thread."""
    target = into()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            use(target)
            for session in target.sessions:
                session.close()
        except BaseException as error:  # noqa: BLE001 - raised by the test
            failed.append(error)

    with none_left():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)
        assert not failed
        target.sessions.clear()


def test_a_fenced_producer_ends_though_its_error_is_still_looked_at(
    kafka: devservers.Kafka, topic: Topics
) -> None:
    name = topic()
    with none_left():
        first = KafkaTransaction(Cluster(kafka.bootstrap), name, BRIEF)
        first.begin()
        first.send(Outgoing(name, b"x"))
        second = KafkaTransaction(Cluster(kafka.bootstrap), name, BRIEF)
        with pytest.raises(Fenced) as caught:
            first.commit()
        first.abort()
        first.close()
        second.close()
    assert name in str(caught.value)


def test_an_error_sink_keeps_no_client(kafka: devservers.Kafka, topic: Topics) -> None:
    store = KafkaErrors(Cluster(kafka.bootstrap), topic())
    entry = ErrorRecord("id", "default/flow", b"{}", b"{}")
    with none_left():
        store.prepare()
        store.store([entry])
        store.mark_replayed([Entry("id", "main", "decode", 0, None)])
        assert store.pending("default/flow", datetime.now(UTC), 9) == []


def test_sessions_of_many_groups_share_a_few_clients(
    kafka: devservers.Kafka, topic: Topics
) -> None:
    """Each group has what its own flow has told, however often its client was another one."""
    names = [topic() for _ in range(10)]
    configs = [{"brokers": [kafka.bootstrap], "topic": n, "consumerGroup": n} for n in names]
    with none_left():
        sessions = [KafkaSource.model_validate(c).open("default/flow") for c in configs]
        before = clients()
        for offset in range(1, 4):
            for session in sessions:
                session.acknowledge({"0": offset})
        assert clients() - before <= consumer_groups.MOST * 5  # one alone has up to five threads
        for session in sessions:
            session.close()
    for name in names:
        with closing(KafkaBroker(Cluster(kafka.bootstrap), name)) as broker:
            assert broker.committed_offsets(name, broker.topic())[0].offset == 3


def test_flows_of_one_group_share_its_client(kafka: devservers.Kafka, topic: Topics) -> None:
    names, group = [topic() for _ in range(10)], topic()
    with none_left():
        brokers = [KafkaBroker(Cluster(kafka.bootstrap), name) for name in names]
        for broker in brokers:
            broker.topic()
        before = clients()
        for at, broker in enumerate(brokers):
            broker.commit(group, {0: at}, "")
        assert 0 < clients() - before <= 5
        for broker in brokers:
            broker.close()
    for at, name in enumerate(names):
        with closing(KafkaBroker(Cluster(kafka.bootstrap), name)) as broker:
            assert broker.committed_offsets(group, broker.topic())[0].offset == at
