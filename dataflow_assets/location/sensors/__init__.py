"""Sensors, which Dagster evaluates by itself: new data, lag, edited files, assets downstream."""

import dagster as dg

from dataflow_assets.assets.switches import starts_switched_on


def default_status() -> dg.DefaultSensorStatus:
    """New flows start stopped; the demo starts them (DATAFLOW_START=1)."""
    return (
        dg.DefaultSensorStatus.RUNNING if starts_switched_on() else dg.DefaultSensorStatus.STOPPED
    )
