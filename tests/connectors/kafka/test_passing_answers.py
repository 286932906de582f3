"""What a broker says for a moment only, or not at all, is no fact: nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

import devservers
from dataflow_assets.connectors.kafka import KafkaSource, consumer_group
from dataflow_assets.connectors.kafka.client import KafkaBroker
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.consumer_group import KafkaCommitted
from dataflow_assets.connectors.kafka.create_topic import TopicAdmin
from dataflow_assets.connectors.kafka.errors import meaning
from dataflow_assets.connectors.kafka.sink import empty_topic, last_record
from dataflow_assets.connectors.kafka.sink.checkpoint import CheckpointTopic
from dataflow_assets.connectors.kafka.sink.last_record import LastRecordReader
from dataflow_assets.connectors.kafka.source import current_topic
from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession
from dataflow_assets.contracts import Cut, Limit, OffsetSlice, PartSlice, Span
from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from tests.connectors.kafka.sinking import Make, Sent, branches, chunk

FLOW = "default/orders"


@pytest.fixture
def session(kafka: devservers.Kafka, topic: Any) -> Iterator[KafkaSourceSession]:
    source = KafkaSource(brokers=(kafka.bootstrap,), topic=topic())
    with closing(KafkaSourceSession(source, FLOW)) as opened:
        yield opened


@pytest.fixture
def into(kafka: devservers.Kafka, topic: Any) -> Iterator[Make]:
    with branches(kafka, topic) as make:
        yield make


def send(session: KafkaSourceSession, count: int, **more: Any) -> None:
    producer = Producer({"bootstrap.servers": session._broker.bootstrap, "linger.ms": 0})
    for number in range(count):
        producer.produce(session.topic.broker.name, b"%d" % number, partition=0, **more)
    assert producer.flush(20) == 0


def test_a_record_that_arrives_while_a_start_is_looked_up_is_read(
    session: KafkaSourceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is none of that time yet, and one when the end of the log is told."""
    send(session, 3, timestamp=1_000)
    ask = AdminClient.list_offsets

    def then_one_arrives(admin: AdminClient, asked: Any, **options: Any) -> Any:
        answers = ask(admin, asked, **options)
        assert all(one.result(20) for one in answers.values())
        send(session, 1)
        return answers

    monkeypatch.setattr(AdminClient, "list_offsets", then_one_arrives)
    assert session.start("2020-01-01T00:00:00Z") == {"0": 3}


