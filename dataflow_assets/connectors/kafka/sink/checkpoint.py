"""Reads what a branch has stored in its side topic, and makes the topic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from dataflow_assets.connectors.kafka.client import PATIENCE
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.create_topic import BROKERS_OWN, TopicAdmin
from dataflow_assets.connectors.kafka.sink.checkpoint_records import (
    FAMILY,
    KafkaHead,
    KafkaStored,
    PartitionCheckpoint,
    load_checkpoint,
    load_head,
    side_topic,
)
from dataflow_assets.connectors.kafka.sink.last_record import Last, Readers
from dataflow_assets.connectors.kafka.warm_clients import WarmClients
from dataflow_assets.contracts import Checkpoint, Target
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.sdk.record_ids import REPLAY
from dataflow_assets.sdk.sink.decide import checkpoint_removed, taken_over

Record = TypeVar("Record")

LOOK_SECONDS = 2.0  # how long a look waits for a commit that is on its way
WAIT_SECONDS = 20.0  # the same where the commit is our own
_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024 * 1024),
    "max.message.bytes": str(16 * 1024 * 1024),  # a replay's position names all its entries
}


class _KafkaKept(threading.local):
    """What a thread has used stays warm for its next session."""

    def __init__(self) -> None:
        self.connections = WarmClients[tuple[TopicAdmin, Readers]](
            refused=lambda one: one[0].is_denied
        )


_kept = _KafkaKept()


class CheckpointTopic:
    """One branch's side topic."""

    def __init__(self, admin: TopicAdmin, readers: Readers, target: Target) -> None:
        self._readers, self._target = readers, target
        self._topic_admin = admin
        self.topic = admin.name

    @classmethod
    def of(cls, cluster: Cluster, target: Target) -> CheckpointTopic:
        """With a warm connection, if this thread has had one."""
        admin, readers = _kept.connections.of(
            cluster, lambda: (TopicAdmin(cluster, ""), Readers.of(cluster))
        )
        return cls(admin.about(side_topic(target)), readers, target)

    def about(self, topic: str) -> TopicAdmin:
        """The same connection, to be asked about another topic."""
        return self._topic_admin.about(topic)

    def prepare(self) -> None:
        """Makes the topic where it is missing."""
        if self._topic_admin.find() is None:
            self._topic_admin.make(1, BROKERS_OWN, _CONFIG)

    def grow(self, head: KafkaHead) -> None:
        self._topic_admin.grow(1 + len(head.slots))

    def look(self) -> KafkaStored | None:
        """All of it, as far as it is decided within a moment; None where there is nothing."""
        if self._topic_admin.find() is None:
            return None
        found = self._last([0], LOOK_SECONDS)[0]
        if found.value is None:
            return None
        head = load_head(found.value)
        return KafkaStored(head, self.checkpoints(head, LOOK_SECONDS)[0])

    def head(self) -> KafkaHead | None:
        """The head, once what is on its way has arrived; None for a new branch.

        Raises TransientError where a driver's transaction stays open.
        """
        return self._settled_record(0, load_head)

    def replayed_head(self) -> KafkaHead | None:
        """The head of the branch whose rejected records this one takes back, if it does."""
        if not self._target.branch.endswith(REPLAY):
            return None
        flow = replace(self._target, branch=self._target.branch.removesuffix(REPLAY))
        found = CheckpointTopic(self.about(side_topic(flow)), self._readers, flow).look()
        return None if found is None else found.head

    def checkpoint(self, slot: int) -> PartitionCheckpoint | None:
        """The checkpoint of a slot whose writers are all fenced."""
        return self._settled_record(slot, load_checkpoint)

    def checkpoints(
        self, head: KafkaHead, patience: float
    ) -> tuple[dict[str, PartitionCheckpoint], list[str]]:
        """By source partition; and the partitions whose last transaction is not decided yet."""
        names = {slot: name for name, slot in head.slots.items()}
        found = self._last(names, patience)
        checkpoints = {
            names[slot]: load_checkpoint(one.value) for slot, one in found.items() if one.value
        }
        return checkpoints, [names[slot] for slot, one in found.items() if not one.settled]

    def owned_head(self, epoch: int) -> KafkaHead:
        """The head, which must carry this epoch; TakenOver when another run has it."""
        head = self.head()
        if head is None:
            raise self._removal()
        if head.epoch != epoch:
            raise taken_over(self._target.flow, head.owner)
        return head

    def others(self, topic: str) -> dict[str, str]:
        """Other flows into the topic of this id; for each how its checkpoint is removed."""
        replays = replace(self._target, branch=f"{self._target.branch}{REPLAY}")
        mine = {side_topic(self._target), side_topic(replays)}
        found = {}
        with self._readers.lend() as reader:
            heads = reader.heads(set(self._topic_admin.names(FAMILY)) - mine)
        for name, value in sorted(heads.items()):
            head = load_head(value)
            if head.target == topic and head.flow != self._target.flow:
                found[head.flow or name] = f"delete topic {name}"
        return found

    def _settled_record(self, partition: int, load: Callable[[bytes], Record]) -> Record | None:
        found = self._last([partition], WAIT_SECONDS)[partition]
        if not found.settled:
            raise self.open_transaction(partition)
        return None if found.value is None else load(found.value)

    def open_transaction(self, partition: int) -> TransientError:
        """For whoever must know all that was committed in a partition of the topic."""
        return TransientError(
            f"a transaction of flow {self._target.flow} is still open in partition {partition} "
            f"of topic {self.topic}: a driver is about to take it over, or has died just now"
        )

    def _last(self, partitions: Iterable[int], patience: float) -> dict[int, Last]:
        try:
            with self._readers.lend() as reader:
                return reader.last(self._topic_admin, list(partitions), patience)
        except (TransientError, PermanentError) as error:
            # Without the topic there is nothing to wait for.
            raise (error if self._topic_admin.find(PATIENCE) else self._removal()) from error

    def _removal(self) -> PermanentError:
        return checkpoint_removed(self._target.flow, f"topic {self.topic}")


def peek(cluster: Cluster, target: Target) -> Checkpoint | None:
    """The stored checkpoint, as far as it is decided; no epoch is taken."""
    stored = CheckpointTopic.of(cluster, target).look()
    return stored.state.for_readers if stored and stored.state.is_known else None
