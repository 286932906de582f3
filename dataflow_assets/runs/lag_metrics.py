"""Metrics of how far a branch is behind, from a commit's report or from a look at both ends."""

from __future__ import annotations

from collections.abc import Iterator

from dataflow_assets.contracts import Lag, Positions
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.metrics import declarations as metric
from dataflow_assets.metrics.declarations import Metric

LagSample = tuple[Metric, tuple[str, ...], float]


def lag_samples(flow: Flow, branch: Branch, lag: Lag, positions: Positions) -> Iterator[LagSample]:
    """Each metric with its labels after those of the flow, and its value."""
    table = (branch.id, branch.address.name)
    yield metric.FRESHNESS, (), flow.policies.freshness_seconds
    yield metric.LAG_RECORDS, table, lag.records
    if lag.seconds is not None:
        yield metric.LAG_SECONDS, table, lag.seconds
    for partition, end in lag.ends.items():
        at = positions.get(partition)
        if isinstance(end, int) and isinstance(at, int):
            yield metric.PARTITION_RECORDS, (*table, partition), max(0, end - at)
    for partition, seconds in lag.partitions.items():
        yield metric.PARTITION_SECONDS, (*table, partition), seconds if lag.records else 0.0
    if lag.held is not None:
        yield metric.RETAINED, (), lag.held
