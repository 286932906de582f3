"""The driver's side of the Kafka sink: one epoch of one branch."""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from dataflow_assets.connectors.kafka.client import PATIENCE
from dataflow_assets.connectors.kafka.options import KafkaSinkOptions
from dataflow_assets.connectors.kafka.rejected.error_sink import prepare_topic
from dataflow_assets.connectors.kafka.sink import key_spelling
from dataflow_assets.connectors.kafka.sink.checkpoint import CheckpointTopic
from dataflow_assets.connectors.kafka.sink.checkpoint_store import KafkaCheckpoints
from dataflow_assets.connectors.kafka.sink.target import KafkaSinkTarget
from dataflow_assets.contracts import Run, Target, Ticket
from dataflow_assets.sdk.sink.session import TransactionalSession


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
        return replace(ticket, schema=key_spelling.mark(ticket.schema, self._store.keys))
