"""A store for the in-memory connectors and an instance of Dagster, new for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import dagster as dg
import pytest

from dataflow_assets.connectors.memory import Store


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store(f"shell-{uuid.uuid4().hex[:8]}")
    store.create()
    yield store
    store.remove()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance
