"""One sensor per flow: its switch, and the place where it says how the flow fares.

A tick costs Dagster a tenth of a second of a core whatever it does, so these tick once a minute,
those of many flows less often, and read nothing: the sensor of the location, which looks for all
flows, has written down what to say.
"""

import threading
import time

import dagster as dg

from dataflow_assets.assets.switches import INGEST, sensor_name
from dataflow_assets.flow import Flow
from dataflow_assets.location.jobs.flows import Job
from dataflow_assets.location.sensors import default_status

INTERVAL_SECONDS = 59  # at least, between two ticks of one flow's sensor
EACH_SECONDS = 2.0  # at least, between two ticks of any of them
QUIET_SECONDS = 30.0


class Board:
    """Findings of the location's sensor about each flow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: dict[str, str] = {}
        self._at = -QUIET_SECONDS

    def write(self, texts: dict[str, str]) -> None:
        with self._lock:
            self._texts, self._at = texts, time.monotonic()

    def read(self, flow: Flow) -> str:
        with self._lock:
            if time.monotonic() - self._at >= QUIET_SECONDS:
                return f"waiting for the sensor {INGEST}, which looks for all flows: is it on?"
            return self._texts.get(
                flow.id, f"switched on; the sensor {INGEST} looks for news of it"
            )


board = Board()


def pause(flow: Flow) -> str:
    """Why the flow must not run now, whatever its switch says; empty where it may."""
    why = flow.pause_reason()
    if not why:
        return ""
    return f"{why}, whatever this switch says" if flow.suspended else f"{why}; then it goes on"


def interval(flows: int) -> int:
    """The seconds between two ticks of a flow's sensor, one of so many."""
    return max(INTERVAL_SECONDS, int(flows * EACH_SECONDS) - 1)


def flow_sensor(flow: Flow, job: Job, flows: int = 1) -> dg.SensorDefinition:
    """The switch of one flow, of so many in the location."""

    @dg.sensor(
        name=sensor_name(flow),
        job=job,
        minimum_interval_seconds=interval(flows),
        default_status=default_status(),
        description=(
            f"The switch of flow {flow.id}; each tick says how the flow fares. When switched on, "
            f"the sensor {INGEST} starts runs for new records of {flow.source_address}."
        ),
    )
    def tick() -> dg.SkipReason:
        return dg.SkipReason(pause(flow) or board.read(flow))

    return tick
