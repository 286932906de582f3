"""Asks, inside a task, whether what was read is still the topic that was planned.

Spark reads by name: where a topic is deleted and made anew between plan and read, its consumer
reads the new one at the old one's offsets and says nothing. Ids are never used twice, so the old id
seen *after* the last record was read proves that every record was of the old topic.

What remains: any broker may answer, from its own copy of the cluster's metadata. One that has not
heard of the deletion, while the leader already serves records of the new topic, would say what was
true before. Brokers hear of it within milliseconds; on a cluster of one there is no such broker.
"""

from __future__ import annotations

import os

from dataflow_assets.connectors.kafka.client import Broker

# Per process, for Spark's workers are forked and stay; a client for each topic would add up there.
_brokers: dict[tuple[int, str], Broker] = {}


def confirm(bootstrap: str, topic: str, identity: str) -> None:
    """Raises TransientError when the topic has another id by now; about 2 ms when it has not."""
    place = (os.getpid(), bootstrap)
    if place not in _brokers:
        _brokers[place] = Broker(bootstrap, topic)
    _brokers[place].about(topic).same(identity)
