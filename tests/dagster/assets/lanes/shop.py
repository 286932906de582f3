"""Flows of a lane's run through Dagster, and what holds them up."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.assets import ingest
from dataflow_assets.assets.lane_registry import LaneRegistry
from dataflow_assets.assets.lane_runs import LOCATION
from dataflow_assets.assets.leases import ERROR
from dataflow_assets.connectors.memory import (
    MemoryOffsetSource,
    Store,
)
from dataflow_assets.contracts import SourceTraits
from dataflow_assets.contracts.declared import KeepsLog
from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow, Policies
from dataflow_assets.location.jobs.ingest import ingest_job
from dataflow_assets.manifests.load import Loaded
from dataflow_assets.sdk.sink.session import TransactionalSession
from tests.dagster.flows import SharedSpark, location, memory_flow

QUIET = 1.0  # seconds, after which a lane ends


OFTEN = Policies(freshness_seconds=4)  # a lane ends sooner, too


class Slot(MemoryOffsetSource, KeepsLog):
    """A topic whose server keeps log for its reader, who may have runs of its own."""

    own_runs: ClassVar[set[str]] = set()

    @property
    def traits(self) -> SourceTraits:
        alone = self.topic in self.own_runs
        return replace(super().traits, reserved=f"slot {self.topic}", incremental=not alone)

    def left_behind(self) -> str:
        return f"slot {self.topic} stays"


class Shop:
    """Flows from topics to tables of their own names, and the runs of their lane."""

    def __init__(
        self,
        store: Store,
        instance: dg.DagsterInstance,
        spark: SparkSession,
        patch: pytest.MonkeyPatch,
    ) -> None:
        self.store, self.instance, self.spark, self.patch = store, instance, spark, patch
        self.flows: list[Flow] = []
        self.findings: tuple[Finding, ...] = ()
        self.folders: tuple[Path, ...] = ()
        self.pool = ThreadPoolExecutor(3)

    kind: type[MemoryOffsetSource] = MemoryOffsetSource

    def add(self, *names: str, **more: Any) -> None:
        for name in names:
            flow = memory_flow(
                self.store, name, topic=name, table=name, policies=OFTEN, kind=self.kind, **more
            )
            self.flows = [*self.flows, flow]

    def edit(self, name: str, /, **more: Any) -> None:
        self.flows = [replace(f, **more) if f.name == name else f for f in self.flows]

    def produce(self, name: str, *ids: int) -> None:
        bodies = [json.dumps({"id": i, "name": f"n{i}"}).encode() for i in ids]
        self.store.produce(name, 0, bodies)

    def rows(self, name: str) -> list[int]:
        found = self.store.query("select row from rows where name = ?", name)
        return sorted(json.loads(row)["id"] for (row,) in found)

    def manifests(self) -> Loaded:
        return Loaded(tuple(self.flows), self.findings, paths=self.folders)

    def lane(self, name: str = "shared", **tags: str) -> dg.ExecuteInProcessResult:
        """Runs the lane to its end; `tags` are of its run."""
        spark = dg.ResourceDefinition.hardcoded_resource(SharedSpark(self.spark))
        config = {"ops": {"drive": {"config": {"lane": name}}}}
        return ingest_job(self.manifests, spark).execute_in_process(
            run_config=config,
            instance=self.instance,
            tags={"dataflow/lane": name, **tags},
            raise_on_error=False,
        )

    def aside(self, idle: float = 60.0, place: str = "") -> Future[dg.ExecuteInProcessResult]:
        """The same, while the test goes on; it ends when nothing came for so many seconds."""
        self.patch.setattr(ingest, "IDLE_SECONDS", idle)
        tags = {LOCATION: place} if place else {}
        return self.pool.submit(self.lane, **tags)

    def ended(self, running: Future[dg.ExecuteInProcessResult]) -> dg.ExecuteInProcessResult:
        """Lets the lane end that runs aside."""
        self.patch.setattr(ingest, "IDLE_SECONDS", QUIET)
        return running.result()

    def own(self, name: str) -> dg.ExecuteInProcessResult:
        """A run of the flow's own."""
        defs = location(self.flows, self.spark)
        return defs.resolve_job_def(f"{name}_job").execute_in_process(
            instance=self.instance, raise_on_error=False
        )

    def events(self, name: str) -> list[Any]:
        store = str(self.flows[0].source.address().connection).replace("-", "_")
        key = dg.AssetKey(["memory", store, name])
        return list(self.instance.fetch_materializations(key, 50, ascending=True).records)

    def log(self, result: dg.ExecuteInProcessResult, name: str) -> str:
        lines = [entry.user_message for entry in self.instance.all_logs(result.run_id)]
        return "\n".join(line for line in lines if f"flow default/{name}:" in line)

    def error(self, result: dg.ExecuteInProcessResult) -> str:
        """Why its run has failed, as its tags keep it for the sensor."""
        run = self.instance.get_run_by_id(result.run_id)
        assert run is not None
        return run.tags[ERROR]

    def driven(self) -> set[str]:
        return set(LaneRegistry(self.instance, "shared").read().flows)


# Two runs in threads of one process would redirect its output at once, and wait for each other.
UNCAPTURED = {
    "compute_logs": {
        "module": "dagster._core.storage.noop_compute_log_manager",
        "class": "NoOpComputeLogManager",
    }
}


def hold_up(
    patch: pytest.MonkeyPatch, table: str, stored: threading.Event, go_on: threading.Event
) -> None:
    """The first micro-batch into the table waits when its rows are stored."""
    finish = TransactionalSession.finish

    def wait(self: TransactionalSession, *given: Any) -> Any:
        if getattr(self._sink, "table", "") == table and not stored.is_set():
            stored.set()
            assert go_on.wait(50)
        return finish(self, *given)

    patch.setattr(TransactionalSession, "finish", wait)
