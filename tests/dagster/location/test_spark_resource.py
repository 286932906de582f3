"""Spark wherever it runs: sessions, lost servers, edited code, a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.memory import Store
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.location.resources.spark import SparkResource
from dataflow_assets.spark import connect
from dataflow_assets.spark import package as packages
from dataflow_assets.spark.session import Spark, SparkSettings
from tests import ROOT
from tests.dagster.drain_once import package_of_workers


@pytest.mark.parametrize(
    ("where", "mode"),
    [
        ("connect", "connect"),
        ("sc://host:15002", "remote"),
        ("local", "master"),
        ("local[1]", "master"),
        ("spark://host:7077", "master"),
    ],
)
def test_one_setting_says_where_spark_runs(where: str, mode: str) -> None:
    assert SparkSettings(where).mode == mode


def test_another_setting_is_refused() -> None:
    with pytest.raises(PermanentError, match="allowed: connect, local"):
        _ = SparkSettings("yes").mode


def test_a_server_that_is_not_there_is_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_join", None)  # where Spark's client tries for minutes
    with pytest.raises(TransientError, match="nothing listens"):
        Spark(SparkSettings("sc://127.0.0.1:9")).session()


def test_a_session_is_made_once_and_ends_with_the_run(
    spark_server: devservers.SparkConnect,
) -> None:
    resource = SparkResource(where=spark_server.remote, conf={"spark.sql.shuffle.partitions": "3"})
    session = resource.spark_session
    assert session is resource.session()
    assert session.conf.get("spark.sql.shuffle.partitions") == "3"
    resource.teardown_after_execution(dg.build_init_resource_context())
    again = resource.session()
    assert again is not session
    resource.teardown_after_execution(dg.build_init_resource_context())


def test_a_lost_session_is_made_again(mortal_spark: devservers.SparkConnect) -> None:
    settings = SparkSettings(mortal_spark.remote)
    asks, waits = Spark(settings), Spark(settings)
    first, early = asks.session(), waits.session()
    mortal_spark.kill()
    with pytest.raises(TransientError):
        asks.session()
    mortal_spark.start()
    second = asks.session()
    assert second is not first
    late = waits.session()  # it has not asked before: the port answers, the session is gone
    assert late is not early
    assert late.range(3).count() == 3


def test_a_server_that_is_silent_is_waited_for_within_a_deadline(
    mortal_spark: devservers.SparkConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(SparkSettings(mortal_spark.remote), own=True)
    first = spark.session()
    mortal_spark.pause()
    with monkeypatch.context() as patch:
        patch.setattr(connect, "ANSWER_SECONDS", 1)
        patch.setattr(connect, "JOIN_SECONDS", 1)
        with pytest.raises(TransientError, match="no answer within"):
            spark.session()
    mortal_spark.resume()
    assert spark.session() is not first
    mortal_spark.pause()
    with monkeypatch.context() as patch:
        patch.setattr(connect, "ANSWER_SECONDS", 1)
        spark.close()
    mortal_spark.resume()


def test_runs_share_a_session_and_go_on_when_somebody_closed_it(
    spark_server: devservers.SparkConnect,
) -> None:
    settings = SparkSettings(spark_server.remote, {"spark.sql.shuffle.partitions": "5"})
    first: Any = Spark(settings).session()
    second: Any = Spark(settings).session()
    assert first.session_id == second.session_id
    first.stop()
    third: Any = Spark(settings).session()
    assert third.session_id != first.session_id
    assert third.range(3).count() == 3


def test_only_sessions_of_flows_have_batches_that_spark_does_not_measure(
    spark_server: devservers.SparkConnect,
) -> None:
    """Any other number than this one costs flows a third of their speed."""
    name = "spark.sql.execution.arrow.maxBytesPerBatch"
    settings = SparkSettings(spark_server.remote, {name: "1000000"})
    assert Spark(settings).session().conf.get(name) == "2147483647"
    own = Spark(settings, own=True)
    try:
        assert own.session().conf.get(name) == "1000000"
    finally:
        own.close()


def test_edited_code_never_meets_workers_with_the_old_one(
    spark_server: devservers.SparkConnect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for version in ("old", "new"):
        package = tmp_path / version / "dataflow_assets"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"VERSION = {version!r}\n")
        monkeypatch.setattr(packages, "PACKAGE", package)
        spark = Spark(SparkSettings(spark_server.remote))
        found.append(_versions(spark.session()))
        held = spark  # the old session stays open, its workers warm
    assert found == [{"old"}, {"new"}]
    held.close()


def test_the_archive_is_named_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "dataflow_assets"
    folder.mkdir()
    monkeypatch.setattr(packages, "PACKAGE", folder)
    (folder / "__init__.py").write_text("A = 1\n")
    first = packages.package()
    assert packages.package() == first
    (folder / "__init__.py").write_text("A = 2\n")
    assert packages.package() != first


@pytest.mark.parametrize("how", ["of another user", "for everybody", "elsewhere"])
def test_an_archive_that_somebody_else_may_have_put_there_is_refused(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if how == "of another user":
        monkeypatch.setattr(os, "getuid", lambda: 4711)
    else:
        folder = packages.package().parent
        if how == "for everybody":
            folder.chmod(0o777)
        else:
            folder.symlink_to(folder.rename(tmp_path / "elsewhere"))
    with pytest.raises(
        PermanentError, match=r"must be a folder of user .* remove it, or set TMPDIR"
    ):
        packages.package()


@pytest.fixture
def messages() -> Iterator[Store]:
    store = Store(f"where-{os.getpid()}-{time.monotonic_ns()}")
    store.create()
    for partition in (0, 1):
        bodies = [json.dumps({"id": i, "name": "n"}).encode() for i in range(50)]
        store.produce("orders", partition, bodies)
    yield store
    store.remove()


@pytest.mark.e2e
def test_a_flow_runs_in_a_session_of_its_own(messages: Store) -> None:
    _drain("local", messages)


@pytest.mark.full
@pytest.mark.e2e
def test_a_flow_runs_on_a_cluster_with_our_package(messages: Store, tmp_path: Path) -> None:
    with devservers.SparkCluster(tmp_path, workers=2) as cluster:
        files = _drain(cluster.master, messages)
    assert all("dataflow_assets.zip" in file for file in files)


def test_workers_of_a_connect_server_run_our_package_as_it_was_sent(spark: SparkSession) -> None:
    files = package_of_workers(spark)
    assert files
    assert all("dataflow_assets.zip" in file for file in files)


@pytest.mark.full
@pytest.mark.e2e
def test_a_flow_runs_on_a_connect_server_with_our_package(
    messages: Store, spark_server: devservers.SparkConnect
) -> None:
    files = _drain(spark_server.remote, messages)
    assert all("dataflow_assets.zip" in file for file in files)


def _drain(where: str, store: Store) -> list[str]:
    name = store.name
    done = subprocess.run(
        [sys.executable, "-m", "tests.dagster.drain_once", where, name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert len(store.query("select * from rows")) == 100
    return done.stdout.split()


def _versions(session: Any) -> set[str]:
    def version(batches: Any) -> Any:
        import dataflow_assets

        for _ in batches:
            yield pa.record_batch([[dataflow_assets.VERSION]], ["version"])  # type: ignore[attr-defined]

    frame = session.range(0, 4, 1, 4).mapInArrow(version, "version string")
    return {row.version for row in frame.collect()}
