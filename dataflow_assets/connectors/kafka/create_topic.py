"""Topics that this program makes, grows and empties, and what it must know to write to them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, untyped
    ClusterMetadata,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from dataflow_assets.connectors.kafka.client import LATEST, PATIENCE, TIMEOUT, KafkaBroker, Topic
from dataflow_assets.connectors.kafka.errors import code
from dataflow_assets.connectors.kafka.shared_client import LIST_SECONDS
from dataflow_assets.errors import PermanentError, TransientError

MADE = 20.0  # seconds in which every broker has heard of a new topic or partition
BROKERS_OWN = -1  # the broker's default for partitions and for replicas


@dataclass(frozen=True)
class KafkaRules:
    """Limits of a topic: bytes of a batch of records, and whether every record needs a key."""

    most_bytes: int
    compacted: bool
    deletable: bool
    before: int | None = None
    """Milliseconds by which a record's time may lie before that of its arrival; None: any."""
    after: int | None = None
    """The same behind it."""


def _most(settings: Mapping[str, str | None], way: str) -> int | None:
    if settings.get("message.timestamp.type") == "LogAppendTime":
        return None
    names = (f"message.timestamp.{way}.max.ms", "message.timestamp.difference.max.ms")
    text = next((settings[name] for name in names if settings.get(name)), None)
    return None if text is None else int(text)


class HiddenTopic(PermanentError):
    """This client may not see the topic, if there is one: brokers with rights do not say."""


class TopicAdmin(KafkaBroker):
    """One topic with everything that can be done to it; the name need not exist yet."""

    def find(self, patience: float = 0.0) -> Topic | None:
        """The topic as it is now; None while there is none, for as long as one just made needs."""
        deadline = time.monotonic() + patience
        while self.name not in self._listing():
            if time.monotonic() >= deadline:
                self._raise_if_hidden()
                return None
            time.sleep(0.1)
        return self.topic()

    def _listing(self) -> Mapping[str, object]:
        metadata: ClusterMetadata = self._patiently("looking for", self._list, 0)
        return metadata.topics

    def _list(self) -> ClusterMetadata:
        """In steps: the client is asked in between whether the cluster refuses it."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                return self.admin.list_topics(timeout=LIST_SECONDS)
            except KafkaException:
                self.raise_if_refused()
                if time.monotonic() >= deadline:
                    raise

    def _raise_if_hidden(self) -> None:
        """A topic that this client may not see is not listed: HiddenTopic says so."""
        futures = self.admin.describe_topics(TopicCollection([self.name]), request_timeout=TIMEOUT)
        try:
            self.wait_for(futures[self.name])
        except KafkaException as error:
            if code(error) == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise HiddenTopic(str(self.meaning("looking for", error))) from error
        except FutureTimeout:
            return

    def names(self, prefix: str) -> list[str]:
        """All topics that we may see whose names begin so."""
        return [name for name in self._listing() if name.startswith(prefix)]

    def make(self, partitions: int, replicas: int, config: Mapping[str, str]) -> Topic:
        """Makes the topic, unless another driver has just done so; returns once it can be used."""
        new = NewTopic(self.name, partitions, replicas, config=dict(config))
        self._change("making", lambda: self.admin.create_topics([new], request_timeout=TIMEOUT))
        return self.topic(MADE)

    def grow(self, partitions: int) -> None:
        """At least so many partitions; returns once they can be written to."""
        deadline = time.monotonic() + MADE
        new = NewPartitions(self.name, partitions)
        if self.topic().partitions < partitions:
            self._change("growing", lambda: self.admin.create_partitions([new]))
        while self.topic().partitions < partitions:
            if time.monotonic() > deadline:
                raise TransientError(
                    f"kafka {self.bootstrap}: topic {self.name} has not got its {partitions} "
                    f"partitions within {MADE:g} seconds"
                )
            time.sleep(0.05)

    def rules(self) -> KafkaRules:
        resource = ConfigResource(ResourceType.TOPIC, self.name)

        def ask() -> KafkaRules:
            (answer,) = self.admin.describe_configs([resource], request_timeout=TIMEOUT).values()
            settings = {name: entry.value for name, entry in answer.result(TIMEOUT + 1).items()}
            policies = (settings.get("cleanup.policy") or "delete").split(",")
            most = int(settings.get("max.message.bytes") or 1_048_588)
            before, after = (_most(settings, way) for way in ("before", "after"))
            return KafkaRules(most, "compact" in policies, "delete" in policies, before, after)

        return self._patiently("reading the configuration of", ask, PATIENCE)

    def highs(self, partitions: Iterable[int]) -> dict[int, int]:
        """The next offset of each of these partitions, whether a transaction is open or not."""
        places = [TopicPartition(self.name, number) for number in sorted(partitions)]
        (answers,) = self._list_offsets(places, [LATEST], committed=False) if places else [[]]
        return {place.partition: high for place, high in zip(places, answers, strict=True)}

    def empty(self, below: Mapping[int, int]) -> None:
        """Takes out all records below these offsets; may be repeated."""
        upto = [TopicPartition(self.name, p, offset) for p, offset in below.items()]

        def ask() -> None:
            for answer in self.admin.delete_records(upto, request_timeout=TIMEOUT).values():
                answer.result(TIMEOUT + 1)

        self._patiently("emptying", ask, PATIENCE)

    def _change(self, what: str, ask: object) -> None:
        """Runs a change of this topic; that it was made already is as good."""

        def run() -> None:
            (answer,) = ask().values()  # type: ignore[operator]
            try:
                answer.result(TIMEOUT + 1)
            except KafkaException as error:
                ignored = {KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS}
                if error.args[0].code() not in ignored:
                    raise

        self._patiently(what, run, PATIENCE)
