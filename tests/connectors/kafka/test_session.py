from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
)

import devservers
from dataflow_assets.connectors.kafka import KafkaSink, KafkaSource, client, shared_client
from dataflow_assets.connectors.kafka.consumer_group import KafkaGroup
from dataflow_assets.connectors.kafka.source import current_topic, lags
from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession
from dataflow_assets.contracts import Limit, OffsetSlice, Run, Span, Target
from dataflow_assets.errors import PermanentError, TransientError

FLOW = "default/orders"
Open = Callable[..., KafkaSourceSession]


@pytest.fixture
def opened(kafka: devservers.Kafka) -> Iterator[Open]:
    """Opens sessions and closes them, twice."""
    live: list[KafkaSourceSession] = []

    def open_session(topic: str, **config: Any) -> KafkaSourceSession:
        group = {"consumer_group": f"group-of-{topic}"} | config
        source = KafkaSource(brokers=(kafka.bootstrap,), topic=topic, **group)
        live.append(KafkaSourceSession(source, FLOW))
        return live[-1]

    yield open_session
    for session in [*live, *live]:
        session.close()


@pytest.fixture
def admin(kafka: devservers.Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})


@pytest.fixture
def send(kafka: devservers.Kafka) -> Callable[..., None]:
    """Sends values to one partition."""

    def produce(topic: str, values: Sequence[bytes], partition: int = 0, **more: Any) -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
        for value in values:
            producer.produce(topic, value, partition=partition, **more)
        assert producer.flush(20) == 0

    return produce


@contextmanager
def transactions(kafka: devservers.Kafka, name: str) -> Iterator[Producer]:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(30)
    yield producer


def delete_before(admin: AdminClient, topic: str, offset: int, partition: int = 0) -> None:
    upto = TopicPartition(topic, partition, offset)
    for done in admin.delete_records([upto]).values():
        done.result(20)


def slices(span: Span) -> list[tuple[str, Any, Any]]:
    return [(s.partition, s.after, s.upto) for s in span.slices]


def test_a_span_has_every_partition_with_fixed_bounds(topic: Any, opened: Open, send: Any) -> None:
    name = topic(partitions=3)
    send(name, [b"x"] * 5, 0)
    send(name, [b"x"] * 2, 2)
    session = opened(name)
    span = session.plan({"0": 1}, Limit(records=3))
    send(name, [b"x"] * 5, 0)
    assert span == Span(
        (OffsetSlice("0", 1, 4), OffsetSlice("1", 0, 0), OffsetSlice("2", 0, 2)), full=True
    )
    assert not session.plan({"0": 9}, Limit(records=3)).full
    assert session.end() == {"0": 10, "1": 0, "2": 2}


def test_an_empty_topic_gives_an_empty_span(topic: Any, opened: Open) -> None:
    session = opened(topic(partitions=2))
    assert session.start() == {"0": 0, "1": 0} == session.end()
    assert session.plan(session.start(), Limit()).empty
    lag = session.lag({})
    assert (lag.records, lag.seconds, lag.ends) == (0, 0.0, {"0": 0, "1": 0})


def test_until_bounds_a_drain(topic: Any, opened: Open, send: Any) -> None:
    name = topic(partitions=2)
    send(name, [b"x"] * 5, 0)
    send(name, [b"x"] * 5, 1)
    span = opened(name).plan({"0": 4, "1": 0}, Limit(), {"0": 3})
    assert slices(span) == [("0", 4, 4), ("1", 0, 0)]
    assert slices(opened(name).plan({}, Limit(), {"0": 3, "1": 9})) == [("0", 0, 3), ("1", 0, 5)]


def test_a_slice_holds_about_as_many_bytes_as_allowed(topic: Any, opened: Open, send: Any) -> None:
    name = topic(partitions=2)
    send(name, [b"x" * 1000] * 300, 0)
    send(name, [b"x" * 10] * 300, 1)
    span = opened(name).plan({}, Limit(bytes=100_000))
    assert slices(span) == [("0", 0, 100), ("1", 0, 300)]


def test_one_record_larger_than_the_limit_still_goes(topic: Any, opened: Open, send: Any) -> None:
    name = topic()
    send(name, [b"x" * 300_000] * 3)
    assert slices(opened(name).plan({}, Limit(bytes=1000))) == [("0", 0, 1)]


def test_earliest_and_latest(topic: Any, opened: Open, send: Any, admin: AdminClient) -> None:
    name = topic()
    send(name, [b"x"] * 5)
    delete_before(admin, name, 2)
    assert opened(name, starting_offsets="earliest").start() == {"0": 2}
    assert opened(name, starting_offsets="latest").start() == {"0": 5}


