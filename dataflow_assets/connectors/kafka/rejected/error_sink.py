"""Rejected records in a topic: an error sink, or the topic beside a target.

A record's key is the entry's id, its value the error record, its headers flow and metadata. A
record without value says that the entry of its key has had its replay, and counts wherever it
stands: an entry that a crash has stored twice waits once. It counts for the reading of the source
that its header names, and for earlier ones: what is rejected again after a rewind waits again. So
the topic is kept for ever, and is not compacted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from typing_extensions import override

from dataflow_assets import failpoints
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.create_topic import BROKERS_OWN, KafkaRules, TopicAdmin
from dataflow_assets.connectors.kafka.errors import meaning, prefix_errors
from dataflow_assets.connectors.kafka.headers import headers
from dataflow_assets.connectors.kafka.peek import Peek
from dataflow_assets.connectors.kafka.producer import SETTINGS
from dataflow_assets.connectors.kafka.shared_client import CLIENT
from dataflow_assets.connectors.kafka.values import Outgoing
from dataflow_assets.contracts import Entry, ErrorRecord, ErrorStore
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.sdk.rejected_records import entry, waiting

STORE_SECONDS = 60.0
MOST_BYTES = 32 * 1024 * 1024
_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(MOST_BYTES),  # an error record is larger than the record in it
}
_READING = "reading"
_ONE_PARTITION = 1  # entries are replayed in the order in which they were rejected


def prepare_topic(admin: TopicAdmin, replicas: int | None) -> None:
    """Makes the topic where it is missing, and checks that it keeps what it gets."""
    if admin.find() is None:
        admin.make(_ONE_PARTITION, replicas or BROKERS_OWN, _CONFIG)
    elif admin.rules().compacted:
        raise PermanentError(
            f"topic {admin.name} on kafka {admin.bootstrap} is compacted: it would forget which "
            "entries have been replayed; set its cleanup.policy to delete, or name another topic"
        )


def outgoing(topic: str, one: ErrorRecord, rules: KafkaRules | None) -> Outgoing:
    """The entry as a record. Raises PermanentError where it is larger than the topic takes."""
    reading = str(one.reading).encode()
    headers = [("flow", one.flow.encode()), ("metadata", one.metadata), (_READING, reading)]
    record = Outgoing(topic, one.body, one.id.encode(), headers)
    if rules is not None and record.size > rules.most_bytes:
        raise PermanentError(
            f"the error record {one.id} has {record.size} bytes, more than topic {topic} takes: "
            f"raise its max.message.bytes, now {rules.most_bytes}"
        )
    return record


def _is_of(message: Message, flow: str) -> bool:
    return dict(headers(message)).get("flow") == flow.encode()


def _reading(message: Message) -> int:
    """In which reading of its source the record was rejected; an earlier version names none."""
    values = dict(headers(message)).get(_READING)
    return int(values) if values and values.isdigit() else 0  # another program may use the name


class KafkaErrors(ErrorStore):
    """Entries in one topic: at least once across a crash, always under the same id."""

    def __init__(self, cluster: Cluster, topic: str, replicas: int | None = None) -> None:
        self.cluster, self.topic = cluster, topic
        self._replicas = replicas

    @override
    def prepare(self) -> None:
        with (
            prefix_errors(f"preparing the error sink {self.topic}"),
            closing(self._topic_admin()) as admin,
        ):
            prepare_topic(admin, self._replicas)

    @override
    def store(self, records: Sequence[ErrorRecord]) -> None:
        failpoints.reach("kafka.errors")
        with prefix_errors(f"storing rejected records in the error sink {self.topic}"):
            with closing(self._topic_admin()) as admin:
                rules = admin.rules()
            self._send([outgoing(self.topic, one, rules) for one in records])
        failpoints.reach("kafka.errors-stored")

    @override
    def pending(self, flow: str, since: datetime | None, most: int) -> list[Entry]:
        latest: dict[bytes, tuple[int, Message]] = {}
        done: dict[bytes, int] = {}
        for message in self._messages():
            name, reading = message.key() or b"", _reading(message)
            if message.value() is None:
                done[name] = max(reading, done.get(name, 0))
            elif _is_of(message, flow) and reading > latest.get(name, (-1, None))[0]:
                latest[name] = reading, message
        # A topic that somebody else has made may have several partitions.
        entries = (
            entry(message.value() or b"")
            for name, (reading, message) in latest.items()
            if reading > done.get(name, -1)
        )
        return waiting(entries, since, most)

    @override
    def mark_replayed(self, entries: Sequence[Entry]) -> None:
        failpoints.reach("kafka.replayed")
        headed = ((one.id.encode(), [(_READING, str(one.reading).encode())]) for one in entries)
        self._send([Outgoing(self.topic, None, key, headers) for key, headers in headed])

    def _messages(self) -> Iterator[Message]:
        """All of them, partition by partition; none where there is no topic yet."""
        with closing(self._topic_admin()) as admin:
            topic = admin.find()
        if topic is None:
            return
        peek = Peek(self.cluster, self.topic)
        try:
            for partition in range(topic.partitions):
                yield from peek.records(partition)
        finally:
            peek.close()

    def _send(self, records: Sequence[Outgoing]) -> None:
        refused: list[KafkaError] = []
        own = {
            "enable.idempotence": True,
            "message.max.bytes": 1_000_000_000,
            "on_delivery": lambda error, _: refused.append(error),
        }
        producer = Producer(CLIENT | SETTINGS | self.cluster.settings | own)
        try:
            for one in records:
                producer.produce(one.topic, one.value, one.key, headers=list(one.headers))
            left = producer.flush(STORE_SECONDS)
        except KafkaException as error:
            refused.append(error.args[0])
        finally:
            del producer  # or an error on its way would keep the connection
        where = f"kafka {self.cluster.bootstrap}: writing to {self.topic}"
        if refused:
            raise meaning(refused[0], where)
        if left:
            raise TransientError(f"{where}: {left} records are still on their way")

    def _topic_admin(self) -> TopicAdmin:
        return TopicAdmin(self.cluster, self.topic)
