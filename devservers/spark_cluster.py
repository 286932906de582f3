"""A standalone Spark cluster: a master and workers as processes that can be killed one by one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from typing_extensions import override

from dataflow_assets.spark.process import LOOPBACK, Server
from dataflow_assets.spark.server import environment, spark_home

# Of master and worker only: a Connect server would take it for its own.
DAEMON = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1"}


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
        return environment(self.folder) | DAEMON

    @override
    def command(self) -> list[str]:
        address = ["--host", LOOPBACK, "--port", str(self.ports["master"])]
        return [*_command("master.Master"), *address, "--webui-port", str(self.ports["ui"])]

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
        return environment(self.folder) | DAEMON

    @override
    def command(self) -> list[str]:
        address = ["--host", LOOPBACK, "--port", str(self.ports["worker"])]
        size = ["-c", "1", "-m", self.memory, "-d", str(self.folder / "work")]
        return [
            *_command("worker.Worker"),
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


def _command(name: str) -> list[str]:
    return [str(spark_home() / "bin/spark-class"), f"org.apache.spark.deploy.{name}"]
