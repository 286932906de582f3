"""Tableflow's own metric, of its tables: how old what is not read is, by partition."""

from __future__ import annotations

import os
from collections.abc import Iterator

from dataflow_assets.contracts import Lag
from dataflow_assets.flow import Flow
from dataflow_assets.languages.language import LagMetric

PARTITION_LAG = "warpstream_tableflow_partition_time_lag_seconds"
UNTAGGED = "WARPSTREAM_DISABLE_CONSUMER_GROUP_METRICS_TAGS"
"""The variable that lists the tags to leave out: `partition` gives one value for each table."""
_HELP = (
    "Age in seconds of the oldest record that is not in the table; 0 where all are. The tag "
    f"partition is left out with {UNTAGGED}=partition."
)


def partition_lags(flow: Flow, lag: Lag) -> Iterator[LagMetric]:
    """The lag of each partition; with the tag `partition` switched off the largest of them."""
    if not lag.partitions:
        return
    tags = {
        "table.id": flow.slug,
        "table.name": flow.branches[0].address.name,
        "topic": flow.source_address.name,
    }
    by = {name: round(seconds, 3) for name, seconds in lag.partitions.items()}
    if "partition" in os.environ.get(UNTAGGED, "").split(","):
        if lag.seconds is not None:
            yield LagMetric(PARTITION_LAG, _HELP, tags, round(lag.seconds, 3))
        return
    for name, seconds in by.items():
        yield LagMetric(PARTITION_LAG, _HELP, {**tags, "partition": name}, seconds)
