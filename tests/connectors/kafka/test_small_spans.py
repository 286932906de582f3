"""Small slices of many topics, read inside a task: the same rows as Spark's, and never too few."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.kafka.client import KafkaBroker
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.consumers import Consumers
from dataflow_assets.connectors.kafka.peek import MOST
from dataflow_assets.connectors.kafka.source import small_slice, small_spans
from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession
from dataflow_assets.connectors.kafka.warm_clients import WarmClients
from dataflow_assets.contracts import Limit, OffsetSlice, Span
from dataflow_assets.contracts.reading import Asked
from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from tests.conftest import Topics
from tests.connectors.kafka import raw_headers
from tests.connectors.kafka.test_session import recreate

ALL = frozenset({"key", "timestamp", "headers"})
STAMP = 1_700_000_000_123
Ask = Callable[..., Asked]


@pytest.fixture(autouse=True)
def _pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a worker keeps for its life."""
    pools = WarmClients(Consumers.leave)
    monkeypatch.setattr(small_spans, "_pools", pools)
    yield
    for pool, _ in pools._kept.values():
        pool.leave()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_spans, "GRACE", 0.3)
    monkeypatch.setattr(small_spans, "SILENCE", 1.5)


@pytest.fixture
def admin(kafka: devservers.Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})


@pytest.fixture
def ask(kafka: devservers.Kafka) -> Ask:
    """A slice of a topic."""

    def asked(topic: str, after: int, upto: int, partition: int = 0, **more: Any) -> Asked:
        source = KafkaSource(brokers=(more.pop("bootstrap", kafka.bootstrap),), topic=topic)
        identity = KafkaBroker(Cluster(kafka.bootstrap), topic).topic().id
        found: dict[str, Any] = {"columns": frozenset(), "index": 0, "slices": 1} | more
        return Asked(source, identity, OffsetSlice(str(partition), after, upto), **found)

    return asked


