"""Fixtures of the PostgreSQL connector's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import devservers
from tests.connectors.postgresql.cdc.followed import Followed


@pytest.fixture
def followed(
    postgresql: devservers.PostgreSQL, schema: str, engine: SparkSession
) -> Iterator[Followed]:
    """A table that is followed into an upserted one; slot and publication go after the test."""
    made = Followed(postgresql.dsn(), schema, engine)
    yield made
    made.remove()
