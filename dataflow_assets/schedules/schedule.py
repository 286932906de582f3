"""A flow's schedule, as its manifest says it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

from dataflow_assets.schedules.cron import CronTimes
from dataflow_assets.schedules.trigger import Trigger

ConcurrencyPolicy = Literal["Allow", "Forbid", "Replace"]


@dataclass(frozen=True)
class Schedule:
    """When a flow is drained, and what runs after that."""

    times: CronTimes
    zone: str = "UTC"
    policy: ConcurrencyPolicy = "Forbid"
    deadline_seconds: int | None = None
    """A tick that comes later than that is skipped."""
    suspended: bool = False
    """No tick starts a run; those that run go on."""
    triggers: tuple[Trigger, ...] = ()
    on_failure: tuple[Trigger, ...] = ()

    def after(self, moment: datetime) -> datetime:
        """Returns the first tick after the moment, in the zone of the schedule."""
        zone = ZoneInfo(self.zone)
        return self.times.after(moment, zone).astimezone(zone)

    def lateness(self, tick: datetime, now: datetime) -> str:
        """Says why a tick is too late to start a run; empty where it is not.

        As a CronJob does: of several ticks that were missed, the last one alone counts.
        """
        late = (now - tick).total_seconds()
        if self.deadline_seconds is not None and late > self.deadline_seconds:
            return (
                f"the tick is {late:.0f} s late, more than startingDeadlineSeconds "
                f"{self.deadline_seconds}: the next one is at {self.after(now):%Y-%m-%d %H:%M %Z}"
            )
        if (later := self.after(tick)) <= now:
            return f"missed; the tick of {later:%Y-%m-%d %H:%M %Z} is due already, and reads it all"
        return ""