def test_a_group_that_goes_on_while_a_start_is_looked_up_is_not_beyond_the_log(
    session: KafkaSourceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the log would look cut off; and be read from its beginning (`onDataLoss: continue`)."""
    send(session, 3)

    def committed(*_: object) -> dict[int, KafkaCommitted]:
        send(session, 1)
        return {0: KafkaCommitted(4, "")}

    monkeypatch.setattr(KafkaBroker, "committed_offsets", committed)
    assert session.start() == {"0": 4}


@pytest.mark.parametrize(
    "error", [TransientError("coordinator"), PermanentError("GROUP_AUTHORIZATION_FAILED")]
)
def test_what_the_group_knows_of_leaders_is_waited_for(
    session: KafkaSourceSession, monkeypatch: pytest.MonkeyPatch, error: DataflowError
) -> None:
    """Without it a log that was cut off looks sound; one that may not be asked never tells."""
    send(session, 5)

    def committed(*_: object) -> None:
        raise error

    monkeypatch.setattr(KafkaBroker, "committed_offsets", committed)
    for _ in range(2):
        if isinstance(error, TransientError):
            with pytest.raises(
                TransientError, match=r"coordinator; .* __consumer_offsets have a leader"
            ):
                session.plan({"0": 3}, Limit())
        else:
            assert len(session.plan({"0": 3}, Limit()).slices) == 1
    monkeypatch.undo()
    assert len(session.plan({"0": 3}, Limit()).slices) == 1


def test_a_group_that_the_flow_may_not_ask_keeps_it_from_nothing(
    session: KafkaSourceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka says so by a message, and asks again until the time is up."""
    send(session, 5)
    asked = list[float]()

    def committed(_: Any, timeout: float) -> None:
        asked.append(timeout)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    told = SimpleNamespace(error=lambda: KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    consumer = SimpleNamespace(committed=committed, poll=lambda _: told, close=lambda: None)
    monkeypatch.setattr(consumer_group, "Consumer", lambda _: consumer)
    assert len(session.plan({"0": 3}, Limit()).slices) == 1
    assert asked == [consumer_group.REFUSED_SECONDS]
    with pytest.raises(PermanentError, match="grant this client Read on the consumer group"):
        session._broker.committed_offsets("orders", session.topic.now())


def test_a_topic_that_a_broker_has_not_heard_of_yet_ends_no_flow_of_a_lane(
    session: KafkaSourceSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = AdminClient.describe_topics
    left = [KafkaError.UNKNOWN_TOPIC_OR_PART]

    class Unknown:
        def result(self, _: float) -> None:
            raise KafkaException(KafkaError(left.pop()))

    def describe(admin: AdminClient, asked: Any, **options: Any) -> Any:
        found = ask(admin, asked, **options)
        return dict.fromkeys(found, Unknown()) if left else found

    monkeypatch.setattr(AdminClient, "describe_topics", describe)
    monkeypatch.setattr(current_topic, "SECONDS", 0)
    assert KafkaSourceSession.ends_together([session]) == [{"0": 0}]
    assert not left


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """By topic: how many lists of topics lack it, by a broker that is behind."""
    found = dict[str, int]()
    listing = TopicAdmin._listing

    def behind(admin: TopicAdmin) -> Mapping[str, object]:
        left = found.get(admin.name, 0)
        found[admin.name] = left - 1
        return {k: v for k, v in listing(admin).items() if left <= 0 or k != admin.name}

    monkeypatch.setattr(TopicAdmin, "_listing", behind)
    return found


def test_a_target_that_a_broker_does_not_list_yet_is_not_filled_anew(
    into: Make, hidden: dict[str, int]
) -> None:
    """A run would start over, and fill the topic that is there once more."""
    target = into(autoCreateTopic=True)
    target.put([Sent(b"1")])
    known = target.open().table.identity
    hidden[target.topic] = 1
    assert target.open().table.identity == known is not None


def test_a_task_waits_for_a_broker_that_does_not_list_the_target(
    into: Make, hidden: dict[str, int]
) -> None:
    target = into()
    target.put([Sent(b"1")])
    piece = OffsetSlice("0", 1, 2)
    session, span = target.begun(piece)
    writer = target.write(session, piece, [Sent(b"2")], 1)
    hidden[target.topic] = 1
    session.finish(span, [writer.close(complete=False)], None)  # type: ignore[arg-type]
    assert target.values() == [b"1", b"2"]


def test_a_task_begins_before_a_broker_lists_the_target(into: Make, hidden: dict[str, int]) -> None:
    target = into()
    session, span = target.begun(OffsetSlice("0", 0, 1))
    hidden[target.topic] = 1
    receipt = target.write(session, OffsetSlice("0", 0, 1), [Sent(b"1")]).close(complete=False)
    session.finish(span, [receipt], None)  # type: ignore[arg-type]
    assert target.values() == [b"1"]


def test_another_flow_whose_checkpoint_cannot_be_read_counts_as_one_that_may_write(
    kafka: devservers.Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has written would be deleted with `table: truncate`."""

    def told(code: int) -> Any:
        error = KafkaError(code)
        return SimpleNamespace(topic=lambda: "t", value=lambda: None, error=lambda: error)

    reader = LastRecordReader(Cluster(kafka.bootstrap))
    reader.close()
    for code in (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART):
        consumer = SimpleNamespace(poll=lambda _, code=code: told(code), unassign=lambda: None)
        monkeypatch.setattr(reader, "_consumer", consumer)
        monkeypatch.setattr(reader, "_assign", lambda _: None)
        assert reader.heads(["t"]) == {}
    for code, kind in (
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, PermanentError),
        (KafkaError.KAFKA_STORAGE_ERROR, TransientError),
    ):
        consumer = SimpleNamespace(poll=lambda _, code=code: told(code), unassign=lambda: None)
        monkeypatch.setattr(reader, "_consumer", consumer)
        with pytest.raises(kind, match="reading checkpoints of other flows in t"):
            reader.heads(["t"])


def test_a_checkpoint_far_behind_transactions_that_came_to_nothing_is_found(
    kafka: devservers.Kafka, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_record, "BACK", 4)
    name, empty = topic(), topic()
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": name, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(20)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(name, b"%d" % number, partition=0)
        assert producer.flush(20) == 0
        (producer.abort_transaction if number else producer.commit_transaction)(20)
    with closing(LastRecordReader(Cluster(kafka.bootstrap))) as reader:
        assert reader.heads([name, empty]) == {name: b"0"}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.POLICY_VIOLATION, PermanentError),
        (KafkaError.INVALID_CONFIG, PermanentError),
        (KafkaError.SECURITY_DISABLED, PermanentError),
        (KafkaError.UNSUPPORTED_SASL_MECHANISM, PermanentError),
        (KafkaError.INVALID_REPLICATION_FACTOR, TransientError),  # a broker may be down
        (KafkaError.REQUEST_TIMED_OUT, TransientError),
        (KafkaError.UNKNOWN, TransientError),
    ],
)
def test_what_only_a_person_can_change_is_final(code: int, kind: type[DataflowError]) -> None:
    assert isinstance(meaning(KafkaError(code), "making t"), kind)


def test_what_a_task_commits_while_a_target_is_emptied_is_emptied_too(
    into: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again from the start, and would be there twice."""
    target = into()
    piece = OffsetSlice("0", 0, 2)
    old, _ = target.begun(piece)
    late = target.write(old, piece, [Sent(b"1")])
    new = target.open()
    ends = empty_topic.ends

    def then_the_task_commits(*asked: Any) -> dict[str, int]:
        found = ends(*asked)
        with suppress(DataflowError):
            late.write(chunk([Sent(b"2")], 1))
            late.close(complete=False)
        return found

    monkeypatch.setattr(empty_topic, "ends", then_the_task_commits)
    new.restart({"0": 0}, "source-id", empty=True)
    assert target.values() == []


def test_a_target_that_a_broker_does_not_list_is_emptied_all_the_same(
    into: Make, hidden: dict[str, int]
) -> None:
    target = into()
    target.put([Sent(b"1")])
    session = target.open()
    hidden[target.topic] = 1
    session.restart({"0": 0}, "source-id", empty=True)
    assert target.values() == []


def test_a_commit_that_is_not_visible_yet_is_waited_for_before_a_span_is_dropped(
    into: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has stored would be planned, and stored, once more."""
    target = into()
    part = PartSlice("part-0", None, "end", "rows")
    session, _ = target.begun(part)
    target.write(session, part, [Sent(b"1")]).close(complete=True)
    monkeypatch.setattr(CheckpointTopic, "checkpoints", lambda *_: ({}, []))
    new = target.open()
    monkeypatch.undo()
    unfinished, nothing = new.begin(Span(())), Cut({part: ()})
    checkpoints = CheckpointTopic.checkpoints

    def undecided(*asked: Any) -> Any:
        return {}, list(checkpoints(*asked)[0])

    monkeypatch.setattr(CheckpointTopic, "checkpoints", undecided)
    with pytest.raises(TransientError, match="is still open"):
        new.divide(unfinished, nothing)
    monkeypatch.undo()
    with pytest.raises(TransientError, match="a part was committed meanwhile"):
        new.divide(unfinished, nothing)
