"""The stand-in for an API server, and runs in this process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import pytest

from tests.in_process import Session
from tests.kubernetes.stand_in import api

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["api"]


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> SparkSession:
    """Never on Spark: what is tested is beside the flows."""
    return cast("SparkSession", Session(partial(request.getfixturevalue, "spark")))
