"""Questions to a cluster about one topic, and the offsets of a consumer group.

Every question ends within seconds: with an answer, with PermanentError when a person must act, or
with TransientError that carries the brokers and the client's own words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import closing
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ListOffsetsResultInfo,
    OffsetSpec,
)

from dataflow_assets.connectors.kafka.client_errors import ClientErrors
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.consumer_group import KafkaCommitted, KafkaGroup
from dataflow_assets.connectors.kafka.consumer_groups import KafkaGroups
from dataflow_assets.connectors.kafka.errors import MISSING, code, raise_if_lost, settles, translate
from dataflow_assets.connectors.kafka.shared_client import KafkaClient
from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from dataflow_assets.errors.likely_names import suggestion

Answer = TypeVar("Answer")
Place = OffsetSpec
EARLIEST: Place = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Place = OffsetSpec.latest()  # type: ignore[no-untyped-call]

TIMEOUT = 8.0  # seconds for one question
STEP = 0.2  # seconds between two looks at the errors of the client
PATIENCE = 2.0  # seconds in which a topic just made, or a leader just chosen, settles
LOADING = 10.0  # seconds in which a coordinator has read what its groups have stored


@dataclass(frozen=True)
class Topic:
    """The topic itself, as opposed to its name."""

    id: str
    partitions: int


@dataclass(frozen=True)
class KafkaBounds:
    """Bounds by partition: first offset, end, and how often it has had another leader."""

    lows: dict[int, int]
    ends: dict[int, int]
    epochs: dict[int, int]


class KafkaBroker:
    """A warm connection to the cluster that holds the topic."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.name = topic
        self._groups: KafkaGroups | None = None

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @cached_property
    def _client(self) -> KafkaClient:
        """It has no `close`: it ends with the last reference, so nothing else may keep one."""
        return KafkaClient.of(self.cluster)

    @property
    def admin(self) -> AdminClient:
        return self._client.admin

    @property
    def is_denied(self) -> bool:
        """Returns whether the client's login was refused: it would try again by itself."""
        self._hear()
        return self._client_errors.is_denied

    @property
    def _client_errors(self) -> ClientErrors:
        return self._client.client_errors

    def topic(self, patience: float = PATIENCE) -> Topic:
        def ask() -> Topic:
            futures = self.admin.describe_topics(
                TopicCollection([self.name]), request_timeout=TIMEOUT
            )
            description = self.wait_for(futures[self.name])
            return Topic(str(description.topic_id), len(description.partitions))

        return self._patiently("describing the topic", ask, patience)

    def same(self, identity: str) -> Topic:
        """The topic as it is now. Raises TransientError when it is another one by now."""
        return self.same_topic(self.topic(), identity)

    def same_topic(self, found: Topic, identity: str) -> Topic:
        """The topic that was found. Raises TransientError when it is another one by now."""
        if found.id != identity:
            raise TransientError(f"topic {self.name} was recreated while it was read")
        return found

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """The ids of several topics by one request; one that cannot be described is left out.

        Raises TransientError, or PermanentError, where the cluster does not answer at all.
        """

        def ask() -> dict[str, str]:
            futures = self.admin.describe_topics(
                TopicCollection(list(topics)), request_timeout=TIMEOUT
            )
            return {
                name: str(topic_id) for name, one in futures.items() if (topic_id := self._id(one))
            }

        return self._patiently("describing topics such as", ask, PATIENCE)

    def about(self, topic: str) -> Self:
        other = copy(self)
        vars(other).update(name=topic, _groups=None, _client=self._client)
        return other

    def offsets(self, topic: Topic, *wanted: Place, committed: bool = True) -> list[list[int]]:
        """For each wanted spec the offset of every partition; all are asked for at once.

        The latest offset of `committed` records lies before the first open transaction.
        """
        partitions = self._partitions(topic)
        return self._list_offsets(partitions, wanted, committed=committed) if partitions else []

    def bounds(self, topic: Topic) -> KafkaBounds:
        """Returns where each partition begins and ends for readers of committed records."""
        lows, ends = self._ask_offsets(self._partitions(topic), [EARLIEST, LATEST], committed=True)
        epochs = {p: one.leader_epoch for p, one in enumerate(ends)}
        return KafkaBounds(
            {p: one.offset for p, one in enumerate(lows)},
            {p: one.offset for p, one in enumerate(ends)},
            {p: epoch for p, epoch in epochs.items() if epoch is not None},
        )

    def _list_offsets(
        self, partitions: Sequence[TopicPartition], wanted: Sequence[Place], *, committed: bool
    ) -> list[list[int]]:
        answers = self._ask_offsets(partitions, wanted, committed=committed)
        return [[one.offset for one in answer] for answer in answers]

    def _ask_offsets(
        self, partitions: Sequence[TopicPartition], wanted: Sequence[Place], *, committed: bool
    ) -> list[list[ListOffsetsResultInfo]]:
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

        def ask() -> list[list[ListOffsetsResultInfo]]:
            futures = [
                self.admin.list_offsets(
                    dict.fromkeys(partitions, spec), isolation_level=level, request_timeout=TIMEOUT
                )
                for spec in wanted
            ]
            return [self._in_order(answer) for answer in futures]

        return self._patiently("listing offsets", ask, PATIENCE)

    def committed_offsets(self, group: str, topic: Topic) -> dict[int, KafkaCommitted]:
        with closing(KafkaGroup(self._client.settings, group)) as client:
            partitions = range(topic.partitions)
            return self._patiently(
                f"reading the offsets of group {group} for",
                lambda: client.committed_offsets(self.name, partitions, TIMEOUT),
                LOADING,
            )

    def members(self, group: str, topic: Topic) -> list[str]:
        """Returns who reads the topic as a member of the group now: each one's client and host.

        The group's offsets are asked for first: that waits for a coordinator that is not ready.
        """
        self.committed_offsets(group, topic)

        def ask() -> list[str]:
            futures = self.admin.describe_consumer_groups([group], request_timeout=TIMEOUT)
            members = self.wait_for(futures[group]).members
            return [f"{one.client_id} at {one.host.lstrip('/')}" for one in members]

        return self._patiently(f"looking for members of group {group}", ask, PATIENCE)

    def commit(
        self,
        group: str,
        offsets: Mapping[int, int],
        mark: str,
        epochs: Mapping[int, int] | None = None,
    ) -> None:
        """Begins to store offsets for the group; what goes wrong is logged once, not raised."""
        if self._groups is None:
            self._groups = KafkaGroups.join(self.cluster, self._client.settings)
        self._groups.commit(group, self.name, offsets, mark, epochs or {})

    def close(self) -> None:
        """Waits for the group's answers and frees the connections; safe twice."""
        groups, self._groups = self._groups, None
        if groups is not None:
            groups.leave(self.name)
        vars(self).pop("_client", None)

    def _partitions(self, topic: Topic) -> list[TopicPartition]:
        return [TopicPartition(self.name, number) for number in range(topic.partitions)]

    def _patiently(self, what: str, ask: Callable[[], Answer], patience: float) -> Answer:
        deadline = time.monotonic() + patience
        while True:
            try:
                answer = ask()
            except (KafkaException, FutureTimeout) as error:
                if not settles(error) or time.monotonic() >= deadline:
                    raise self.meaning(what, error) from error
                time.sleep(0.1)
            else:
                self.note_answer()
                return answer

    def meaning(self, what: str, error: Exception) -> DataflowError:
        """Returns what the client's error means for the engine; `what` was tried with the topic."""
        self._hear()
        if code(error) in MISSING:
            return PermanentError(
                f"topic {self.name} does not exist on kafka {self.bootstrap}; create it, or "
                f"correct topic{self.probably()}"
            )
        where = f"kafka {self.bootstrap}: {what} {self.name}"
        return self._client_errors.explain(translate(error, where, self._client_errors.last))

    def probably(self) -> str:
        """The name that was probably meant, for the end of a message: nothing, or a clause."""
        return suggestion(self._client.alike(self.name))

    def note_answer(self) -> None:
        """The cluster has answered: errors of before are over."""
        self._hear()
        self._client_errors.forget()

    def _hear(self) -> None:
        """Lets the client call back; it keeps its errors until it is asked."""
        self.admin.poll(0)

    def wait_for(self, asked: Future[Any], deadline: float | None = None) -> Any:
        """The answer. Raises PermanentError as soon as it is clear that none will come.

        Raises KafkaException where the client has made one up.
        """
        deadline = time.monotonic() + TIMEOUT + 1 if deadline is None else deadline
        while True:
            try:
                answer = asked.result(min(STEP, max(0.0, deadline - time.monotonic())))
            except FutureTimeout:
                self.raise_if_refused()
                if time.monotonic() >= deadline:
                    raise
            else:
                raise_if_lost(answer)
                return answer

    def raise_if_refused(self) -> None:
        """Raises PermanentError where the cluster refuses the client: nobody needs to wait."""
        self._hear()
        if (refusal := self._client_errors.refusal()) is not None:
            raise refusal

    def _id(self, asked: Future[Any]) -> Any:
        try:
            return self.wait_for(asked).topic_id
        except KafkaException as error:
            if (code(error) or 0) > 0:  # below are the client's own
                return None
            raise

    def _in_order(self, asked: Mapping[TopicPartition, Future[Any]]) -> list[ListOffsetsResultInfo]:
        infos = {partition.partition: self.wait_for(answer) for partition, answer in asked.items()}
        return [infos[number] for number in sorted(infos)]
