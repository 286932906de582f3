"""One topic into another: by the plain client, and through the product's own loop."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # untyped

from bench.bounds import side_by_side
from bench.messages import PARTITIONS
from bench.places import Places
from dataflow_assets.connectors.kafka import KafkaSink

# A partition in a process of its own, as a user's program would be.
COPY = "from bench.topics import copy; import sys; copy(*sys.argv[1:])"
READ = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.message.max.bytes": 16 << 20,
    "queued.max.messages.kbytes": 128 << 10,
    "fetch.queue.backoff.ms": 5,
}
WAIT = 0.1  # seconds for so many messages: the last ones are fewer
WRITE = {"enable.idempotence": True, "linger.ms": 20, "partitioner": "murmur2_random"}


def fresh(places: Places, topic: str) -> None:
    """The topic without a record."""
    drop(places, topic)
    admin = _admin(places)
    while failure := admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].exception(30):
        assert _code(failure) == KafkaError.TOPIC_ALREADY_EXISTS, failure
        time.sleep(0.1)  # the old one is not gone yet


def drop(places: Places, topic: str) -> None:
    """The topic is gone, or soon will be."""
    admin = _admin(places)  # it ends with its last reference, and with it what it was asked
    failure = admin.delete_topics([topic])[topic].exception(30)
    assert failure is None or _code(failure) == KafkaError.UNKNOWN_TOPIC_OR_PART, failure


def _admin(places: Places) -> AdminClient:
    return AdminClient({"bootstrap.servers": places.bootstrap, "log_level": 0})


def _code(failure: BaseException) -> int:
    code: int = failure.args[0].code()
    return code


def copy_all(places: Places, source: str, target: str) -> None:
    """Consumed and produced by the plain client, each partition by a process of its own."""
    ends = [places.bootstrap, source, target]
    side_by_side([[COPY, *ends, str(number)] for number in range(PARTITIONS)])


def copy(bootstrap: str, source: str, target: str, partition: str) -> None:
    """One partition, idempotent and acknowledged by all, without transactions."""
    producer = Producer({"bootstrap.servers": bootstrap, **WRITE})
    consumer = Consumer({"bootstrap.servers": bootstrap, **READ})
    consumer.assign([TopicPartition(source, int(partition), 0)])
    ended = False
    while not ended:
        for message in consumer.consume(10_000, WAIT):
            ended = _ends(message.error())
            if not ended:
                _produce(producer, target, message.value(), message.key())
        producer.poll(0)
    assert producer.flush(60) == 0
    consumer.close()


def _produce(producer: Producer, topic: str, value: bytes | None, key: bytes | None) -> None:
    while True:
        try:
            producer.produce(topic, value, key)
        except BufferError:
            producer.poll(0.01)
        else:
            return


def bodies(bootstrap: str, topic: str, partition: int, most: int) -> Iterator[list[bytes]]:
    """One partition to its end, by the plain client; lists of about so many messages."""
    consumer = Consumer({"bootstrap.servers": bootstrap, **READ})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes] = []
    ended = False
    while not ended:
        for message in consumer.consume(10_000, WAIT):
            ended = _ends(message.error())
            found += [] if ended else [message.value() or b""]
        if found and (ended or len(found) >= most):
            yield found
            found = []
    consumer.close()


def sink(places: Places, topic: str) -> KafkaSink:
    """The same topic as a flow writes it."""
    return KafkaSink(brokers=(places.bootstrap,), topic=topic)


def check(places: Places, topic: str, count: int) -> None:
    """As many committed records as were sent."""
    consumer = Consumer({"bootstrap.servers": places.bootstrap, **READ})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    seen = ended = 0
    while ended < PARTITIONS:
        ends = [_ends(message.error()) for message in consumer.consume(10_000, WAIT)]
        ended += sum(ends)
        seen += len(ends) - sum(ends)
    consumer.close()
    assert seen == count, f"{topic}: {seen} of {count}"


def _ends(error: KafkaError | None) -> bool:
    assert error is None or error.code() == KafkaError._PARTITION_EOF, error  # noqa: SLF001
    return error is not None
