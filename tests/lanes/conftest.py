"""Lanes that do not wait long, and small flows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dataflow_assets.flow import Flow
from tests.lanes.driving import PATIENCE, Driving, Memory, hurry


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture
def memory() -> Iterator[Any]:
    """A factory of small flows."""
    made: list[Memory] = []

    def make(**options: Any) -> Memory:
        made.append(Memory(**options))
        return made[-1]

    yield make
    for case in made:
        case.store.remove()


@pytest.fixture
def drive(engine: SparkSession) -> Iterator[Any]:
    """A factory of lanes; each is ended after the test."""
    driven: list[Driving] = []

    def make(*flows: Flow, patience: Any = PATIENCE, spark: Any = engine) -> Driving:
        driven.append(Driving(lambda: spark, flows, patience))
        return driven[-1]

    yield make
    for one in driven:
        one.end()
