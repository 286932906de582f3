"""Questions about many topics of one cluster at once: one request for all of them.

What is wrong with one topic is the answer about this topic, and does not touch the others.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition

from dataflow_assets.connectors.kafka.client import PATIENCE, TIMEOUT, KafkaBroker, Place, Topic
from dataflow_assets.connectors.kafka.errors import settles
from dataflow_assets.errors import DataflowError, PermanentError

Answer = TypeVar("Answer")
Key = TypeVar("Key")
Offsets = dict[int, int]


def describe(brokers: Sequence[KafkaBroker], patience: float) -> list[Topic | DataflowError]:
    """Each broker's topic as it is now; one that is not there may come for so many seconds."""

    def ask(names: Sequence[str]) -> dict[str, Topic | Exception]:
        collection = TopicCollection(list(names))
        futures = brokers[0].admin.describe_topics(collection, request_timeout=TIMEOUT)
        return {
            name: one
            if isinstance(one, Exception)
            else Topic(str(one.topic_id), len(one.partitions))
            for name, one in _outcomes(brokers[0], futures)
        }

    return _ask("describing the topic", brokers, ask, patience)


def offsets(
    topics: Sequence[tuple[KafkaBroker, Topic]], *places: Place, committed: bool = True
) -> list[list[Offsets] | DataflowError]:
    """For each topic, and for each of the places, the offset of every partition."""
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    sizes = {broker.name: topic.partitions for broker, topic in topics}

    def ask(names: Sequence[str]) -> dict[str, list[Offsets] | Exception]:
        admin = topics[0][0].admin
        partitions = [TopicPartition(name, p) for name in names for p in range(sizes[name])]
        futures = [
            admin.list_offsets(
                dict.fromkeys(partitions, place), isolation_level=level, request_timeout=TIMEOUT
            )
            for place in places
        ]
        return _by_topic([dict(_outcomes(topics[0][0], answers)) for answers in futures])

    return _ask("listing offsets", [broker for broker, _ in topics], ask, PATIENCE)


def _by_topic(
    answers: Sequence[Mapping[TopicPartition, Any]],
) -> dict[str, list[Offsets] | Exception]:
    """One partition that cannot be told makes its topic one that cannot be told."""
    by_topic = defaultdict[str, list[Offsets]](lambda: [{} for _ in answers])
    failed = dict[str, Exception]()
    for number, listed in enumerate(answers):
        for where, one in listed.items():
            if isinstance(one, Exception):
                failed[where.topic] = one
            else:
                by_topic[where.topic][number][where.partition] = one.offset
    return {**by_topic, **failed}


def _ask(
    what: str,
    brokers: Sequence[KafkaBroker],
    ask: Callable[[Sequence[str]], Mapping[str, Answer | Exception]],
    patience: float,
) -> list[Answer | DataflowError]:
    """The answers in the order of the brokers; what settles within seconds is asked again."""
    if not brokers:
        return []
    deadline = time.monotonic() + patience
    answers: dict[str, Answer | Exception] = {}
    left = list(dict.fromkeys(broker.name for broker in brokers))
    while True:
        answers |= ask(left)
        left = [n for n in left if isinstance(one := answers[n], Exception) and settles(one)]
        if not left or time.monotonic() >= deadline:
            break
        time.sleep(0.1)
    if not all(isinstance(one, Exception) for one in answers.values()):
        brokers[0].note_answer()
    return [_result(what, broker, answers[broker.name]) for broker in brokers]


def _result(what: str, broker: KafkaBroker, answer: Answer | Exception) -> Answer | DataflowError:
    if isinstance(answer, DataflowError):  # of all of them: each has one of its own to raise
        return type(answer)(*answer.args)
    return broker.meaning(what, answer) if isinstance(answer, Exception) else answer


def _outcomes(broker: KafkaBroker, asked: Mapping[Key, Future[Any]]) -> Iterator[tuple[Key, Any]]:
    deadline = time.monotonic() + TIMEOUT + 1
    for key, answer in asked.items():
        try:
            yield key, broker.wait_for(answer, deadline)
        except (KafkaException, FutureTimeout, PermanentError) as error:
            yield key, error
