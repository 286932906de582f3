"""Flows that have left their lane with an error: why, and how often lately.

Kept in Dagster's own storage, one value per flow: all of them are one question. A flow stays out
until a run of its own has succeeded, or its manifest was edited, or others with the same servers
have succeeded.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

import dagster as dg

from dataflow_assets.flow import Flow

LATELY_SECONDS = 600.0  # a flow that leaves again within that time waits longer


@dataclass(frozen=True)
class Eviction:
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
    """A run of its own has succeeded since, or those of others have shown that it may go back."""
    back_at: float = 0.0
    """When that run of its own did, in seconds since 1970; 0.0 where none did."""
    passing: bool = False
    """The error is of a kind that may pass, such as the outage of a server."""

    def out(self, flow: Flow) -> bool:
        """Returns whether the flow is out of its lane; an edited manifest is tried at once."""
        return not self.back and self.manifest == flow.version


class Evictions:
    """Evictions of all flows of an instance. Each method raises what Dagster's storage raises."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._storage = instance.daemon_cursor_storage

    def of(self, flows: Iterable[Flow]) -> Mapping[str, Eviction]:
        """Evictions of the flows that are out, by the flow's id.

        Called by the sensor `ingest` with each tick, and by the run of a lane every two seconds:
        one question for all flows.
        """
        by_id = {flow.id: flow for flow in flows}
        evictions = self.by_flow(by_id.values())
        return {name: one for name, one in evictions.items() if one.out(by_id[name])}

    def by_flow(self, flows: Iterable[Flow]) -> Mapping[str, Eviction]:
        """Maps the id to the last eviction of each flow that has ever left a lane.

        Called by the sensor `ingest` with each tick; one question.
        """
        keys = {_key(flow.id): flow.id for flow in flows}
        texts = self._storage.get_cursor_values(set(keys)) if keys else {}
        return {keys[key]: Eviction(**json.loads(text)) for key, text in texts.items()}

    def leave(self, flow: Flow, error: str, *, passing: bool = False) -> None:
        """Notes that the flow has left its lane; called in the lane's run when that happens."""
        now, before = time.time(), self.by_flow([flow]).get(flow.id)
        lately = before is not None and now - before.at < LATELY_SECONDS
        times = before.times + 1 if before and lately else 1
        left = Eviction(now, error[:500], flow.version, times, passing=passing)
        self._write({flow.id: left})

    def come_back(self, flow: Flow) -> None:
        """Its lane may drive the flow again; called in a run of its own that has succeeded."""
        eviction = self.by_flow([flow]).get(flow.id)
        if eviction is not None and not eviction.back:
            self._write({flow.id: replace(eviction, back=True, back_at=time.time())})

    def let_back(self, flows: Iterable[Flow]) -> None:
        """Their lanes may drive these flows again, though no run of their own has succeeded.

        Called by the sensor `ingest`, for those whose servers work again.
        """
        evictions = self.by_flow(flows)
        self._write({name: replace(one, back=True) for name, one in evictions.items()})

    def _write(self, evictions: Mapping[str, Eviction]) -> None:
        texts = {_key(name): json.dumps(asdict(one)) for name, one in evictions.items()}
        if texts:
            self._storage.set_cursor_values(texts)


def _key(flow: str) -> str:
    return f"dataflow/left/{flow}"
