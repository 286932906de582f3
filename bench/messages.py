"""The messages that are measured: made by rule, so that every number of them is the same again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

PARTITIONS = 2
BATCH = 50_000

MESSAGE = (
    b'{"id":%d,"customer":"c-%d","amount":%d.%02d,"at":"2026-11-21T10:%02d:%02dZ",'
    b'"quantity":%d,"address":{"city":"Berlin","zip":"%05d"}}'
)
ROW = b'%d,c-%d,%d.%02d,2026-11-21T10:%02d:%02dZ,%d,"{""city"":""Berlin"",""zip"":""%05d""}"\n'


def values(number: int) -> tuple[int, ...]:
    """What message `number` holds, in the order of both templates."""
    minute, second = number // 60 % 60, number % 60
    return (
        number,
        number % 10_000,
        number % 1_000,
        number % 100,
        minute,
        second,
        number % 10,
        number % 99_999,
    )


def json_body(number: int) -> bytes:
    """Message `number` as JSON."""
    return MESSAGE % values(number)


def bodies(first: int, count: int) -> Iterator[bytes]:
    """Messages `first` and on."""
    return (MESSAGE % values(number) for number in range(first, first + count))


def filled(
    bootstrap: str,
    topic: str,
    count: int,
    body: Callable[[int], bytes] = json_body,
    partitions: int = PARTITIONS,
) -> float:
    """Makes a topic with so many messages, unless it is there; the seconds it took."""
    admin = _admin(bootstrap)
    if topic in admin.list_topics(timeout=10).topics and _ends(admin, topic, partitions) == count:
        return 0.0
    create(bootstrap, topic, partitions)
    return Filler(bootstrap, topic, body, partitions).send(count)


def _ends(admin: AdminClient, topic: str, partitions: int) -> int:
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, number): latest for number in range(partitions)}
    return sum(found.result(10).offset for found in admin.list_offsets(asked).values())


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})


def create(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    """Makes the topic anew."""
    drop(bootstrap, topic)
    admin = _admin(bootstrap)
    new = NewTopic(topic, partitions, 1)
    while failure := admin.create_topics([new])[topic].exception(30):
        assert _code(failure) == KafkaError.TOPIC_ALREADY_EXISTS, failure
        time.sleep(0.1)  # the old one is not gone yet


def drop(bootstrap: str, topic: str) -> None:
    """Deletes the topic, if it is there."""
    admin = _admin(bootstrap)  # it must live until it has answered
    failure = admin.delete_topics([topic])[topic].exception(30)
    assert failure is None or _code(failure) == KafkaError.UNKNOWN_TOPIC_OR_PART, failure


def _code(failure: BaseException) -> int:
    code: int = failure.args[0].code()
    return code


class Filler:
    """Sends messages to a topic, the even numbers to partition 0."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        body: Callable[[int], bytes] = json_body,
        partitions: int = PARTITIONS,
    ) -> None:
        self._topic, self._body, self._partitions = topic, body, partitions
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 20,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 4 * BATCH,
            }
        )

    def send(self, count: int) -> float:
        """The next messages; the seconds it took until the broker had them all."""
        begun = time.monotonic()
        numbers = iter(range(self._sent, self._sent + count))
        while batch := list(islice(numbers, BATCH)):
            self._send(batch)
        self._producer.flush()
        self._sent += count
        return time.monotonic() - begun

    def _send(self, numbers: list[int]) -> None:
        for partition in range(self._partitions):
            mine = numbers[partition :: self._partitions]
            batch = [{"value": self._body(number)} for number in mine]
            self._room(len(batch))
            sent = self._producer.produce_batch(self._topic, batch, partition=partition)
            assert sent == len(batch), "the producer's queue is too short"

    def _room(self, count: int) -> None:
        while len(self._producer) + count > 4 * BATCH:
            self._producer.poll(0.01)


def write_rows(folder: Path, count: int) -> list[Path]:
    """The rows of the messages as CSV for COPY, one file per partition."""
    files = [folder / f"rows-{count}-{partition}.csv" for partition in range(PARTITIONS)]
    for partition, file in enumerate(files):
        with file.open("wb") as out:
            out.writelines(ROW % values(number) for number in range(partition, count, PARTITIONS))
    return files
