"""What the Kafka sink makes of records: topic, key, headers, and why some are refused."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

import devservers
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.create_topic import TopicAdmin
from dataflow_assets.connectors.kafka.sink.checkpoint import CheckpointTopic
from dataflow_assets.connectors.kafka.sink.checkpoint_records import side_topic
from dataflow_assets.connectors.kafka.sink.routing import Routing
from dataflow_assets.connectors.kafka.values import Outgoing
from dataflow_assets.contracts import (
    MESSAGES,
    OffsetSlice,
    Rejection,
    Rejects,
    Run,
)
from dataflow_assets.errors import PermanentError, RejectedRecord, Stopped
from dataflow_assets.sdk.rejected_records import error_record
from tests.conftest import Topics
from tests.connectors.kafka.sinking import Into, Make, Sent, branches, chunk


@pytest.fixture
def into(kafka: devservers.Kafka, topic: Topics) -> Iterator[Make]:
    with branches(kafka, topic) as make:
        yield make


# Kafka's own vectors (UtilsTest.testMurmur2): text and the signed hash that Java computes of it.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_keys_land_where_java_s_producers_put_them(into: Make) -> None:
    target = into(partitions=7)
    target.put([Sent(b"{}", key) for key in MURMUR2])
    found = {m.key(): m.partition() for m in target.records()}
    assert found == {key: (hash_ & 0x7FFFFFFF) % 7 for key, hash_ in MURMUR2.items()}


def test_body_key_and_headers_come_unharmed(into: Make) -> None:
    target = into()
    twice = [("h", b"1"), ("h", b"2"), ("none", None), ("bin", b"\x00\xff")]
    rows = [
        Sent(b"no json \xff", b"\x00\xfe", twice),
        Sent(b"{}", None),
        Sent(b"", b""),
        Sent(None, b"gone"),
    ]
    target.put(rows)
    found = [(m.value(), m.key(), m.headers()) for m in target.records()]
    assert found == [(row.value, row.key, list(row.headers) or None) for row in rows]


def test_many_records_keep_their_order_in_bounded_memory(into: Make) -> None:
    target = into(compression="lz4")
    piece = OffsetSlice("0", 0, 60_000)
    session, _ = target.begun(piece)
    writer = target.sink.writer(session.ticket(), piece)
    for at in range(0, 60_000, 20_000):
        headed = at == 20_000
        rows = [
            Sent(b"%06d" % n + b"x" * 500, None, [("h", b"1")] * headed)
            for n in range(at, at + 20_000)
        ]
        writer.write(chunk(rows, at))
    writer.close(complete=False)
    assert [int((m.value() or b"")[:6]) for m in target.records()] == list(range(60_000))


def test_what_the_topic_does_not_take_is_rejected_and_the_others_arrive(into: Make) -> None:
    target = into(config={"max.message.bytes": "2000"})
    largest = 2000 - 100
    rows = [Sent(b"x" * n) for n in (10, largest, largest + 1, 20)]
    receipt = target.put([*rows, Sent(b"y", None, [("h", b"z" * largest)]), Sent(b"z")])
    assert sorted(len(value or b"") for value in target.values()) == [1, 10, 20, largest]
    assert receipt.totals.rejected == 2
    assert "max.message.bytes 2000" in target.reasons()[0]
    (entry, _) = target.sink.rejected_entries().pending("default/flow", None, 10)
    assert entry.body == rows[2].value
    assert entry.stage == "sink"


def test_small_records_make_no_batch_that_the_topic_refuses(into: Make) -> None:
    target = into(config={"max.message.bytes": "3000"})
    target.put([Sent(b"x" * 100) for _ in range(500)])
    assert len(target.values()) == 500


def test_a_compacted_topic_wants_keys(into: Make) -> None:
    target = into(config={"cleanup.policy": "compact"})
    assert target.put([Sent(b"a", b"k"), Sent(b"b")]).totals.rejected == 1
    assert target.values() == [b"a"]
    assert target.reasons() == [f"topic {target.topic} is compacted: every record needs a key"]


@pytest.mark.parametrize(
    ("options", "body", "key"),
    [
        ({"keyField": "a.b"}, b'{"a": {"b": "x"}}', b"x"),
        ({"keyField": "$.id"}, b'{"id": 12345678901234567890}', b"12345678901234567890"),
        ({"keyField": "on"}, b'{"on": true}', b"true"),
        ({"keyTemplate": "${$.a}-${$.b}"}, b'{"a": 1, "b": "x"}', b"1-x"),
        ({"keyTemplate": "${$.a}"}, b'{"a": 1.50}', b"1.5"),
        ({"upsertMode": True, "conflictKey": "id"}, b'{"id": 7}', b"7"),
        (
            {"upsertMode": True, "conflictKey": ["b", "a"]},
            b'{"a": 1, "b": "x"}',
            b'{"b":"x","a":1}',
        ),
    ],
)
def test_keys_are_made_of_bodies(into: Make, options: Any, body: bytes, key: bytes) -> None:
    target = into(**options)
    target.put([Sent(body, b"own")])
    assert [(m.key(), m.value()) for m in target.records()] == [(key, body)]


@pytest.mark.parametrize(
    "options",
    [
        {"keyField": "id"},
        {"keyTemplate": "${$.id}"},
        {"upsertMode": True, "conflictKey": ["id", "a"]},
    ],
)
def test_a_body_without_its_key_is_rejected(into: Make, options: Any) -> None:
    target = into(**options)
    bodies = (b"{}", b"no json", b"null", b'{"id": null}')
    assert target.put([Sent(body, b"own") for body in bodies]).totals.rejected == 4
    assert target.values() == []


def test_in_upsert_mode_a_delete_is_its_key_s_tombstone(into: Make) -> None:
    target = into(upsertMode=True, conflictKey="id")
    rows = [
        Sent(b'{"id": 1, "n": "a"}'),
        Sent(b'{"id": 1}', deleted=True),
        Sent(None, b'{"id": 2}'),
        Sent(None, b'"3"'),
        Sent(None, b"four"),
        Sent(None),
    ]
    receipt = target.put(rows)
    assert [(m.key(), m.value()) for m in target.records()] == [
        (b"1", rows[0].value),
        (b"1", None),
        (b"2", None),
        (b"3", None),
        (b"four", None),
    ]
    assert receipt.totals.rejected == 1
    assert target.reasons() == ["upsertMode: the record has no key"]


def test_without_upsert_mode_a_deleted_row_keeps_its_body(into: Make) -> None:
    target = into()
    target.put([Sent(b'{"id": 1}', b"k", deleted=True)])
    assert target.values() == [b'{"id": 1}']


def to(topic: str) -> bytes:
    return json.dumps({"to": topic}).encode()


def test_records_name_their_topics(into: Make, topic: Any) -> None:
    target, other = into(topicField="to"), topic()
    rows = [
        b'{"to": "%s"}' % other.encode(),
        b'{"to": null}',
        b"{}",
        b'{"to": "no_such_topic_here"}',
        b'{"to": ""}',
    ]
    inner = [b'{"to": "__consumer_offsets"}', b'{"to": "%s"}' % side_topic(target.target).encode()]
    receipt = target.put([Sent(body) for body in [*rows, *inner]])
    assert target.values() == sorted([b'{"to": null}', b"{}"])
    assert [m.value() for m in target.records(other)] == rows[:1]
    assert receipt.totals.rejected == 4
    assert "topicField: '' can be no topic's name" in target.reasons()
    missing = "topic no_such_topic_here does not exist, or this client may not see it"
    assert missing in target.reasons()


@pytest.mark.parametrize(
    "name", ["\0", "a\0b", "a b", "..", "\N{LATIN SMALL LETTER E WITH ACUTE}", "x" * 250]
)
def test_a_text_that_can_be_no_topic_s_name_costs_its_record_alone(into: Make, name: str) -> None:
    target = into(topicField="to")
    receipt = target.put([Sent(to(name)), Sent(b"{}")])
    assert (target.values(), receipt.totals.rejected) == ([b"{}"], 1)
    (reason,) = target.reasons()
    assert reason.startswith("topicField: ")
    assert reason.endswith(" can be no topic's name")


def test_a_topic_that_the_flow_may_not_see_costs_its_record_alone(
    into: Make, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker with rights says the same of topics that are not there."""
    target = into(topicField="to")
    refused = Future[object]()
    refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    ask = AdminClient.describe_topics

    def describe(admin: AdminClient, asked: Any, **options: Any) -> Any:
        found = ask(admin, asked, **options)
        return {name: refused if name == "of-others" else one for name, one in found.items()}

    monkeypatch.setattr(AdminClient, "describe_topics", describe)
    receipt = target.put([Sent(to("of-others")), Sent(b"{}")])
    assert (target.values(), receipt.totals.rejected) == ([b"{}"], 1)
    assert target.reasons() == ["topic of-others does not exist, or this client may not see it"]
    own = target.sink.model_copy(update={"topic": "of-others"})
    with pytest.raises(PermanentError, match=r"looking for of-others.*grant this client"):
        own.open(target.target, Run())


