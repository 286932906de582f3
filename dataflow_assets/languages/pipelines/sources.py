"""The sources of SingleStore's pipelines that read more than topics: Kinesis, and Kafka Connect.

In a module of its own by the import contract: a source must not know the languages that use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from pydantic import Field
from typing_extensions import override

from dataflow_assets.connectors.kafka_connect.source.position import ConnectPosition
from dataflow_assets.connectors.kafka_connect.source.source import KafkaConnectSource
from dataflow_assets.connectors.kinesis.source.position import StreamPosition
from dataflow_assets.connectors.kinesis.source.source import KinesisSource
from dataflow_assets.contracts import Positions, SourceTraits
from dataflow_assets.languages.promises import ListsOffsets, Offset


class PipelineKinesisSource(KinesisSource, ListsOffsets):
    """Tells its offsets as the connector of SingleStore does: one for each shard.

    Made by the manifest language `pipelines`; DataFlow manifests do not name it.
    """

    @override
    def offsets(self, positions: Positions) -> Sequence[Offset]:
        read = {
            shard: one.sequence_number
            for text in positions.values()
            for shard, one in StreamPosition.parse(text).shards.items()
            if one.sequence_number
        }
        return [
            Offset(task, {"shardId": shard}, {"sequenceNumber": number})
            for task, (shard, number) in enumerate(sorted(read.items()))
        ]


class PipelineConnectSource(KafkaConnectSource, ListsOffsets):
    """Tells its offsets as Kafka Connect does: one for each source partition.

    Made by the manifest language `pipelines`; DataFlow manifests do not name it.
    """

    poll_interval: int = Field(1, ge=1)
    """The least time between two looks at the spool, in seconds: BATCH_INTERVAL."""

    @property
    @override
    def traits(self) -> SourceTraits:
        return replace(super().traits, poll_seconds=float(self.poll_interval))

    @override
    def offsets(self, positions: Positions) -> Sequence[Offset]:
        return [
            Offset(one.task, msgspec.json.decode(key), one.last)
            for text in positions.values()
            for key, one in sorted(ConnectPosition.parse(text).offsets.items())
        ]
