"""Whose Spark session it is: runs of users' assets see nothing of one another, flows share one."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pyarrow as pa
import pytest

import devservers
from dataflow_assets.location.resources.spark import SparkResource
from dataflow_assets.spark import connect, warm_server
from dataflow_assets.spark import lease as leases
from dataflow_assets.spark.session import Spark, SparkSettings
from tests.stand_in import until

ZONES = {3: "Asia/Tokyo", 100: "America/Lima"}


def test_two_runs_side_by_side_have_views_and_settings_of_their_own(
    spark_server: devservers.SparkConnect,
) -> None:
    both = threading.Barrier(2, timeout=120)

    @dg.asset
    def mine(context: dg.AssetExecutionContext, spark: SparkResource) -> Any:
        rows = int(context.run.tags["rows"])
        session = spark.spark_session
        session.range(rows).createOrReplaceTempView("mine")
        session.conf.set("spark.sql.session.timeZone", ZONES[rows])
        both.wait()
        count = session.sql("select count(*) as n from mine").collect()[0].n
        zone = session.conf.get("spark.sql.session.timeZone")
        both.wait()
        return dg.MaterializeResult(metadata={"count": count, "zone": str(zone)})

    def run(rows: int) -> dict[str, Any]:
        resources = {"spark": SparkResource(where=spark_server.remote)}
        done = dg.materialize([mine], resources=resources, tags={"rows": str(rows)})
        (event,) = done.asset_materializations_for_node("mine")
        return {name: value.value for name, value in event.metadata.items()}

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(run, ZONES))
    assert [(one["count"], one["zone"]) for one in found] == list(ZONES.items())


def test_a_session_of_a_run_ends_with_it_and_that_of_flows_stays(
    spark_server: devservers.SparkConnect,
) -> None:
    resource = SparkResource(where=spark_server.remote)
    own: Any = resource.session()
    shared: Any = resource.flow_session()
    own.range(3).createOrReplaceTempView("mine")
    assert own.session_id != shared.session_id
    assert not shared.catalog.tableExists("mine")
    resource.teardown_after_execution(dg.build_init_resource_context())
    with pytest.raises(Exception, match="SESSION_CLOSED"):
        connect._join(f"{spark_server.remote}/;session_id={own.session_id}", {})
    other = SparkResource(where=spark_server.remote)
    found: Any = other.flow_session()
    assert found.session_id == shared.session_id
    other.teardown_after_execution(dg.build_init_resource_context())


def test_a_server_that_has_closed_many_sessions_gives_another_one(
    spark_server: devservers.SparkConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It closes what nobody has used for an hour: a flow that runs each night has many."""
    monkeypatch.setattr(connect, "GENERATIONS", 2)
    conf = {"spark.sql.session.timeZone": "Africa/Nairobi"}
    for _ in range(4):
        session: Any = connect.attach(spark_server.remote, conf, own=False)
        assert connect._ping(session)
        session.stop()


def test_a_session_leaves_no_process_behind_on_a_warm_server_that_stays_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, gate = tmp_path / "server", tmp_path / "gate"
    monkeypatch.setattr(warm_server, "folder", lambda: folder)
    monkeypatch.setattr(warm_server, "LOOK_SECONDS", 1)
    spark, other = (Spark(SparkSettings("connect"), own=True) for _ in range(2))
    try:
        assert _in_python(spark.session(), gate) == 1
        (parent,) = _parents(folder)
        with ThreadPoolExecutor() as pool:
            busy = pool.submit(_in_python, other.session(), gate, tasks=2)  # takes both slots
            try:
                until(lambda: len(_parents(folder)) == 2)
                spark.close()
                until(lambda: parent not in _parents(folder))
                assert not busy.done()
            finally:
                gate.touch()
            assert busy.result() == 2
        _age(folder)
        until(lambda: _age_of(folder) < 60)  # the watch has looked and found that it is used
        assert len(_parents(folder)) == 1
        other.close()
        until(lambda: not _parents(folder))
        _age(folder)
        until(lambda: warm_server.running(folder) is None)
    finally:
        for each in (spark, other):
            each.close()
        warm_server.stop()


def _in_python(session: Any, gate: Path, tasks: int = 0) -> int:
    """Runs so many tasks that end when the gate is there, or one that does not wait."""
    waits = str(gate) if tasks else None

    def one(batches: Any) -> Any:
        import time
        from pathlib import Path

        for _ in batches:
            while waits and not Path(waits).exists():
                time.sleep(0.05)
            yield pa.record_batch([[1]], ["n"])

    frame = session.range(0, tasks or 1, 1, tasks or 1).mapInArrow(one, "n long")
    return len(frame.collect())


def _parents(folder: Path) -> list[psutil.Process]:
    server = warm_server.running(folder)
    assert server is not None
    assert server.pid is not None
    running = [p for p in psutil.Process(server.pid).children() if p.status() != "zombie"]
    return [process for process in running if "pyspark.daemon" in process.cmdline()]


def _age(folder: Path) -> None:
    long_ago = time.time() - 7200
    os.utime(folder / leases.NAME, (long_ago, long_ago))


def _age_of(folder: Path) -> float:
    return time.time() - (folder / leases.NAME).stat().st_mtime