@pytest.mark.parametrize(
    ("settings", "before", "after"),
    [
        ({"message.timestamp.after.max.ms": "1000"}, 2**63 - 1, 1_000),
        ({"message.timestamp.before.max.ms": "2000"}, 2_000, 3_600_000),
        ({"message.timestamp.type": "LogAppendTime"}, None, None),
    ],
)
def test_a_time_that_the_topic_does_not_take_is_rejected(
    into: Make, topic: Any, settings: dict[str, str], before: int | None, after: int | None
) -> None:
    """The broker would refuse all records that are sent with it."""
    target = into()
    name = topic(config=settings)
    rules = CheckpointTopic.of(target.sink.cluster(), target.target).about(name).rules()
    assert (rules.before, rules.after) == (before, after)
    routing = Routing(target.sink, lambda _: rules, MESSAGES)
    now = time.time_ns() // 1_000_000
    routing._check(Outgoing(name, b"{}", timestamp=now))
    for distance, most in ((-10_000, before), (4_000_000, after)):
        record = Outgoing(name, b"{}", timestamp=now + distance)
        if most is None or most > abs(distance):
            routing._check(record)
        else:
            with pytest.raises(RejectedRecord, match=r"message.timestamp.\w+.max.ms \d+"):
                routing._check(record)


