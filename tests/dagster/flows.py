"""Flows over in-memory connectors, and the Dagster runs of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from pyspark.sql import SparkSession

from dataflow_assets.assets import graph
from dataflow_assets.assets.build import assets
from dataflow_assets.connectors.memory import (
    MemoryOffsetSource,
    MemorySliceSink,
    Store,
)
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.location.jobs.flows import flow_job
from dataflow_assets.location.jobs.ingest import ingest_job
from dataflow_assets.location.resources.io_managers import io_managers
from dataflow_assets.location.schedules.flows import flow_schedule
from dataflow_assets.location.sensors.flows import flow_sensor
from dataflow_assets.location.sensors.ingest import ingest_sensor
from dataflow_assets.manifests.load import Loaded


def memory_flow(
    store: Store,
    name: str = "orders",
    *,
    topic: str = "orders",
    table: str = "orders",
    kind: type[MemoryOffsetSource] = MemoryOffsetSource,
    **more: Any,
) -> Flow:
    """topic -> table, both in memory."""
    source = kind(store=store.name, topic=topic)
    sink = MemorySliceSink(store=store.name, table=table)
    branches = more.pop("branches", (Branch(sink),))
    return Flow("default", name, source, branches, hash=more.pop("hash", "h" * 64), **more)


@dataclass
class SharedSpark:
    """The test session's Spark in the place of SparkResource."""

    spark: SparkSession | None

    def session(self) -> SparkSession:
        assert self.spark is not None
        return self.spark

    flow_session = session


def location(flows: Sequence[Flow], spark: SparkSession | None = None) -> dg.Definitions:
    """The flows as a code location whose runs share one Spark session."""
    built = graph.build(flows)
    jobs = [flow_job(flow, built.of(flow)) for flow in flows]
    shared = dg.ResourceDefinition.hardcoded_resource(SharedSpark(spark))
    lanes = ingest_job(lambda: Loaded(tuple(flows)), shared)
    pairs = list(zip(flows, jobs, strict=True))
    switches = [flow_sensor(flow, job) for flow, job in pairs if not flow.schedule]
    crons = [flow_schedule(flow, flow.schedule, job) for flow, job in pairs if flow.schedule]
    return dg.Definitions(
        assets=assets(built),
        jobs=[*jobs, lanes],
        schedules=crons,
        sensors=[*switches, ingest_sensor(built, [lanes, *jobs])],
        resources={"spark": shared, **io_managers(built)},
        executor=dg.in_process_executor,
    )
