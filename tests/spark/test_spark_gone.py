"""A Connect server that ends before its clients do: one sentence, and silence afterwards."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from grpc import RpcError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import devservers
from dataflow_assets.spark import errors
from dataflow_assets.spark.session import Spark, SparkSettings
from tests import ROOT

CLIENT = """
import sys
from dataflow_assets.spark.session import Spark, SparkSettings
session = Spark(SparkSettings(sys.argv[1])).session()
session.range(1).toArrow()
print("ready", flush=True)
input()
try:
    session.range(1).toArrow()
except Exception:
    print("gone", flush=True)
"""


@pytest.fixture
def bereft(
    mortal_spark: devservers.SparkConnect,
) -> Iterator[tuple[DataFrame, subprocess.Popen[str]]]:
    """A frame here and a client in a process of its own, both of a server that was killed."""
    frame = Spark(SparkSettings(mortal_spark.remote)).session().range(1)
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, mortal_spark.remote],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    mortal_spark.kill()
    yield frame, client
    client.kill()


@pytest.mark.filterwarnings("default:.RETRIES_EXCEEDED")  # the filter of pytest is above ours
def test_what_is_told_when_the_server_is_gone(
    bereft: tuple[DataFrame, subprocess.Popen[str]],
) -> None:
    frame, client = bereft
    with pytest.raises((PySparkException, RpcError)) as caught:
        frame.toArrow()
    told = errors.sentence(caught.value)
    assert "refused" in told or "failed to connect" in told
    assert "\n" not in told
    out, err = client.communicate("go on\n", timeout=60)
    assert (out, err) == ("gone\n", "")
