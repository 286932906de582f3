"""One flow as the sensor of its location sees it, ticked by hand, and time that passes for it."""

import json
import time
from collections.abc import Sequence
from typing import Any

import dagster as dg
import pytest

from dataflow_assets.assets import graph, leases
from dataflow_assets.assets.drivers import FlowDriver
from dataflow_assets.assets.graph import AssetNode
from dataflow_assets.assets.lane_evictions import Evictions
from dataflow_assets.assets.metadata import event_metadata
from dataflow_assets.assets.tally import Figures
from dataflow_assets.connectors.memory import Store
from dataflow_assets.contracts import Checkpoint, Run
from dataflow_assets.location.sensors.flows import Board
from dataflow_assets.location.sensors.ingest import Location
from tests.dagster.flows import location, memory_flow


class Switch:
    """One flow, switched on, alone in its location."""

    def __init__(self, store: Store, instance: dg.DagsterInstance) -> None:
        self.store, self.instance = store, instance
        self.flow = memory_flow(store)

    @property
    def nodes(self) -> Sequence[AssetNode]:
        return graph.build([self.flow]).nodes

    def tick(self) -> Any:
        """What the sensor of the location does about the flow: a run, or the reason why not."""
        board = Board()
        requests = Location(graph.build([self.flow]), board).look(self.instance)
        return requests[0] if requests else dg.SkipReason(board.read(self.flow))

    def reason(self) -> str:
        found = self.tick()
        assert isinstance(found, dg.SkipReason), found
        return found.skip_message or ""

    def produce(self, count: int) -> None:
        bodies = [json.dumps({"id": i, "name": "n"}).encode() for i in range(count)]
        self.store.produce("orders", 0, bodies)

    def stand(self, **positions: int) -> None:
        """As if a run had committed this checkpoint and reported it."""
        mirror(self.instance, self.nodes[0], self.store_checkpoint(**positions))

    def store_checkpoint(self, **positions: int) -> Checkpoint:
        """As if something that Dagster knows nothing of had: a backup, the command line."""
        branch = self.flow.branches[0]
        session = branch.sink.open(self.flow.target(branch), Run())
        found = {"0": 0, "1": 0, **{name[1:]: value for name, value in positions.items()}}
        session.restart(found, "orders")
        return session.checkpoint

    def leave(self, error: str) -> None:
        """As if the flow had failed in its lane."""
        Evictions(self.instance).leave(self.flow, error)

    def run(
        self, status: dg.DagsterRunStatus, driver: FlowDriver | None = None, **tags: str
    ) -> dg.DagsterRun:
        """A run of the flow's job, leased by the driver."""
        job = location([self.flow]).resolve_job_def("orders_job")
        known = {leases.DRIVES: "true", **{f"dataflow/{k}": v for k, v in tags.items()}}
        begun = dg.DagsterRunStatus.STARTED if status == dg.DagsterRunStatus.FAILURE else status
        made = self.instance.create_run_for_job(job, status=begun, tags=known)
        if driver is not None:
            own = {f"{leases.DRIVER}/{self.flow.id}": leases.value(made.run_id, driver)}
            self.instance.add_run_tags(made.run_id, own)
        if status == dg.DagsterRunStatus.FAILURE:
            self.instance.report_run_failed(made)
        return made


def mirror(instance: dg.DagsterInstance, node: AssetNode, checkpoint: Checkpoint) -> None:
    """As if a run had reported this checkpoint of the branch."""
    metadata = event_metadata(checkpoint, Figures(0.0, 0, 1, 0, 1.0))
    key = dg.AssetKey(list(node.key))
    instance.report_runless_asset_event(dg.AssetMaterialization(asset_key=key, metadata=metadata))


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = time.time() + seconds
    monkeypatch.setattr(time, "time", lambda: now)
