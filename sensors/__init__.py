"""What this location looks at by itself, beside its flows: assets that users build on them."""

from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from dataflow_assets.assets import user
from dataflow_assets.location.sensors import default_status

AUTOMATION_SECONDS = 4  # 30 by default; served every 5 s


def automation(paths: Sequence[Path]) -> list[dg.SensorDefinition]:
    """Refreshes users' assets by the conditions they carry; none where no file has such assets.

    Dagster reads the state of every sensor for it, every five seconds.
    """
    if not user.files(paths):
        return []
    return [
        dg.AutomationConditionSensorDefinition(
            "automation",
            target=dg.AssetSelection.all(),
            minimum_interval_seconds=AUTOMATION_SECONDS,
            default_status=default_status(),
        )
    ]
