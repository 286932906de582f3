"""A process that is inside a cluster, as far as it can tell."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import psycopg
import pytest

import devservers
from dataflow_assets.secrets import cluster, cluster_api
from tests.in_process import Session
from tests.secrets.api import Api

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> SparkSession:
    """Never on Spark: sinks that are declared in a test are known in its process only."""
    return cast("SparkSession", Session(partial(request.getfixturevalue, "spark")))


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """The cluster's API, which a process finds as it does in a pod."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    server = Api(folder)
    server.start()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setenv(cluster_api.ACCOUNT, str(folder))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # does not lead to the API
    cluster.forget()
    yield server
    server.stop()
    cluster.forget()


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[devservers.PostgreSQL]:
    """A server that asks everybody but its owner for a password, and a role `flow` in it."""
    folder = tmp_path_factory.mktemp("locked")
    rules = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
    (folder / "pg_hba.conf").write_text(rules)
    folder.chmod(0o755)
    config = {"hba_file": str(folder / "pg_hba.conf")}
    with devservers.PostgreSQL(folder / "data", config=config) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE ROLE flow LOGIN")
            connection.execute("CREATE SCHEMA flow AUTHORIZATION flow")
            connection.execute("GRANT CREATE ON SCHEMA public TO flow")
        yield server