def test_rejected_records_are_part_of_the_commit_and_wait_for_a_replay(into: Make) -> None:
    target = into()
    piece = OffsetSlice("0", 0, 3)
    session, _ = target.begun(piece)
    refused = Rejection(1, "step", "cast: no number", b'{"a": "x"}', key=b"k")
    for complete in (False, True):
        writer = target.sink.writer(session.ticket(), piece)
        writer.write(replace(chunk([Sent(b"{}")]), rejected=[refused], seen=3))
        if complete:
            assert writer.close(complete=False).totals.rejected == 1
        else:
            writer.abort()
    (message,) = target.records(f"{target.topic}.rejected")
    assert dict(message.headers() or ())["flow"] == b"default/flow"
    (entry,) = target.sink.rejected_entries().pending("default/flow", None, 10)
    assert (message.key() or b"").decode() == entry.id
    assert (entry.body, entry.key, entry.stage) == (refused.body, b"k", "step")
    assert target.sink.rejected_entries().pending("default/other", None, 10) == []
    target.sink.rejected_entries().mark_replayed([entry])
    assert target.sink.rejected_entries().pending("default/flow", None, 10) == []


def test_an_error_sink_of_the_same_cluster_shares_the_commit(into: Make) -> None:
    target, errors = into(), into()
    target.target = replace(target.target, rejects=Rejects("errors", errors.sink))
    errors.sink.error_store().prepare()
    piece = OffsetSlice("0", 0, 3)
    session, _ = target.begun(piece)
    refused = Rejection(1, "step", "cast: no number", b'{"a": "x"}')
    for close in (False, True):
        writer = target.sink.writer(session.ticket(), piece)
        writer.write(replace(chunk([Sent(b"{}")]), rejected=[refused], seen=3))
        writer.close(complete=False) if close else writer.abort()
    (message,) = errors.records()
    assert json.loads(message.value() or b"")["error"]["message"] == "cast: no number"


