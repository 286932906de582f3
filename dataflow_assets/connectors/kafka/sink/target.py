"""The topic that rows go to, as a session of the sink finds or makes it."""

from __future__ import annotations

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.kafka.client import EARLIEST, LATEST, Topic
from dataflow_assets.connectors.kafka.create_topic import BROKERS_OWN
from dataflow_assets.connectors.kafka.options import KafkaSinkOptions
from dataflow_assets.connectors.kafka.sink.checkpoint import CheckpointTopic
from dataflow_assets.contracts import MESSAGES, ChecksTarget, TargetTable


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