def send(kafka: devservers.Kafka, topic: str, values: Sequence[bytes | None], **more: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for value in values:
        producer.produce(topic, value, **{"partition": 0, **more})
    assert producer.flush(20) == 0


def read(asked: Sequence[Asked]) -> dict[int, list[pa.RecordBatch] | DataflowError]:
    """What came of each slice, in the order in which they were handed over."""
    found: dict[int, list[pa.RecordBatch] | DataflowError] = {}
    for number, batches in KafkaSource.messages_together(asked):
        assert number not in found
        try:
            found[number] = list(batches)
        except DataflowError as error:
            found[number] = error
    assert sorted(found) == list(range(len(asked)))
    return found


def rows(batches: object) -> list[tuple[int, bytes | None]]:
    assert isinstance(batches, list), batches
    assert all(batch.num_rows for batch in batches)
    return [(row["_at"], row["body"]) for batch in batches for row in batch.to_pylist()]


def numbered(count: int, begin: int = 0) -> list[tuple[int, bytes]]:
    return [(n, b"%d" % n) for n in range(begin, begin + count)]


def bodies(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


# The same as Spark's reader


def random_records(seed: random.Random, topic: str) -> Iterator[dict[str, Any]]:
    for number in range(seed.randrange(40)):
        names = seed.choices(["a", "b", "ü", ""], k=seed.randrange(4))
        yield {
            "topic": topic,
            "partition": seed.randrange(3),
            "value": seed.choice([None, b"", b"%d" % number, b"x" * seed.randrange(9_000)]),
            "key": seed.choice([None, b"", b"k", b"\xff\x00"]),
            "timestamp": seed.choice([-1, 1, STAMP, 253_402_300_800_000 + number]),
            "headers": [(name, seed.choice([None, b"", b"\xff", b"1"])) for name in names] or None,
        }


def fill(kafka: devservers.Kafka, seed: random.Random, topic: str) -> None:
    """Transactions, some of them aborted, and records of none."""
    settings = {"bootstrap.servers": kafka.bootstrap, "log_level": 0}
    plain = Producer(settings | {"compression.type": seed.choice(["none", "lz4", "zstd"])})
    bound = Producer(settings | {"transactional.id": topic})
    bound.init_transactions(20)
    for _ in range(seed.randrange(1, 6)):
        records = list(random_records(seed, topic))
        kind = seed.choice(["plain", "commit", "abort"])
        producer = plain if kind == "plain" else bound
        if producer is bound:
            bound.begin_transaction()
        for record in records:
            producer.produce(**record)
        assert producer.flush(20) == 0
        if producer is bound:
            (bound.commit_transaction if kind == "commit" else bound.abort_transaction)(20)


def slices_of(session: KafkaSourceSession, seed: random.Random) -> Span:
    """Somewhere between the bounds of each partition."""
    ends = {p: int(end) for p, end in session.end().items()}
    cuts = {
        p: sorted((seed.randint(0, end), seed.choice([end, end // 2]))) for p, end in ends.items()
    }
    return Span(tuple(OffsetSlice(p, after, upto) for p, (after, upto) in cuts.items()))


def asked_of(
    source: KafkaSource, session: KafkaSourceSession, span: Span, columns: frozenset[str]
) -> list[Asked]:
    return [
        Asked(source, session.identity, piece, columns, index, len(span.slices))
        for index, piece in enumerate(span.slices)
        if isinstance(piece, OffsetSlice)
    ]


def test_rows_and_types_are_those_of_sparks_reader(
    kafka: devservers.Kafka, topic: Topics, spark: SparkSession
) -> None:
    seed = random.Random(7)
    config = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
    names = [topic(partitions=3, config=config) for _ in range(8)]
    asked, wanted = list[Asked](), list[pa.Table]()
    for name in names:
        fill(kafka, seed, name)
        source = KafkaSource(brokers=(kafka.bootstrap,), topic=name)
        with closing(KafkaSourceSession(source, "default/orders")) as session:
            span = slices_of(session, seed)
            columns = frozenset(seed.sample(sorted(ALL), seed.randint(0, 3)))
            wanted.append(session.frame(spark, span, columns).toArrow())
            asked += asked_of(source, session, span, columns)
    found = read(asked)
    assert any(table.num_rows for table in wanted)
    for number, table in enumerate(wanted):
        batches = [b for n in range(3) for b in found[3 * number + n]]  # type: ignore[union-attr]
        assert sum(batch.num_rows for batch in batches) == table.num_rows
        if batches:
            ours = pa.Table.from_batches(batches)
            assert ours.schema.names == table.schema.names
            assert ours.sort_by("_at").cast(table.schema).equals(table.sort_by("_at"))


def test_columns_are_of_the_types_of_the_frame(
    kafka: devservers.Kafka, topic: Topics, ask: Ask, spark: SparkSession
) -> None:
    name = topic()
    send(kafka, name, [b"x"], headers=[("a", b"1")])
    (batch,) = read([ask(name, 0, 1, columns=ALL)])[0]  # type: ignore[misc]
    source = KafkaSource(brokers=(kafka.bootstrap,), topic=name)
    with closing(KafkaSourceSession(source, "default/orders")) as session:
        frame = session.frame(spark, session.plan({}, Limit()), ALL).toArrow()
    assert [f.name for f in batch.schema] == [f.name for f in frame.schema]
    for ours, theirs in zip(batch.schema, frame.schema, strict=True):
        assert ours.type == theirs.type or pa.types.is_list(ours.type)


# Whole slices, or an error


def test_many_topics_come_together(kafka: devservers.Kafka, topic: Topics, ask: Ask) -> None:
    names = [topic(partitions=2) for _ in range(20)]
    for count, name in enumerate(names):
        send(kafka, name, bodies(count), partition=1)
    found = read([ask(name, 0, n, 1, index=1, slices=2) for n, name in enumerate(names)])
    for count in range(20):
        assert rows(found[count]) == [(2 * n + 1, body) for n, body in numbered(count)]


def test_nothing_outside_of_a_slice_is_delivered(
    kafka: devservers.Kafka, topic: Topics, ask: Ask
) -> None:
    """Of one partition over and over, by consumers that had other places of it before."""
    seed, names = random.Random(3), [topic() for _ in range(4)]
    for name in names:
        send(kafka, name, bodies(3_000))
    for _ in range(60):
        cuts = [sorted(seed.choices(range(3_001), k=2)) for _ in names]
        found = read([ask(name, *cut) for name, cut in zip(names, cuts, strict=True)])
        for number, (after, upto) in enumerate(cuts):
            assert rows(found[number]) == numbered(upto - after, after)


def test_two_flows_may_read_the_same_partition(
    kafka: devservers.Kafka, topic: Topics, ask: Ask
) -> None:
    name = topic()
    send(kafka, name, bodies(9))
    found = read([ask(name, 0, 5), ask(name, 3, 9), ask(name, 0, 5)])
    assert rows(found[0]) == rows(found[2]) == numbered(5)
    assert rows(found[1]) == numbered(6, 3)


def test_batches_may_be_read_after_all_were_handed_over(
    kafka: devservers.Kafka, topic: Topics, ask: Ask
) -> None:
    names = [topic() for _ in range(3)]
    for name in names:
        send(kafka, name, bodies(3))
    kept = list(KafkaSource.messages_together([ask(name, 0, 3) for name in names]))
    assert [rows(list(batches)) for _, batches in kept] == 3 * [numbered(3)]


@pytest.mark.parametrize("commits", [True, False])
def test_markers_and_aborted_records_are_gaps(
    kafka: devservers.Kafka,
    topic: Topics,
    ask: Ask,
    commits: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(small_spans, "GRACE", 15.0)  # which a busy machine does not take
    name = topic()
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": name, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(20)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(name, b"%d" % number, partition=0)
        assert producer.flush(20) == 0
        ended = producer.commit_transaction if commits else producer.abort_transaction
        ended(20)
    begun = time.monotonic()
    found = read([ask(name, 0, 8), ask(name, 1, 2), ask(name, 3, 6), ask(name, 7, 8)])
    each = [(0, b"0"), (2, b"1"), (4, b"2"), (6, b"3")] if commits else []
    assert rows(found[0]) == each
    assert rows(found[2]) == each[2:3]
    assert rows(found[1]) == rows(found[3]) == []
    assert time.monotonic() - begun < small_spans.GRACE


@pytest.mark.usefixtures("impatient")
def test_a_slice_that_ends_before_its_bound_is_an_error(
    kafka: devservers.Kafka, topic: Topics, ask: Ask
) -> None:
    cut, whole = topic(), topic()
    for name in (cut, whole):
        send(kafka, name, bodies(5))
    found = read([ask(cut, 0, 6), ask(whole, 0, 5)])
    assert list(found) == [1, 0]  # the neighbour did not wait
    assert rows(found[1]) == numbered(5)
    assert isinstance(found[0], TransientError)
    assert "ends at offset 5, but reached 6 when the micro-batch was planned" in str(found[0])


@pytest.mark.usefixtures("impatient")
def test_an_open_transaction_below_the_bound_is_waited_for_and_then_an_error(
    kafka: devservers.Kafka, topic: Topics, ask: Ask
) -> None:
    name = topic()
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": name, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(20)
    send(kafka, name, bodies(2))
    producer.begin_transaction()
    producer.produce(name, b"2", partition=0)
    assert producer.flush(20) == 0
    asked = ask(name, 0, 3)
    assert "ends at offset 2" in str(read([asked])[0])
    producer.commit_transaction(20)
    assert rows(read([asked])[0]) == numbered(3)


def test_what_comes_while_it_is_waited_for_is_read(
    kafka: devservers.Kafka, topic: Topics, ask: Ask
) -> None:
    late, busy = topic(), topic()
    send(kafka, late, bodies(2))
    send(kafka, busy, bodies(50))
    found: dict[int, object] = {}
    for number, batches in KafkaSource.messages_together([ask(late, 0, 3), ask(busy, 0, 50)]):
        if number == 1:
            send(kafka, late, [b"2"])
        found[number] = rows(list(batches))
    assert list(found) == [1, 0]
    assert found[0] == numbered(3)


def test_removed_records_are_an_error_and_not_a_gap(
    kafka: devservers.Kafka, topic: Topics, ask: Ask, admin: AdminClient
) -> None:
    lost, whole = topic(), topic()
    for name in (lost, whole):
        send(kafka, name, bodies(9))
    for done in admin.delete_records([TopicPartition(lost, 0, 6)]).values():
        done.result(20)
    found = read([ask(lost, 2, 9), ask(whole, 2, 9)])
    assert rows(found[1]) == numbered(7, 2)
    assert isinstance(found[0], TransientError)
    assert f"reading {lost} partition 0 from offset 2: " in str(found[0])


def test_a_topic_that_is_gone_is_named(
    kafka: devservers.Kafka,
    topic: Topics,
    ask: Ask,
    admin: AdminClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(small_spans, "SILENCE", 60.0)  # which a busy machine does not take
    gone, never, whole = topic(), topic(), topic()
    for name in (gone, whole):
        send(kafka, name, bodies(3))
    asked = [ask(gone, 0, 3), ask(whole, 0, 3), ask(never, 0, 1)]
    read(asked[:1])  # the client has known it
    for done in admin.delete_topics([gone, never]).values():
        done.result(20)
    begun = time.monotonic()
    found = read(asked)
    assert rows(found[1]) == numbered(3)
    for number, name in ((0, gone), (2, never)):
        assert isinstance(found[number], PermanentError)
        where = f"kafka {kafka.bootstrap}"
        assert str(found[number]) == (
            f"topic {name} does not exist on {where}; create it, or correct topic"
        )
    assert time.monotonic() - begun < small_spans.SILENCE


def test_records_of_a_recreated_topic_are_refused(
    kafka: devservers.Kafka, topic: Topics, ask: Ask, admin: AdminClient
) -> None:
    name, whole = topic(), topic()
    send(kafka, whole, bodies(3))
    asked = [ask(name, 0, 3), ask(whole, 0, 3)]
    admin.delete_topics([name])[name].result(20)
    recreate(admin, name)
    send(kafka, name, bodies(3))
    found = read(asked)
    assert rows(found[1]) == numbered(3)
    assert isinstance(found[0], TransientError)
    assert str(found[0]) == f"topic {name} was recreated while it was read"


def test_a_broker_that_is_gone_is_an_error_of_each(
    proxied_kafka: devservers.ProxiedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataflow_assets.connectors.kafka import client

    monkeypatch.setattr(client, "TIMEOUT", 1.0)
    proxied_kafka.proxy.restore()
    names = ["gone-1", "gone-2"]
    admin = AdminClient({"bootstrap.servers": proxied_kafka.bootstrap, "log_level": 0})
    made = admin.create_topics([NewTopic(name, 1, 1) for name in names])
    asked = []
    for name in names:
        made[name].result(20)
        send(proxied_kafka, name, bodies(2))
        source = KafkaSource(brokers=(proxied_kafka.proxied,), topic=name)
        identity = KafkaBroker(Cluster(proxied_kafka.bootstrap), name).topic().id
        asked.append(Asked(source, identity, OffsetSlice("0", 0, 2), frozenset(), 0, 1))
    assert all(rows(batches) == numbered(2) for batches in read(asked).values())
    proxied_kafka.proxy.refuse()
    begun = time.monotonic()
    found = read(asked)
    assert time.monotonic() - begun < 2 * small_spans.SILENCE
    assert all(isinstance(error, TransientError) for error in found.values())
    assert found[0] is not found[1]  # who is blamed for it is written into each
    proxied_kafka.proxy.restore()
    assert all(rows(batches) == numbered(2) for batches in read(asked).values())


# Memory


def test_what_does_not_fit_is_read_alone(
    kafka: devservers.Kafka, topic: Topics, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_spans, "BUFFER_BYTES", 300_000)
    monkeypatch.setattr(small_spans, "BATCH_BYTES", 100_000)
    monkeypatch.setattr(small_slice, "BATCH_BYTES", 100_000)
    most: list[int] = []
    original = small_spans._KafkaReading._hear

    def watched(self: Any, message: Any) -> None:
        original(self, message)
        most.append(sum(one.held for one in (*self._over, *self.awaited.values())))

    monkeypatch.setattr(small_spans._KafkaReading, "_hear", watched)
    names = [topic() for _ in range(6)]
    large = [b"%d-" % n + b"x" * 30_000 for n in range(40)]
    for name in names:
        send(kafka, name, large if name in names[:2] else bodies(10))
    found = read([ask(name, 0, 40 if name in names[:2] else 10) for name in names])
    assert list(found)[-1] in (0, 1)
    for number in range(6):
        expected = list(enumerate(large)) if number < 2 else numbered(10)
        assert rows(found[number]) == expected
    assert all(
        batch.nbytes < 100_000 + 40_000
        for number in (0, 1)
        for batch in found[number]  # type: ignore[union-attr]
    )
    # What came in the same gulp is already in memory.
    assert max(most) < 300_000 + MOST * 31_000


def test_a_consumer_is_kept_and_fetches_nothing_between(
    kafka: devservers.Kafka, topic: Topics, ask: Ask
) -> None:
    name = topic()
    send(kafka, name, bodies(3))
    kept = set()
    for _ in range(3):
        assert rows(read([ask(name, 0, 3)])[0]) == numbered(3)
        ((pool, _),) = small_spans._pools._kept.values()
        kept |= set(map(id, pool._idle))
        assert [one.consumer.assignment() for one in pool._idle] == [[]]
    assert len(kept) == 1


# Names of headers


def test_names_that_are_not_utf8_are_read_as_spark_reads_them(
    kafka: devservers.Kafka, topic: Topics, ask: Ask, spark: SparkSession
) -> None:
    name = topic()
    raw_headers.send(kafka.bootstrap, name, b"0", [(b"a", b"1"), (b"caf\xe9", b"2"), (b"z", b"3")])
    source = KafkaSource(brokers=(kafka.bootstrap,), topic=name)
    with closing(KafkaSourceSession(source, "default/orders")) as session:
        table = session.frame(spark, session.plan({}, Limit()), ALL).toArrow()
    ours = pa.Table.from_batches(read([ask(name, 0, 1, columns=ALL)])[0])
    assert ours["headers"].to_pylist() == table["headers"].to_pylist()
    assert [one["key"] for one in ours["headers"].to_pylist()[0]] == ["a", "caf\ufffd", "z"]


def test_such_names_end_no_process(kafka: devservers.Kafka, topic: Topics, ask: Ask) -> None:
    """Nor after many records without them: Python calls what it has called often in another way."""
    name = topic()
    send(kafka, name, bodies(200), headers=[("a", b"1")])
    for _ in range(3):
        headed = [(b"\xe9t", b"1"), (b"ok", b"2"), (b"\xff", b"3")]
        raw_headers.send(kafka.bootstrap, name, b"0", headed)
    batches = read([ask(name, 0, 203, columns=ALL)])[0]
    assert len(rows(batches)) == 203
    found = pa.Table.from_batches(batches)["headers"].to_pylist()[-3:]
    for one in found:
        names = [("\ufffdt", b"1"), ("ok", b"2"), ("\ufffd", b"3")]
        assert [(each["key"], each["value"]) for each in one] == names


# When the driver chooses it


def test_small_spans_are_read_in_tasks(kafka: devservers.Kafka, topic: Topics) -> None:
    name = topic(partitions=2)
    send(kafka, name, bodies(small_spans.MOST_TOGETHER))
    source = KafkaSource(brokers=(kafka.bootstrap,), topic=name)
    with closing(KafkaSourceSession(source, "default/orders")) as session:
        assert session.reader(session.plan({}, Limit())) == "driver"
        send(kafka, name, [b"one more"], partition=1)
        span = session.plan({}, Limit())
        assert session.reader(span) == "spark"
        assert session.reader(session.plan({"0": 1, "1": 0}, Limit())) == "driver"


def test_records_known_to_be_large_are_left_to_spark(
    kafka: devservers.Kafka, topic: Topics
) -> None:
    name = topic()
    send(kafka, name, [b"x" * 200_000 for _ in range(100)])
    source = KafkaSource(brokers=(kafka.bootstrap,), topic=name)
    with closing(KafkaSourceSession(source, "default/orders")) as session:
        span = session.plan({}, Limit())
        assert session.reader(span) == "spark"
        assert session.reader(session.plan({"0": 60}, Limit())) == "driver"


def test_a_span_that_begins_with_lost_records_is_left_to_spark(
    kafka: devservers.Kafka, topic: Topics, admin: AdminClient
) -> None:
    name = topic()
    send(kafka, name, bodies(9))
    for done in admin.delete_records([TopicPartition(name, 0, 6)]).values():
        done.result(20)
    source = KafkaSource(brokers=(kafka.bootstrap,), topic=name, on_data_loss="continue")
    with closing(KafkaSourceSession(source, "default/orders")) as session:
        assert session.reader(session.plan({"0": 2}, Limit())) == "spark"
        assert session.reader(session.plan({"0": 6}, Limit())) == "driver"