def test_a_timestamp_finds_the_first_record_not_older(topic: Any, opened: Open, send: Any) -> None:
    name = topic(partitions=2, config={"retention.ms": "-1"})
    for second in (10, 20, 30):
        send(name, [b"x"], 0, timestamp=second * 1000)
    at = {"starting_offsets": "timestamp", "starting_timestamp": "1970-01-01T00:00:15Z"}
    session = opened(name, **at)
    assert session.start() == {"0": 1, "1": 0}
    assert session.start("1970-01-01T00:00:30") == {"0": 2, "1": 0}
    assert session.start("1970-01-01T01:00:30.001+01:00") == {"0": 3, "1": 0}
    with pytest.raises(PermanentError, match="allowed: earliest, latest or a date"):
        session.start("yesterday")


def test_a_new_flow_adopts_a_foreign_groups_offsets(topic: Any, opened: Open, send: Any) -> None:
    name = topic(partitions=2)
    send(name, [b"x"] * 5, 0)
    send(name, [b"x"] * 5, 1)
    session = opened(name)
    session._broker.commit(f"group-of-{name}", {0: 3}, "")
    session._broker.close()
    assert session.start() == {"0": 3, "1": 0}


def test_offsets_of_our_own_are_not_adopted(topic: Any, opened: Open, send: Any) -> None:
    name = topic()
    send(name, [b"x"] * 5)
    session = opened(name)
    session.acknowledge({"0": 3})
    session.close()
    another = opened(name)
    stored = another._broker.committed_offsets(f"group-of-{name}", another.topic.now())
    mark = f"dataflow-assets:{FLOW} {another.identity}"
    assert (stored[0].offset, stored[0].metadata) == (3, mark)
    assert another.start() == {"0": 0}


def test_a_group_that_stands_below_the_log_start_has_lost_data(
    topic: Any, opened: Open, send: Any, admin: AdminClient
) -> None:
    name = topic()
    send(name, [b"x"] * 9)
    session = opened(name)
    session._broker.commit(f"group-of-{name}", {0: 3}, "")
    session._broker.close()
    delete_before(admin, name, 7)
    with pytest.raises(PermanentError, match=r"partition 0 offsets 3 to 6.*group-of-"):
        session.start()
    assert opened(name, on_data_loss="continue").start() == {"0": 7}


def test_a_group_that_stands_beyond_the_end_is_not_believed(
    topic: Any, opened: Open, send: Any
) -> None:
    name = topic()
    send(name, [b"x"] * 3)
    session = opened(name)
    session._broker.commit(f"group-of-{name}", {0: 30}, "")
    session._broker.close()
    with pytest.raises(PermanentError, match="ends at offset 3, but 30 comes next"):
        session.start()
    assert opened(name, on_data_loss="continue").start() == {"0": 0}


def test_what_retention_took_is_named(
    topic: Any, opened: Open, send: Any, admin: AdminClient
) -> None:
    name = topic(partitions=2)
    send(name, [b"x"] * 9, 0)
    send(name, [b"x"] * 9, 1)
    delete_before(admin, name, 6)
    session = opened(name)
    with pytest.raises(PermanentError) as caught:
        session.plan({"0": 2, "1": 2}, Limit())
    message = str(caught.value)
    assert f"topic {name}: partition 0 offsets 2 to 5: removed by retention" in message
    assert "onDataLoss: continue" in message
    assert "partition 1" not in message
    assert slices(session.plan({}, Limit())) == [("0", 6, 9), ("1", 0, 9)]
    with pytest.raises(PermanentError, match="partition 0 offsets 0 to 5: removed"):
        session.plan({"1": 2}, Limit())  # partition 0 came later, and nobody has read it


