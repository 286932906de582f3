"""What Dagster looks at by itself: new data, lag, edited files, assets downstream."""

import dagster as dg

from dataflow_assets.assets.switches import started


def default_status() -> dg.DefaultSensorStatus:
    """New flows start stopped; the demo starts them (DATAFLOW_START=1)."""
    return dg.DefaultSensorStatus.RUNNING if started() else dg.DefaultSensorStatus.STOPPED
