"""A maintenance window of tests, and a clock on the wall that is set by hand."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from dataflow_assets import flow
from dataflow_assets.schedules.maintenance_window import MaintenanceWindow

BERLIN = ZoneInfo("Europe/Berlin")
NIGHTLY = MaintenanceWindow(
    datetime(2026, 10, 1, 2, 30, tzinfo=BERLIN), timedelta(hours=2), "daily", BERLIN, "nightly"
)
MANIFEST = (
    "  maintenance: {startTime: 2026-10-01T02:30:00+02:00, duration: 2h, repeat: daily, "
    "timezone: Europe/Berlin, description: nightly}\n"
)
REASON = "in maintenance window `nightly` until 04:30 Europe/Berlin"
CLOSED = datetime(2026, 11, 29, 1, tzinfo=BERLIN)
OPEN = CLOSED + timedelta(hours=2)


class WallClock:
    """What flows take for now."""

    def __init__(self, patch: pytest.MonkeyPatch, now: datetime = CLOSED) -> None:
        self.now = now
        patch.setattr(flow, "utc_now", lambda: self.now)
