"""The jobs that keep tables small, over the flows of a location."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
from pyiceberg.catalog import Catalog

import devservers
from dataflow_assets.assets import graph
from dataflow_assets.connectors.iceberg import IcebergSink
from dataflow_assets.connectors.iceberg.maintenance import maintain
from dataflow_assets.connectors.iceberg.table.position import SnapshotPosition
from dataflow_assets.connectors.memory import MemoryOffsetSource, MemorySliceSink
from dataflow_assets.contracts import ErrorRecord, Positions, Rejects, Run, Sink, utc_now
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.location.jobs.tables import table_jobs
from dataflow_assets.sdk.maintenance import Keep, Maintained, Tidied
from tests.connectors.iceberg.driver import make_sink, opened, pump
from tests.connectors.iceberg.source_driver import make_source


@pytest.fixture
def in_ten_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintain, "utc_now", lambda: utc_now() + timedelta(days=10))


def flow(sink: Sink, name: str, connection: str | None = "lake") -> Flow:
    source = MemoryOffsetSource(store="s", topic="orders")
    return Flow("default", name, source, (Branch(sink, connection),))


def filled(seaweedfs: devservers.SeaweedFS, namespace: str) -> IcebergSink:
    """A table of several snapshots."""
    sink = make_sink(seaweedfs, namespace)
    session = opened(sink)
    for start in range(0, 30, 10):
        pump(sink, session, start, 10)
    return sink


def run(flows: list[Flow], instance: dg.DagsterInstance, **config: Any) -> Any:
    (job,), (schedule,) = table_jobs(graph.build(flows))
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    return job.execute_in_process(
        run_config={"ops": {"tidy_tables": {"config": config}}},
        instance=instance,
        raise_on_error=False,
    )


@pytest.mark.usefixtures("in_ten_days")
def test_one_table_that_cannot_be_reached_does_not_keep_the_others(
    seaweedfs: devservers.SeaweedFS,
    catalog: Catalog,
    namespace: str,
    instance: dg.DagsterInstance,
) -> None:
    sink = filled(seaweedfs, namespace)
    before = len(catalog.load_table((namespace, "orders")).snapshots())
    changes = {"catalogURI": "http://127.0.0.1:9", "oauth2ServerURI": "http://127.0.0.1:9/t"}
    lost = make_sink(seaweedfs, namespace, **changes)
    flows = [flow(lost, "a", None), flow(sink, "b"), flow(sink, "c")]
    result = run(flows, instance, snapshots=2)
    assert not result.success
    assert len(catalog.load_table((namespace, "orders")).snapshots()) == 2
    key = dg.AssetKey(["iceberg", "lake", namespace, "orders"])
    (record,) = instance.fetch_observations(key, limit=5).records
    observed: Any = record.asset_observation
    assert observed.metadata["removed_snapshots"].value == before - 2
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    said = str(failure.step_failure_data.user_failure_data)
    assert "127-0-0-1-9" in said
    assert seaweedfs.secret_key not in said


def test_what_running_flows_need_is_refused_in_the_launchpad(
    seaweedfs: devservers.SeaweedFS, namespace: str, instance: dg.DagsterInstance
) -> None:
    result = run([flow(make_sink(seaweedfs, namespace), "a")], instance, orphan_days=0.1)
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    assert "running flows need" in str(failure.step_failure_data.user_failure_data)


@pytest.mark.usefixtures("in_ten_days")
def test_an_error_sinks_table_is_kept_small_too(
    seaweedfs: devservers.SeaweedFS,
    catalog: Catalog,
    namespace: str,
    instance: dg.DagsterInstance,
) -> None:
    errors = make_sink(seaweedfs, namespace)
    store = errors.error_store()
    store.prepare()
    for number in range(4):
        store.store(
            [ErrorRecord(f"id-{number}", "f", b'{"error":{},"original_message":{}}', b"{}")]
        )
    policies = Policies(rejects=Rejects("errors", errors))
    branches = (Branch(MemorySliceSink(store="s", table="t")),)
    source = MemoryOffsetSource(store="s", topic="orders")
    result = run([Flow("default", "a", source, branches, policies)], instance, snapshots=2)
    assert result.success
    table = catalog.load_table((namespace, "orders"))
    assert len(table.snapshots()) == 2
    assert table.scan().to_arrow().num_rows == 4


@pytest.mark.usefixtures("in_ten_days")
def test_what_a_flow_has_not_read_stays(
    seaweedfs: devservers.SeaweedFS,
    catalog: Catalog,
    namespace: str,
    instance: dg.DagsterInstance,
) -> None:
    """The reader stands behind the second snapshot."""
    sink = filled(seaweedfs, namespace)

    def kept() -> list[int]:
        found = catalog.load_table((namespace, "orders")).snapshots()
        return [one.snapshot_id for one in sorted(found, key=lambda one: one.timestamp_ms)]

    before = kept()
    at = catalog.load_table((namespace, "orders")).snapshot_by_id(before[1])
    assert at is not None
    source = make_source(seaweedfs, namespace, table="orders")
    name = uuid.uuid4().hex
    branch = Branch(MemorySliceSink(store=name, table="t"))
    reader = Flow("default", "reader", source, (branch,), source_connection="lake")
    with closing(branch.sink.open(reader.target(branch), Run())) as reading:
        reading.restart({"table": SnapshotPosition.after(at).text()}, "id")
    flows = [flow(sink, "writer"), reader]
    assert run(flows, instance, snapshots=1).success
    assert kept() == before  # the first was current until then
    key = dg.AssetKey(["iceberg", "lake", namespace, "orders"])
    (record,) = instance.fetch_observations(key, limit=1).records
    assert record.asset_observation is not None
    assert "a flow has not read" in str(record.asset_observation.metadata["note"].value)
    assert run(flows, instance, snapshots=1, unread_days=2).success
    assert kept() == before[-1:]


class Dusty(MemorySliceSink, Maintained):
    """A second system whose tables need maintenance."""

    def maintain(self, keep: Keep, readers: Sequence[Positions]) -> list[Tidied]:
        raise PermanentError(f"{keep.snapshots} snapshots, {len(readers)} readers")


def test_each_system_that_needs_maintenance_has_a_job_of_its_own(
    instance: dg.DagsterInstance,
) -> None:
    config = {"catalogURI": "http://nowhere:9", "namespace": "n", "table": "orders"}
    flows = [
        flow(IcebergSink.model_validate(config), "a"),
        flow(IcebergSink.model_validate(config), "b"),
        flow(Dusty(store="s", table="t"), "c", None),
        flow(MemorySliceSink(store="s", table="u"), "d", None),
    ]
    jobs, schedules = table_jobs(graph.build(flows))
    defs = dg.Definitions(jobs=jobs, schedules=schedules)
    names = ["iceberg_maintenance", "memory_maintenance"]
    assert [job.name for job in jobs] == names
    assert [schedule.name for schedule in schedules] == [f"{name}_schedule" for name in names]
    result = defs.resolve_job_def(names[1]).execute_in_process(
        run_config={"ops": {"tidy_tables": {"config": {"snapshots": 7}}}},
        instance=instance,
        raise_on_error=False,
    )
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    said = str(failure.step_failure_data.user_failure_data)
    assert "7 snapshots, 0 readers" in said


def test_without_such_tables_there_is_no_job() -> None:
    assert table_jobs(graph.build([])) == ([], [])
