"""What Dagster looks at by itself: new data, lag, edited files, assets downstream."""

import os

import dagster as dg


def default_status() -> dg.DefaultSensorStatus:
    """New flows start stopped; the demo starts them (DATAFLOW_START=1)."""
    if os.environ.get("DATAFLOW_START") == "1":
        return dg.DefaultSensorStatus.RUNNING
    return dg.DefaultSensorStatus.STOPPED
