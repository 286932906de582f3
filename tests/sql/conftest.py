from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

import devservers
from dataflow_assets.flow import Flow
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Report, Request
from tests.conftest import Topics
from tests.in_process import Session
from tests.sql.files import Sql


@pytest.fixture
def sql(tmp_path: Path, kafka: devservers.Kafka, topic: Topics) -> Sql:
    return Sql(tmp_path / "one.sql", kafka, topic(), topic())


@pytest.fixture
def run() -> Callable[[Flow], list[Report]]:
    """Drains a flow in this process; small micro-batches need no Spark."""

    def no_spark() -> NoReturn:
        raise NotImplementedError("this flow needs no Spark")

    def drained(flow: Flow) -> list[Report]:
        session = cast("Any", Session(no_spark))
        return list(drain(flow, lambda: session, Request(patience=Patience(0, 0.05, 0.2))))

    return drained
