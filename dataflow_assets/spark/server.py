"""A Spark Connect server as a local process, which many runs share.

It uses the Spark of the PySpark package, the jars of the lock, and this interpreter for Python
workers.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import override

from dataflow_assets.spark import jars, java
from dataflow_assets.spark.process import LOOPBACK, Server, ServerError

ARROW_RECORDS = 3_000  # of a batch; what is large is judged by it (kafka/source/large_records)
FLOW_SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_RECORDS),
    # Exactly this number switches the bound in bytes off. With any other one Spark computes the
    # size of the batch after each row (docs/decisions.md, Kafka).
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
DEFAULTS = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.connect.grpc.binding.address": LOOPBACK,
    "spark.connect.execute.manager.detachedTimeout": "20s",
    "spark.log.level": "WARN",
    "spark.scheduler.mode": "FAIR",
    "spark.scheduler.allocation.file": Path(__file__).with_name("fair_jobs.xml").as_uri(),
    # A loopback socket to the Python worker costs 40 ms twice per task (Nagle against delayed
    # acknowledgements).
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@dataclass(eq=False, kw_only=True)
class SparkConnect(Server):
    """A Connect server at `remote`, for `SparkSession.builder.remote(...)`.

    `local[2,4]`, not `local[2]`: the latter does not retry a failed task. Sessions do not survive
    `kill`.
    """

    name = "spark"
    port_names = ("connect",)

    master: str = "local[2,4]"
    conf: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    memory: str = "1g"

    @property
    def remote(self) -> str:
        return f"sc://{LOOPBACK}:{self.ports['connect']}"

    @override
    def endpoints(self) -> dict[str, str]:
        return {"remote": self.remote}

    @override
    def environment(self) -> dict[str, str]:
        return environment(self.folder) | dict(self.env)

    @override
    def command(self) -> list[str]:
        conf = DEFAULTS | self._here() | dict(self.conf)
        options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
        main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        submit = [str(spark_home() / "bin/spark-submit"), "--master", self.master]
        return [*submit, "--driver-memory", self.memory, *main, *options, "spark-internal"]

    @override
    def ready(self) -> bool:
        return True  # it listens only once its Spark runs

    def _here(self) -> dict[str, str]:
        # On the class path rather than as `--jars`: those are copied at every start.
        class_path = ":".join(map(str, jars.fetch("spark")))
        return {
            "spark.connect.grpc.binding.port": str(self.ports["connect"]),
            "spark.driver.defaultJavaOptions": " ".join(java.OPTIONS),
            "spark.driver.extraClassPath": class_path,
            "spark.executor.extraClassPath": class_path,
            "spark.local.dir": str(self.folder / "scratch"),
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }


def spark_home() -> Path:
    """The Spark inside the PySpark package, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServerError("the package pyspark is not installed")
    return Path(spec.origin).parent


def environment(folder: Path) -> dict[str, str]:
    """Variables by which a Spark process finds Java, Spark and this interpreter, on top of ours."""
    return {
        "JAVA_HOME": str(java.home()),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LOG_DIR": str(folder),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
