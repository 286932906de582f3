"""Spark Connect in the foreground, for other machines, as a pod of a cluster runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dataflow_assets.spark import system
from dataflow_assets.spark.session import Spark, SparkSettings

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    (port,) = system.free_ports(1)
    command = [sys.executable, "-m", "dataflow_assets.spark", "--folder", str(tmp_path / "spark")]
    command += ["--port", str(port), "--memory", "1g", "--master", "local[1,4]"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ)
    try:
        while system.is_free(port):
            assert process.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.2)
        yield port
    finally:
        process.kill()
        process.wait(30)


def test_a_session_of_another_machine_works(port: int) -> None:
    spark = Spark(SparkSettings(where=f"sc://127.0.0.1:{port}"))
    try:
        assert spark.session().range(7).count() == 7
    finally:
        spark.close()
