from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import devservers
from dataflow_assets.flow import Flow
from dataflow_assets.runs.request import Report
from tests.conftest import Topics
from tests.drained import drained
from tests.languages.sql.files import Sql


@pytest.fixture
def sql(tmp_path: Path, kafka: devservers.Kafka, topic: Topics) -> Sql:
    return Sql(tmp_path / "one.sql", kafka, topic(), topic())


@pytest.fixture
def run() -> Callable[[Flow], list[Report]]:
    """Drains a flow in this process."""
    return drained


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Without fsync: nobody takes the power away."""
    found = tmp_path_factory.mktemp("states")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATAFLOW_FILES", str(found))
        patch.setattr(os, "fsync", lambda _: None)
        yield found
