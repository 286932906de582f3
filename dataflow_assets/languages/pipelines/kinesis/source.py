"""The Kinesis source of SingleStore's pipelines.

In a package of its own by the import contract: `source` must not know the languages that use it.
"""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from dataflow_assets.connectors.kinesis.source.position import StreamPosition
from dataflow_assets.connectors.kinesis.source.source import KinesisSource
from dataflow_assets.contracts import Positions
from dataflow_assets.contracts.declared import ListsOffsets, Offset


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
