"""The topic that a session has opened: never another one of its name, with all of its partitions.

Its description is asked for again when it is old: for one topic, or for those of many sessions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from dataflow_assets.connectors.kafka.client import PATIENCE, KafkaBroker, Place, Topic
from dataflow_assets.connectors.kafka.topics import Offsets, describe, offsets
from dataflow_assets.errors import DataflowError, outcome

SECONDS = 2.0  # how old the number of partitions may be; tasks ask for the id again


class CurrentTopic:
    """One topic and the connection to its cluster."""

    def __init__(self, broker: KafkaBroker, topic: Topic) -> None:
        self.broker = broker
        self._topic = topic
        self._described = time.monotonic()

    @property
    def id(self) -> str:
        return self._topic.id

    @property
    def is_old(self) -> bool:
        """Returns whether its description is to be asked for again."""
        return time.monotonic() - self._described > SECONDS

    def now(self) -> Topic:
        """With the partitions it has by now. Raises TransientError once the topic was made anew."""
        return self.renew(self.broker.topic()) if self.is_old else self._topic

    def renew(self, found: Topic | DataflowError | None) -> Topic:
        """Takes an answer that another question has brought; None: nobody had to ask."""
        if isinstance(found, DataflowError):
            raise found
        if found is not None:
            self._topic = self.broker.same_topic(found, self.id)
            self._described = time.monotonic()
        return self._topic


def list_offsets(
    topics: Sequence[CurrentTopic], *places: Place
) -> list[list[Offsets] | DataflowError]:
    """For each topic, and each of the places, the offset of every partition; asked for together."""
    old = [one for one in topics if one.is_old]
    brokers = [one.broker for one in old]  # they were there: one broker may not have heard of it
    renewed = dict(zip(old, describe(brokers, PATIENCE), strict=True))
    current = [outcome(partial(one.renew, renewed.get(one))) for one in topics]
    known_topics = [
        (one.broker, topic)
        for one, topic in zip(topics, current, strict=True)
        if isinstance(topic, Topic)
    ]
    answers = iter(offsets(known_topics, *places))
    return [next(answers) if isinstance(one, Topic) else one for one in current]
