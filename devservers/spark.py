"""Spark: a Connect server that many runs share, and a standalone cluster.

Both use the Spark of the PySpark package, the jars of the lock, and this interpreter for Python
workers.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from typing_extensions import override

from devservers import jars, java
from devservers.process import LOOPBACK, Server, ServerError

DEFAULTS = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.connect.grpc.binding.address": LOOPBACK,
    "spark.connect.execute.manager.detachedTimeout": "20s",
    "spark.log.level": "WARN",
    "spark.scheduler.mode": "FAIR",
    # A loopback socket to the Python worker costs 40 ms twice per task (Nagle against delayed
    # acknowledgements).
    "spark.python.unix.domain.socket.enabled": "true",
    # Spark weighs every row to keep to it, an eighth of its work. What the task can stop at is a
    # batch, and 10,000 large records would be more than this process may have.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 * 1024 * 1024),
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# Of master and worker only: a Connect server would take it for its own.
DAEMON = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1"}


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
        """For `SparkSession.builder.remote`."""
        return f"sc://{LOOPBACK}:{self.ports['connect']}"

    @override
    def endpoints(self) -> dict[str, str]:
        return {"remote": self.remote}

    @override
    def environment(self) -> dict[str, str]:
        return _environment(self.folder) | dict(self.env)

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
            "spark.driver.extraClassPath": class_path,
            "spark.executor.extraClassPath": class_path,
            "spark.local.dir": str(self.folder / "scratch"),
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }


@dataclass(eq=False)
class SparkMaster(Server):
    """The master process of a standalone cluster."""

    name = "spark-master"
    port_names = ("master", "ui")

    @property
    def master(self) -> str:
        """For `spark.master` of whoever uses the cluster."""
        return f"spark://{LOOPBACK}:{self.ports['master']}"

    @override
    def endpoints(self) -> dict[str, str]:
        return {"master": self.master}

    @override
    def environment(self) -> dict[str, str]:
        return _environment(self.folder) | DAEMON

    @override
    def command(self) -> list[str]:
        address = ["--host", LOOPBACK, "--port", str(self.ports["master"])]
        return [*_class("master.Master"), *address, "--webui-port", str(self.ports["ui"])]

    @override
    def ready(self) -> bool:
        return True


@dataclass(eq=False, kw_only=True)
class SparkWorker(Server):
    """One worker with one core."""

    name = "spark-worker"
    port_names = ("worker", "ui")

    master: str
    memory: str = "1g"

    @override
    def endpoints(self) -> dict[str, str]:
        return {"master": self.master}

    @override
    def environment(self) -> dict[str, str]:
        return _environment(self.folder) | DAEMON

    @override
    def command(self) -> list[str]:
        address = ["--host", LOOPBACK, "--port", str(self.ports["worker"])]
        size = ["-c", "1", "-m", self.memory, "-d", str(self.folder / "work")]
        return [
            *_class("worker.Worker"),
            *address,
            "--webui-port",
            str(self.ports["ui"]),
            *size,
            self.master,
        ]

    @override
    def ready(self) -> bool:
        return "registered with master" in self.log.read_text(errors="replace").lower()


class SparkCluster:
    """A standalone cluster at `master`; each of its `workers` can be killed by itself."""

    def __init__(self, folder: Path, *, workers: int = 2, memory: str = "1g") -> None:
        self.folder, self.memory, self.count = Path(folder), memory, workers
        self._master = SparkMaster(self.folder / "master")
        self.workers: list[SparkWorker] = []

    @property
    def master(self) -> str:
        """For `spark.master` of whoever uses the cluster."""
        return self._master.master

    def start(self) -> Self:
        """Start what does not run, killed workers too."""
        self._master.start()
        if not self.workers:
            folders = [self.folder / f"worker-{number}" for number in range(self.count)]
            self.workers = [
                SparkWorker(folder, master=self.master, memory=self.memory) for folder in folders
            ]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda worker: worker.start(), self.workers))
        return self

    def stop(self) -> None:
        """Workers first, or they would look for their master."""
        for server in (*self.workers, self._master):
            server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def spark_home() -> Path:
    """The Spark inside the PySpark package, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServerError("the package pyspark is not installed")
    return Path(spec.origin).parent


def _class(name: str) -> list[str]:
    return [str(spark_home() / "bin/spark-class"), f"org.apache.spark.deploy.{name}"]


def _environment(folder: Path) -> dict[str, str]:
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
