"""Flows that have left their lane with an error: why, and how often lately.

Kept in Dagster's own storage, one value per flow: all of them are one question. A flow stays out
until a run of its own has succeeded, or its manifest was edited.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

import dagster as dg

from dataflow_assets.flow import Flow

LATELY_SECONDS = 600.0  # a flow that leaves again within that time waits longer


@dataclass(frozen=True)
class Departure:
    """Why a flow left its lane."""

    at: float
    """When, in seconds since 1970."""
    error: str
    """One sentence without secrets, at most 500 characters."""
    manifest: str
    """The version of the manifest that the flow had."""
    times: int = 1
    """How often it left lately, this time included."""
    back: bool = False
    """A run of its own has succeeded since."""

    def out(self, flow: Flow) -> bool:
        """Whether the flow is out of its lane; an edited manifest is tried at once."""
        return not self.back and self.manifest == flow.version


class Departures:
    """Those of all flows of an instance. Each method raises what Dagster's storage raises."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._storage = instance.daemon_cursor_storage

    def of(self, flows: Iterable[Flow]) -> Mapping[str, Departure]:
        """By its id the departure of each flow that is out.

        Called by the sensor `ingest` with each tick, and by the run of a lane every two seconds:
        one question for all flows.
        """
        known = {flow.id: flow for flow in flows}
        found = self._read(known.values())
        return {name: one for name, one in found.items() if one.out(known[name])}

    def leave(self, flow: Flow, error: str) -> None:
        """Notes that the flow has left its lane; called in the lane's run when that happens."""
        now, before = time.time(), self._read([flow]).get(flow.id)
        lately = before is not None and now - before.at < LATELY_SECONDS
        times = before.times + 1 if before and lately else 1
        self._write(flow, Departure(now, error[:500], flow.version, times))

    def come_back(self, flow: Flow) -> None:
        """Its lane may drive the flow again; called in a run of its own that has succeeded."""
        known = self._read([flow]).get(flow.id)
        if known is not None and not known.back:
            self._write(flow, replace(known, back=True))

    def _read(self, flows: Iterable[Flow]) -> dict[str, Departure]:
        keys = {_key(flow): flow.id for flow in flows}
        found = self._storage.get_cursor_values(set(keys)) if keys else {}
        return {keys[key]: Departure(**json.loads(text)) for key, text in found.items()}

    def _write(self, flow: Flow, departure: Departure) -> None:
        self._storage.set_cursor_values({_key(flow): json.dumps(asdict(departure))})


def _key(flow: Flow) -> str:
    return f"dataflow/left/{flow.id}"
