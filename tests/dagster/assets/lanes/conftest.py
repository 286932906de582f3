"""A shop whose lane asks often."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dataflow_assets.assets import ingest, lane_runs, leases, tally
from dataflow_assets.assets.lane_flows import LaneFlows
from dataflow_assets.assets.lane_registry import FlowState
from dataflow_assets.connectors.memory import Store
from dataflow_assets.flow import Flow
from dataflow_assets.location.jobs.ingest import ingest_job
from tests.dagster.assets.lanes.shop import QUIET, UNCAPTURED, Shop, Slot
from tests.lanes.driving import hurry


@pytest.fixture
def shop(
    store: Store, home: str, engine: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shop]:
    monkeypatch.setenv("DATAFLOW_START", "1")
    monkeypatch.setenv("DATAFLOW_PATIENCE", "1")
    monkeypatch.setattr(ingest, "IDLE_SECONDS", QUIET)
    monkeypatch.setattr(lane_runs, "LOOK_SECONDS", 0.05)
    # Else a lane may let a flow go before the run that leases it looks whether it has to wait.
    monkeypatch.setattr(leases, "PART_SECONDS", 0.0)
    monkeypatch.setattr(tally, "IDLE_SECONDS", 0.2)
    hurry(monkeypatch)
    with dg.DagsterInstance.local_temp(home, overrides=UNCAPTURED) as instance:
        made = Shop(store, instance, engine, monkeypatch)
        yield made
        monkeypatch.setattr(ingest, "IDLE_SECONDS", QUIET)
        made.pool.shutdown()


@pytest.fixture
def looks(shop: Shop) -> tuple[LaneFlows, dict[str, Flow]]:
    """The looks of a lane at which flows to drive, and what the lane has begun."""
    shop.kind = Slot
    shop.add("a")
    job = ingest_job(shop.manifests, dg.ResourceDefinition.none_resource())
    tags = {**job.tags, "dataflow/lane": "shared"}
    run = shop.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags=tags)
    begun: dict[str, Flow] = {}
    given = shop.instance, "shared", run, shop.manifests, lambda _: FlowState("")
    return LaneFlows(*given, driven=lambda: begun), begun
