"""The driver's side of the Kafka sink: one epoch of one branch."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.kafka.client import EARLIEST, LATEST, PATIENCE, Topic
from dataflow_assets.connectors.kafka.create_topic import BROKERS_OWN
from dataflow_assets.connectors.kafka.options import KafkaSinkOptions
from dataflow_assets.connectors.kafka.rejected.error_sink import prepare_topic
from dataflow_assets.connectors.kafka.sink import key_spelling
from dataflow_assets.connectors.kafka.sink.checkpoint import CheckpointTopic
from dataflow_assets.connectors.kafka.sink.checkpoint_store import KafkaCheckpoints
from dataflow_assets.contracts import MESSAGES, ChecksTarget, Run, Target, TargetTable, Ticket
from dataflow_assets.sdk.sink.session import TransactionalSession


class KafkaSinkTarget(TargetTable, ChecksTarget):
    """The topic of one branch."""

    def __init__(self, sink: KafkaSinkOptions, side_topic: CheckpointTopic) -> None:
        self._sink = sink
        self._admin = side_topic.about(sink.topic)
        self._values = sink.value_schema(sink.topic)
        self.topic: Topic | None = None

    def find(self, patience: float) -> None:
        """Looks for the topic. Called when a session opens."""
        self.topic = self._admin.find(patience)

    @property
    @override
    def identity(self) -> str | None:
        return self.topic.id if self.topic else None

    @override
    def schema(self) -> pa.Schema | None:
        if self.topic is None:
            return None
        return MESSAGES if self._values is None else self._values.mark(MESSAGES)

    @override
    def check_target(self) -> None:
        if self.topic is None and not self._sink.auto_create_topic:
            raise self._sink.no_topic(self._admin.probably())

    @override
    def create(self, sample: pa.Schema) -> None:
        self.check_target()
        sink = self._sink
        replicas = sink.topic_replicas or BROKERS_OWN
        config = {"cleanup.policy": "compact"} if sink.upsert_mode else {}
        self.topic = self._admin.make(sink.topic_partitions or BROKERS_OWN, replicas, config)

    @override
    def holds_rows(self) -> bool:
        """Markers of transactions count as well: what lies between two offsets is not known."""
        if self.topic is None:
            return False
        lows, highs = self._admin.offsets(self.topic, EARLIEST, LATEST, committed=False)
        return lows != highs


class KafkaSinkSession(TransactionalSession):
    """The checkpoint is kept in memory: an idle loop asks nothing."""

    _store: KafkaCheckpoints

    def __init__(self, sink: KafkaSinkOptions, target: Target, run: Run) -> None:
        side_topic = CheckpointTopic.of(sink.cluster(), target)
        table = KafkaSinkTarget(sink, side_topic)
        side_topic.prepare()
        store = KafkaCheckpoints(sink, target, run, table, side_topic)
        super().__init__(sink, target, run, table, store)
        # One that has rows of ours is missed for a while before it is made, and filled, once more.
        may_be_new = sink.auto_create_topic and self.checkpoint.target is None
        try:
            table.find(0 if may_be_new else PATIENCE)
            if target.rejects.way == "table":
                prepare_topic(side_topic.about(sink.rejected_topic), sink.topic_replicas)
        except BaseException:
            self.close()
            raise

    @override
    def ticket(self) -> Ticket:
        ticket = super().ticket()
        return replace(
            ticket, schema=key_spelling.mark(ticket.schema, self._store.stored.head.keys)
        )
