"""The Kafka source as a manifest declares it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.kafka.options import KafkaSourceOptions
from dataflow_assets.contracts import Slice, SourceSession
from dataflow_assets.contracts.looking import OpensMany
from dataflow_assets.contracts.reading import (
    Asked,
    ConfirmsTopics,
    ReadsLargeRecords,
    ReadsMessages,
)
from dataflow_assets.errors import DataflowError

if TYPE_CHECKING:  # a manifest is loaded without clients
    from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession


class KafkaSource(KafkaSourceOptions, ConfirmsTopics, OpensMany, ReadsLargeRecords, ReadsMessages):
    """Reads one topic: only committed records, in the order of their partition.

    With `format: avro` a record begins with the byte 0 and the id of a schema, which is fetched
    from `schemaRegistry` once. Without a registry, or where a record begins otherwise, the schema
    of the manifest counts (`avroSchema`). Steps, raw mode and topics get the record as JSON: the
    value of a union is the value itself, times are RFC 3339, decimals numbers, bytes base64.

    A record that cannot be decoded, or whose schema the registry does not have, is rejected. It is
    kept as it was sent, and a replay decodes it again. While the registry does not answer, the flow
    waits.
    """

    type: ClassVar[str] = "kafka"
    guarantee: ClassVar[str] = (
        "Every committed record exactly once, by its offset: the flow goes on from the checkpoint "
        "in its sink, never from the consumer group. Records that retention removed before they "
        "were read are an error that names them, unless `onDataLoss: continue`; a topic that was "
        "deleted and re-created counts as another topic (`onTopicRecreated`)."
    )
    metadata_columns: ClassVar[frozenset[str]] = frozenset({"key", "timestamp", "headers"})
    metadata_keys: ClassVar[Mapping[str, str]] = {
        "topic": "name of the topic",
        "partition": "number of the partition",
        "offset": "the record's offset in it",
        "key": "the record's key as text; empty where there is none",
        "timestamp": "the time that the record carries",
        "headers": "mapping of names to texts, the last of a name; missing where there are none",
    }

    @override
    def metadata(self, piece: Slice) -> dict[str, Any]:
        return {"topic": self.topic, "partition": int(piece.partition)}

    @override
    def open(self, flow: str) -> KafkaSourceSession:
        from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession

        return KafkaSourceSession(self, flow)

    @property
    @override
    def connection_group(self) -> Hashable:
        return self.cluster()

    @override
    @classmethod
    def open_together(cls, sources: Mapping[str, Self]) -> dict[str, SourceSession | DataflowError]:
        from dataflow_assets.connectors.kafka.source.session import KafkaSourceSession

        return KafkaSourceSession.open_many(sources)

    @override
    def confirm(self, identity: str) -> None:
        from dataflow_assets.connectors.kafka.source.confirm import confirm

        confirm(self.cluster(), self.topic, identity)

    @override
    def large_records(self, partition: str, offsets: Sequence[int]) -> Iterator[pa.RecordBatch]:
        from dataflow_assets.connectors.kafka.source.large_records import read

        return read(self, int(partition), offsets)

    @classmethod
    @override
    def messages_together(
        cls, asked: Sequence[Asked]
    ) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        from dataflow_assets.connectors.kafka.source.small_spans import read

        sources = [one.source for one in asked if isinstance(one.source, KafkaSource)]
        topics = [source.topic for source in sources]
        return read(sources[0].cluster(), list(zip(topics, asked, strict=True)))