def test_continuing_after_a_loss_warns_once_and_keeps_the_planned_start(
    topic: Any,
    opened: Open,
    send: Any,
    admin: AdminClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = topic()
    send(name, [b"x"] * 9)
    delete_before(admin, name, 6)
    session = opened(name, on_data_loss="continue")
    with caplog.at_level(logging.WARNING):
        spans = [session.plan({"0": 2}, Limit(records=2)) for _ in range(2)]
    assert [slices(span) for span in spans] == [[("0", 2, 8)]] * 2
    assert [r.message.count("offsets 2 to 5") for r in caplog.records] == [1]


def test_a_position_beyond_the_end_is_an_error_even_with_continue(
    topic: Any, opened: Open, send: Any
) -> None:
    name = topic()
    send(name, [b"x"] * 3)
    session = opened(name, on_data_loss="continue")
    with pytest.raises(PermanentError, match="ends at offset 3, but 8 comes next"):
        session.plan({"0": 8}, Limit())


def test_a_recreated_topic_has_another_identity(
    topic: Any,
    opened: Open,
    send: Any,
    admin: AdminClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topic()
    session = opened(name)
    admin.delete_topics([name])[name].result(20)
    recreate(admin, name)
    monkeypatch.setattr(current_topic, "SECONDS", 0)
    with pytest.raises(TransientError, match="recreated while it was read"):
        session.plan({}, Limit())
    assert opened(name).identity != session.identity


def recreate(admin: AdminClient, name: str) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            admin.create_topics([NewTopic(name, 1)])[name].result(20)
        except KafkaException:  # the old one is not gone yet
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return


def test_a_partition_added_later_is_read_from_its_beginning(
    topic: Any,
    opened: Open,
    send: Any,
    admin: AdminClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topic()
    send(name, [b"x"] * 2)
    session = opened(name)
    assert slices(session.plan({"0": 2}, Limit())) == [("0", 2, 2)]
    admin.create_partitions([NewPartitions(name, 2)])[name].result(20)
    send(name, [b"x"] * 3, 1)
    monkeypatch.setattr(current_topic, "SECONDS", 0)
    assert slices(session.plan({"0": 2}, Limit())) == [("0", 2, 2), ("1", 0, 3)]


def test_an_open_transaction_ends_the_log_until_it_ends(
    kafka: devservers.Kafka, topic: Any, opened: Open
) -> None:
    name = topic()
    session = opened(name)
    with transactions(kafka, name) as producer:
        producer.begin_transaction()
        producer.produce(name, b"a", partition=0)
        producer.commit_transaction(20)
        producer.begin_transaction()
        producer.produce(name, b"b", partition=0)
        producer.flush(20)
        assert session.end() == {"0": 2}
        assert slices(session.plan({"0": 3}, Limit())) == [("0", 3, 3)]  # not beyond the log
        producer.commit_transaction(20)
    eventually(lambda: session.end() == {"0": 4})


def test_a_lag_of_markers_alone_has_no_age(
    kafka: devservers.Kafka, topic: Any, opened: Open
) -> None:
    name = topic()
    session = opened(name)
    with transactions(kafka, name) as producer:
        producer.begin_transaction()
        producer.produce(name, b"a", partition=0)
        producer.flush(20)
        producer.abort_transaction(20)
    eventually(lambda: session.end() == {"0": 2})
    lag = session.lag({"0": 0})
    assert (lag.records, lag.seconds) == (2, 0.0)


def test_lag_tells_the_age_of_the_oldest_unread_record(topic: Any, opened: Open, send: Any) -> None:
    name = topic(partitions=3)
    now = datetime.now(UTC).timestamp()
    for partition, age in ((0, 900), (0, 60), (1, 300), (2, 30)):
        send(name, [b"x"], partition, timestamp=int((now - age) * 1000))
    lag = opened(name).lag({"0": 1, "1": 0})
    assert lag.records == 3
    assert lag.seconds == pytest.approx(300, abs=5)
    assert lag.ends == {"0": 2, "1": 1, "2": 1}


def test_a_missing_topic_is_named(opened: Open) -> None:
    said = r"topic nowhere does not exist on kafka 127\S+; create it, or correct topic$"
    with pytest.raises(PermanentError, match=said):
        opened("nowhere")


def test_the_topic_that_was_probably_meant_is_named(
    opened: Open, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a sink that is not to create one."""
    monkeypatch.setattr(shared_client, "LISTED", 0.0)
    shop = f"shop{uuid.uuid4().hex[:8]}"
    name = f"{shop}.returned-parcels"
    admin.create_topics([NewTopic(name, 1)])[name].result(20)
    meant = re.escape(f"; did you mean {name}?")
    with pytest.raises(
        PermanentError, match=rf"^topic {shop}\.returned_parcel does not .+{meant}$"
    ):
        opened(f"{shop}.returned_parcel")
    broker = opened(name)._broker
    assert broker.about(f"{shop.title()}_Returned_Parcels").probably().endswith(f"{name}?")
    assert broker.about("something.else").probably() == ""
    sink = KafkaSink(brokers=(broker.bootstrap,), topic=f"{shop}.returned_parcel")
    with (
        closing(sink.open(Target(FLOW, "kafka:t", "h", "src", "src"), Run())) as session,
        pytest.raises(PermanentError, match=f"or set autoCreateTopic: true{meant}$"),
    ):
        session.table.create(pa.schema([]))


def test_a_broker_that_is_down_is_transient_and_tells_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TIMEOUT", 1.0)
    source = KafkaSource(brokers=("127.0.0.1:1", "127.0.0.1:2"), topic="t")
    begun = time.monotonic()
    with pytest.raises(TransientError, match=r"127\.0\.0\.1:1,127\.0\.0\.1:2.*refused"):
        source.open(FLOW)
    assert time.monotonic() - begun < 15


def test_a_broker_that_goes_away_is_transient(
    proxied_kafka: devservers.ProxiedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = AdminClient({"bootstrap.servers": proxied_kafka.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("goes-away", 1)])["goes-away"].result(20)
    proxied_kafka.proxy.restore()
    session = KafkaSource(brokers=(proxied_kafka.proxied,), topic="goes-away").open(FLOW)
    proxied_kafka.proxy.refuse()
    monkeypatch.setattr(client, "TIMEOUT", 1.0)
    try:
        begun = time.monotonic()
        with pytest.raises(TransientError, match=proxied_kafka.proxied):
            session.plan({}, Limit())
        session.acknowledge({"0": 0})
        session.close()
        assert time.monotonic() - begun < 15
    finally:
        proxied_kafka.proxy.restore()


def test_an_offset_that_a_broken_connection_left_unanswered_is_no_position(
    opened: Open, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened(topic(), starting_offsets="latest")
    unanswered = Future[ListOffsetsResultInfo]()
    unanswered.set_result(ListOffsetsResultInfo(OFFSET_INVALID, 0, -1))
    monkeypatch.setattr(
        AdminClient, "list_offsets", lambda _self, asked, **_: dict.fromkeys(asked, unanswered)
    )
    questions: list[Callable[[], Any]] = [
        session.start,
        session.end,
        lambda: session.plan({}, Limit()),
        lambda: session.lag({"0": 0}),
    ]
    for question in questions:
        with pytest.raises(TransientError, match="no answer"):
            question()
    (end,) = KafkaSourceSession.ends_together([session])
    assert isinstance(end, TransientError)


@pytest.mark.parametrize(
    "refusal",
    [
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_leader_that_is_new_is_asked_again_at_once(
    refusal: int, opened: Open, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened(topic())
    ask, refused = AdminClient.list_offsets, Future[ListOffsetsResultInfo]()
    refused.set_exception(KafkaException(KafkaError(refusal)))
    left = [refused]

    def refuse_once(admin: AdminClient, asked: Any, **options: Any) -> Any:
        return dict.fromkeys(asked, left.pop()) if left else ask(admin, asked, **options)

    monkeypatch.setattr(AdminClient, "list_offsets", refuse_once)
    assert session.end() == {"0": 0}
    assert not left
    left.append(refused)
    assert KafkaSourceSession.ends_together([session]) == [{"0": 0}]
    assert not left


def test_a_partition_that_nobody_could_look_at_has_no_age(
    opened: Open, topic: Any, send: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(2)
    send(name, [b"{}"], 0)
    send(name, [b"{}"], 1)
    session = opened(name)
    monkeypatch.setattr(lags, "SECONDS", 0.0)
    lag = session.lag({"0": 0, "1": 1})
    assert (lag.records, lag.seconds, dict(lag.partitions)) == (1, None, {"1": 0.0})
    monkeypatch.setattr(lags, "SECONDS", 60.0)
    assert set(session.lag({"0": 0, "1": 1}).partitions) == {"0", "1"}


def test_a_partition_whose_offset_the_group_does_not_tell_is_no_partition_without_one(
    kafka: devservers.Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    answers = [
        SimpleNamespace(partition=0, offset=7, metadata="", leader_epoch=None, error=None),
        SimpleNamespace(partition=1, offset=OFFSET_INVALID, metadata="", error=refused),
    ]
    with closing(KafkaGroup({"bootstrap.servers": kafka.bootstrap}, "some-group")) as group:
        consumer = SimpleNamespace(committed=lambda *_, **__: answers, close=lambda: None)
        monkeypatch.setattr(group, "_consumer", consumer)
        with pytest.raises(KafkaException, match="COORDINATOR_LOAD_IN_PROGRESS"):
            group.committed_offsets("topic", range(2), 1.0)
        del answers[1]
        assert {p: one.offset for p, one in group.committed_offsets("topic", [0], 1.0).items()} == {
            0: 7
        }


def test_a_refused_commit_is_logged_not_raised(
    opened: Open, topic: Any, caplog: pytest.LogCaptureFixture
) -> None:
    session = opened(topic())
    with caplog.at_level(logging.WARNING):
        session.acknowledge({"0": 0, "7": 1})
        session.close()
        eventually(lambda: bool(caplog.records))
    assert "were not stored" in caplog.text


def test_only_what_changed_is_released_again(
    opened: Open, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened(topic(partitions=2))
    asked: list[Mapping[int, int]] = []

    def commit(_group: str, offsets: Mapping[int, int], *_: object) -> None:
        asked.append(offsets)

    monkeypatch.setattr(session._broker, "commit", commit)
    for upto in ({"0": 0, "1": 0}, {"0": 0, "1": 0}, {"0": 0, "1": 1}):
        session.acknowledge(upto)
    assert asked == [{0: 0, 1: 0}, {1: 1}]


def eventually(check: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)
