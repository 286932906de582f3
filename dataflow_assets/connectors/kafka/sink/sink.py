"""The `kafka` sink as a manifest declares it."""

from __future__ import annotations

from typing import ClassVar, Literal

from typing_extensions import override

from dataflow_assets.connectors.kafka.options import KafkaSinkOptions
from dataflow_assets.contracts import (
    Checkpoint,
    Entries,
    ErrorStore,
    Run,
    SinkSession,
    Slice,
    Target,
    Ticket,
    Writer,
)
from dataflow_assets.sdk.sink.slice_commit import SliceWriter


class KafkaSink(KafkaSinkOptions):
    """Records into a topic, exactly once for readers of committed records.

    The records of a slice and the checkpoint of its partition are one transaction. Value, key and
    headers are those of the source's record, byte for byte where no step has changed the body and
    the body is JSON (records of other formats become JSON); with `format` values are those of a
    schema. A record without key has none here. Keys choose partitions as Java's producers do
    (murmur2).

    Checkpoints are in a topic of their own, `dataflow.checkpoints.*`, which is made when it is
    missing. The brokers need transactions; Kafka 3.7 or later checks that records belong to an
    open one.
    """

    type: ClassVar[str] = "kafka"
    commits: ClassVar[Literal["slice", "span"]] = "slice"
    takes: ClassVar[Literal["columns", "messages"]] = "messages"
    guarantee: ClassVar[str] = (
        "Exactly once for readers of committed records: the records of a slice and the position "
        "of its partition are one transaction; drivers and tasks that come late are fenced."
    )

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        from dataflow_assets.connectors.kafka.sink.session import KafkaSinkSession

        return KafkaSinkSession(self, target, run)

    @override
    def peek(self, target: Target) -> Checkpoint | None:
        from dataflow_assets.connectors.kafka.sink.checkpoint import peek

        return peek(self.cluster(), target)

    @override
    def writer(self, ticket: Ticket, piece: Slice) -> Writer:
        from dataflow_assets.connectors.kafka.sink.writer import KafkaSliceStore

        return SliceWriter(ticket, piece, KafkaSliceStore(self, ticket, piece))

    @override
    def error_store(self) -> ErrorStore:
        return self._errors(self.topic)

    @override
    def rejected_entries(self) -> Entries:
        return self._errors(self.rejected_topic)

    def _errors(self, topic: str) -> ErrorStore:
        from dataflow_assets.connectors.kafka.rejected.error_sink import KafkaErrors

        return KafkaErrors(self.cluster(), topic, self.topic_replicas)
