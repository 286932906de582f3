"""Checks inside tasks that topics are still the planned ones."""

from __future__ import annotations

from collections.abc import Collection

from dataflow_assets.connectors.kafka.client import KafkaBroker
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.warm_clients import WarmClients
from dataflow_assets.errors import DataflowError

Planned = tuple[str, str]
"""A topic's name and its id."""

# Per process, for Spark's workers are forked and stay; a client for each topic would add up there.
_brokers = WarmClients[KafkaBroker](refused=lambda broker: broker.is_denied)


def confirm(cluster: Cluster, topic: str, identity: str) -> None:
    """Raises TransientError when the topic has another id by now; about 2 ms when it has not."""
    _broker(cluster, topic).same(identity)


def refusals(cluster: Cluster, planned: Collection[Planned]) -> dict[Planned, DataflowError]:
    """Returns those of the topics that are not the planned ones, or of which nobody knows; and why.

    One request for all of them, as long as nothing is wrong.
    """
    if not planned:
        return {}
    broker = _broker(cluster, next(iter(planned))[0])
    try:
        ids = broker.ids({name for name, _ in planned})
    except DataflowError as error:
        # Each has an error of its own: who is blamed for it is written into it.
        return {one: type(error)(*error.args) for one in planned}
    doubtful = {one for one in planned if ids.get(one[0]) != one[1]}
    reasons = {one: _reason(broker.about(one[0]), one[1]) for one in doubtful}
    return {one: reason for one, reason in reasons.items() if reason is not None}


def _reason(broker: KafkaBroker, identity: str) -> DataflowError | None:
    try:
        broker.same(identity)
    except DataflowError as error:
        return error
    return None


def _broker(cluster: Cluster, topic: str) -> KafkaBroker:
    return _brokers.of(cluster, lambda: KafkaBroker(cluster, topic)).about(topic)
