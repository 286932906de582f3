"""A store for the in-memory connectors and an instance of Dagster, new for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.memory import Store
from dataflow_assets.location.sensors.sources import sources
from tests.connectors.postgresql.cdc.followed import Followed
from tests.dagster.switch import Switch
from tests.windows import WallClock


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture(scope="session")
def _empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an instance on disk that holds nothing: making its tables takes half a second."""
    folder = tmp_path_factory.mktemp("dagster")
    with dg.DagsterInstance.local_temp(str(folder)):
        return folder


@pytest.fixture
def home(_empty_home: Path, tmp_path: Path) -> str:
    """The folder of a new instance on disk, with its tables."""
    return str(shutil.copytree(_empty_home, tmp_path / "dagster"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(monkeypatch)


@pytest.fixture
def switch(store: Store, instance: dg.DagsterInstance) -> Iterator[Switch]:
    yield Switch(store, instance)
    sources.close()


@pytest.fixture
def followed(
    postgresql: devservers.PostgreSQL, schema: str, engine: SparkSession
) -> Iterator[Followed]:
    """A table of one column that is followed."""
    made = Followed(postgresql.dsn(), schema, engine)
    made.make("id int PRIMARY KEY")
    yield made
    sources.close()
    made.remove()
