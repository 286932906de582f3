"""Whose Spark session it is: runs of users' assets see nothing of one another, flows share one."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pyarrow as pa
import pytest

import devservers
from dataflow_assets.spark import lease as leases
from dataflow_assets.spark import session as sparks
from dataflow_assets.spark import warm_server
from dataflow_assets.spark.lease import Lease
from dataflow_assets.spark.session import Spark, SparkSettings
from dataflow_assets.spark.warm_server import end_unused
from resources.spark import SparkResource

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
        sparks._join(f"{spark_server.remote}/;session_id={own.session_id}", {})
    other = SparkResource(where=spark_server.remote)
    found: Any = other.flow_session()
    assert found.session_id == shared.session_id
    other.teardown_after_execution(dg.build_init_resource_context())


def test_a_server_that_has_closed_many_sessions_gives_another_one(
    spark_server: devservers.SparkConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It closes what nobody has used for an hour: a flow that runs each night has many."""
    monkeypatch.setattr(sparks, "GENERATIONS", 2)
    conf = {"spark.sql.session.timeZone": "Africa/Nairobi"}
    for _ in range(4):
        session: Any = sparks._attach(spark_server.remote, conf, own=False)
        assert sparks._ping(session)
        session.stop()


def test_a_server_in_use_is_not_ended_and_a_session_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "server"
    monkeypatch.setattr(warm_server, "folder", lambda: folder)
    monkeypatch.setattr(warm_server, "LOOK_SECONDS", 1)
    spark = Spark(SparkSettings("connect"), own=True)
    try:
        session = spark.session()
        _age(folder)
        _until(lambda: _age_of(folder) < 60)  # the watch has looked and found that it is used
        assert _in_python(session) == 1
        assert _parents(folder)
        spark.close()
        _until(lambda: not _parents(folder))
        _age(folder)
        _until(lambda: warm_server.running(folder) is None)
    finally:
        spark.close()
        warm_server.stop()


def test_the_watch_finds_that_the_server_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_server, "LOOK_SECONDS", 1)
    with subprocess.Popen(["sleep", "60"]) as server, Lease(tmp_path):
        _age(tmp_path)
        warm_server.watch(server.pid, tmp_path)
        try:
            _until(lambda: _age_of(tmp_path) < 60, seconds=20)
        finally:
            server.kill()


def test_who_holds_a_lease_keeps_the_server_until_its_process_ends(tmp_path: Path) -> None:
    code = f"import sys; from pathlib import Path; from {leases.__name__} import Lease\n"
    code += "lease = Lease(Path(sys.argv[1])); print('held', flush=True); input()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        _age(tmp_path)
        assert not end_unused(tmp_path, 60)
        assert _age_of(tmp_path) < 60
        holder.kill()
        holder.wait()
        assert not end_unused(tmp_path, 60)  # it was used a moment ago
        _age(tmp_path)
        assert end_unused(tmp_path, 60)


def test_leases_are_shared_and_the_last_use_counts(tmp_path: Path) -> None:
    with Lease(tmp_path) as first, Lease(tmp_path):
        first.close()
        first.close()
        assert not end_unused(tmp_path, 0)
        _age(tmp_path)
    assert _age_of(tmp_path) < 60
    assert end_unused(tmp_path, 0)


def _in_python(session: Any) -> int:
    def one(batches: Any) -> Any:
        for _ in batches:
            yield pa.record_batch([[1]], ["n"])

    rows = session.range(0, 1, 1, 1).mapInArrow(one, "n long").collect()
    return len(rows)


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


def _until(true: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)
