"""A store for the in-memory connectors and an instance of Dagster, new for each test."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.memory import Store
from dataflow_assets.location.sensors.sources import sources
from tests.connectors.postgresql.followed import Followed
from tests.dagster.switch import Switch


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


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