def test_an_entry_that_a_crash_stored_twice_waits_once_and_is_replayed_for_good(into: Make) -> None:
    errors = into()
    store = errors.sink.error_store()
    refused = Rejection(1, "step", "cast: no number", b'{"a": "x"}')
    record = error_record(errors.target, OffsetSlice("0", 0, 3), refused)
    held = replace(errors.target, rejects=Rejects("errors", errors.sink, holds=True))
    store.store([record, record, error_record(held, OffsetSlice("0", 0, 3), refused)])
    (entry,) = store.pending("default/flow", None, 10)
    store.mark_replayed([entry])
    store.store([record])
    assert store.pending("default/flow", None, 10) == []


def test_an_error_sink_of_several_partitions_gives_the_oldest_entries_first(into: Make) -> None:
    errors = into(partitions=4)
    piece, store = OffsetSlice("0", 0, 20), errors.sink.error_store()
    refused = [Rejection(offset, "sink", "why", b"%d" % offset) for offset in range(20)]
    store.store([error_record(errors.target, piece, one) for one in refused])
    found = [one.body for one in store.pending("default/flow", None, 15)]
    assert found == [one.body for one in refused[:15]]


def test_records_that_others_keep_in_the_topic_hold_up_no_replay(
    kafka: devservers.Kafka, into: Make
) -> None:
    errors = into()
    piece, store = OffsetSlice("0", 0, 1), errors.sink.error_store()
    store.store([error_record(errors.target, piece, Rejection(0, "sink", "why", b"0"))])
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for value in (b"another program's", None):
        producer.produce(errors.topic, value, b"\xff\xfe", headers={"reading": b"a novel"})
    producer.flush(30)
    assert [one.body for one in store.pending("default/flow", None, 15)] == [b"0"]


def test_a_compacted_topic_is_no_error_sink(into: Make) -> None:
    errors = into(config={"cleanup.policy": "compact"})
    until = time.monotonic() + 30

    def prepare() -> None:
        while time.monotonic() < until:  # a broker knows the settings of a new topic a bit later
            errors.sink.error_store().prepare()

    with pytest.raises(PermanentError, match="would forget which entries"):
        prepare()


def test_a_flow_that_stops_at_a_record_commits_nothing_of_it(into: Make) -> None:
    target = into(keyField="id")
    target.target = replace(target.target, rejects=Rejects("fail"))
    with pytest.raises(Stopped, match="offset 1"):
        target.put([Sent(b'{"id": 1}'), Sent(b"{}")])
    assert target.values() == []


def test_a_missing_topic_is_told_or_made(kafka: devservers.Kafka, into: Make) -> None:
    target = into()
    name = f"{target.topic}-made"
    absent = Into(kafka, name)
    session = absent.open()
    assert session.table.schema() is None
    with pytest.raises(PermanentError, match="create it, or set autoCreateTopic: true"):
        session.table.create(pa.schema([]))
    session.close()
    made = Into(kafka, name, autoCreateTopic=True, topicPartitions=3, upsertMode=True)
    session = made.open()
    session.table.create(pa.schema([]))
    topic_admin = TopicAdmin(Cluster(kafka.bootstrap), name)
    assert session.table.identity == topic_admin.topic().id
    assert topic_admin.topic().partitions == 3
    assert topic_admin.rules().compacted
    session.close()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.delete_topics([name])[name].result(20)
