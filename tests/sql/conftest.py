from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import devservers
from dataflow_assets.flow import Flow
from dataflow_assets.runs.request import Report
from tests.conftest import Topics
from tests.drained import drained
from tests.sql.files import Sql


@pytest.fixture
def sql(tmp_path: Path, kafka: devservers.Kafka, topic: Topics) -> Sql:
    return Sql(tmp_path / "one.sql", kafka, topic(), topic())


@pytest.fixture
def run() -> Callable[[Flow], list[Report]]:
    """Drains a flow in this process."""
    return drained
