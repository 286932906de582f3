"""How far flows are behind, as named values with tags: what metrics and events of assets show."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dataflow_assets.contracts import Lag
from dataflow_assets.flow import Flow

PARTITION_LAG = "warpstream_tableflow_partition_time_lag_seconds"
UNTAGGED = "WARPSTREAM_DISABLE_CONSUMER_GROUP_METRICS_TAGS"
"""The variable that lists the tags to leave out: `partition` gives one value for each table."""


@dataclass(frozen=True)
class Value:
    """One value of a metric. `tags` are spelled as the metric's own documentation does."""

    tags: Mapping[str, str]
    value: float


def partition_lags(flow: Flow, lag: Lag) -> Iterator[Value]:
    """Tableflow's own metric, of its tables: how old what is not read is, by partition.

    Called on the driver after commits, by the sensor of lags, and for each scrape of metrics.

    Args:
        flow: yields nothing where Tableflow's language has not declared it.
        lag: of its one branch.

    Returns:
        Seconds, for each partition; with the tag `partition` switched off the largest of them.
    """
    if flow.language != "tableflow" or not lag.partitions:
        return
    tags = {
        "table.id": flow.slug,
        "table.name": flow.branches[0].address.name,
        "topic": flow.source_address.name,
    }
    by = {name: round(seconds, 3) for name, seconds in lag.partitions.items()}
    if "partition" in os.environ.get(UNTAGGED, "").split(","):
        yield Value(tags, max(by.values()))
    else:
        yield from (Value({**tags, "partition": name}, value) for name, value in by.items())
