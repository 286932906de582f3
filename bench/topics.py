"""One topic into another: by the plain client, and through the product's own loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

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


def copy_all(places: Places, source: str, target: str) -> None:
    """Consumed and produced by the plain client, each partition by a process of its own."""
    ends = [places.bootstrap, source, target]
    side_by_side([[COPY, *ends, str(number)] for number in range(PARTITIONS)])


def copy(bootstrap: str, source: str, target: str, partition: str) -> None:
    """One partition, idempotent and acknowledged by all, without transactions."""
    producer = Producer({"bootstrap.servers": bootstrap, **WRITE})
    for messages in _read(bootstrap, source, [int(partition)]):
        for message in messages:
            _produce(producer, target, message.value(), message.key())
        producer.poll(0)
    assert producer.flush(60) == 0


def _produce(producer: Producer, topic: str, value: bytes | None, key: bytes | None) -> None:
    while True:
        try:
            producer.produce(topic, value, key)
        except BufferError:
            producer.poll(0.01)
        else:
            return


def bodies(bootstrap: str, topic: str, partition: int, most: int) -> Iterator[list[bytes]]:
    """One partition to its end; lists of about so many messages, the last one of fewer."""
    found: list[bytes] = []
    for messages in _read(bootstrap, topic, [partition]):
        found += [message.value() or b"" for message in messages]
        if len(found) >= most:
            yield found
            found = []
    if found:
        yield found


def sink(places: Places, topic: str) -> KafkaSink:
    """The same topic as a flow writes it."""
    return KafkaSink(brokers=(places.bootstrap,), topic=topic)


def check(places: Places, topic: str, count: int) -> None:
    """As many committed records as were sent."""
    read = _read(places.bootstrap, topic, range(PARTITIONS))
    seen = sum(len(messages) for messages in read)
    assert seen == count, f"{topic}: {seen} of {count}"


def _read(bootstrap: str, topic: str, partitions: Iterable[int]) -> Iterator[list[Message]]:
    """Partitions to their ends, by the plain client, a list of messages at a time."""
    consumer = Consumer({"bootstrap.servers": bootstrap, **READ})
    places = [TopicPartition(topic, number, 0) for number in partitions]
    consumer.assign(places)
    ended = 0
    while ended < len(places):
        found = consumer.consume(10_000, WAIT)
        messages = [message for message in found if not _ends(message.error())]
        ended += len(found) - len(messages)
        yield messages
    consumer.close()


def _ends(error: KafkaError | None) -> bool:
    assert error is None or error.code() == KafkaError._PARTITION_EOF, error  # noqa: SLF001
    return error is not None
