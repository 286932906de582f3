"""The `kafkaConnect` source as a manifest declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.kafka_connect.options import KafkaConnectSourceOptions
from dataflow_assets.contracts import Slice, SourceSession, SourceTraits
from dataflow_assets.contracts.reading import ReadsInOrder


class KafkaConnectSource(KafkaConnectSourceOptions, ReadsInOrder):
    """Runs a source connector of Kafka Connect, without Kafka: a process with a JVM for each flow.

    Every record becomes an object with `topic`, `id` (the key as JSON; source partition and offset
    of a record without key) and `record` (the value as JSON: bytes are base64, decimals numbers).
    With `envelope: false` it becomes the value alone.

    Records are stored in the folder `spool` before the connector learns that they were delivered. A
    connector that fails is started again.
    """

    type: ClassVar[str] = "kafkaConnect"
    delivers: ClassVar[Literal["messages", "columns", "entries"]] = "entries"
    guarantee: ClassVar[str] = (
        "Each record that the connector delivers is stored exactly once, if the connector "
        "continues exactly behind the offset that it is given. FileStreamSourceConnector, "
        "MirrorSourceConnector and Debezium's PostgresConnector do. The folder `spool` must not be "
        "lost."
    )
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"key", "topic", "task"})
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "key": "the record's id as text",
        "topic": "the topic that the connector gives the record",
        "task": "the number of the task that delivered the record",
    }

    @property
    @override
    def traits(self) -> SourceTraits:
        return replace(super().traits, poll_seconds=1.0, keeps_running=True, reads_back=False)

    @override
    def open(self, flow: str) -> SourceSession:
        from dataflow_assets.connectors.kafka_connect.source.session import KafkaConnectSession

        return KafkaConnectSession(self)

    @override
    def batches(self, piece: Slice, metadata: frozenset[str]) -> Iterator[pa.RecordBatch]:
        from dataflow_assets.connectors.kafka_connect.source.read import read

        return read(self, piece, metadata)
