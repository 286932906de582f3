"""Every record out of a topic, for `table: truncate`: up to offsets that the head knows first.

A driver that comes late deletes nothing that has come since: the offsets are those of the restart.
"""

from __future__ import annotations

from dataflow_assets import failpoints
from dataflow_assets.connectors.kafka.client import PATIENCE
from dataflow_assets.connectors.kafka.options import KafkaSinkOptions
from dataflow_assets.connectors.kafka.sink.checkpoint import CheckpointTopic
from dataflow_assets.connectors.kafka.sink.checkpoint_records import KafkaHead
from dataflow_assets.contracts import Target, refuse_shared
from dataflow_assets.errors import PermanentError


def ends(side_topic: CheckpointTopic, sink: KafkaSinkOptions, target: Target) -> dict[str, int]:
    """The offsets below which all records go, by partition; empty where there is no topic.

    Called by the store on the driver, before a restart. Raises PermanentError where other flows
    write to the topic, or where its records cannot be deleted.
    """
    admin = side_topic.about(sink.topic)
    topic = admin.find(PATIENCE)
    if topic is None:
        return {}
    refuse_shared(target, sink.address(), side_topic.others(topic.id))
    if not admin.rules().deletable:
        raise PermanentError(
            f"topic {sink.topic} cannot be emptied: its cleanup.policy is compact; "
            "delete and create it again, or send tombstones"
        )
    highs = admin.highs(range(topic.partitions))
    return {str(partition): high for partition, high in highs.items()}


def delete(side_topic: CheckpointTopic, name: str, head: KafkaHead) -> None:
    """Deletes the records below the offsets in the head; whoever opens next repeats it.

    Called by the session on the driver, where a head has such offsets.
    """
    failpoints.reach("kafka.empty")
    admin = side_topic.about(name)
    found = admin.find(PATIENCE) if head.emptied else None
    if head.emptied and found and found.id == head.target:  # else these are other offsets
        admin.empty({int(p): high for p, high in head.emptied.items()})
