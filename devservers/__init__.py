"""Real servers as local processes, no containers: for tests, the demo and `dataflow servers`.

`up` starts them side by side and leaves them running, `read` finds them again, `down` ends them.
All three meet in `servers.json` of one folder, which also holds the servers' data: a second `up`
finds yesterday's tables and topics on yesterday's ports.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from devservers.clickhouse import ClickHouse
from devservers.kafka import Kafka, ProxiedKafka
from devservers.postgresql import PostgreSQL
from devservers.process import Server, ServerError
from devservers.proxy import Proxy
from devservers.seaweedfs import SeaweedFS
from devservers.spark import SparkCluster, SparkConnect
from devservers.system import boot_id

__all__ = [
    "ClickHouse",
    "Kafka",
    "PostgreSQL",
    "ProxiedKafka",
    "Proxy",
    "SeaweedFS",
    "ServerError",
    "Servers",
    "SparkCluster",
    "SparkConnect",
    "down",
    "read",
    "up",
]

FILE = "servers.json"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Servers:
    """The servers of one folder that run; None for those that do not."""

    kafka: Kafka | None = None
    postgresql: PostgreSQL | None = None
    seaweedfs: SeaweedFS | None = None
    clickhouse: ClickHouse | None = None
    spark: SparkConnect | None = None

    def running(self) -> Iterator[Server]:
        """Those that are there."""
        yield from (server for field in fields(self) if (server := getattr(self, field.name)))


def up(  # noqa: PLR0913 (a switch per server)
    folder: Path,
    *,
    kafka: bool = True,
    postgresql: bool = True,
    seaweedfs: bool = True,
    clickhouse: bool = True,
    spark: bool = False,
    progress: Progress = print,
) -> Servers:
    """Start what is wanted and not yet running. When one fails, the others stay up."""
    folder = folder.absolute()
    flags = {
        "kafka": kafka,
        "postgresql": postgresql,
        "seaweedfs": seaweedfs,
        "clickhouse": clickhouse,
        "spark": spark,
    }
    wanted = {name for name, flag in flags.items() if flag}
    with _locked(folder):
        servers = _attach(folder)
        wanted -= servers.keys()
        missing = [server for server in _all(folder).values() if server.name in wanted]
        try:
            for server in _start(missing, progress):
                servers[server.name] = server
        finally:
            _write(folder, servers)
    return _bundle(servers)


def read(folder: Path) -> Servers:
    """The running servers of a folder; one that died or never was there is None."""
    return _bundle(_attach(folder))


def down(folder: Path, progress: Progress = print) -> None:
    """Stop the servers of a folder, nobody else: process numbers are checked with start times."""
    with _locked(folder):
        servers = list(_attach(folder).values())
        with ThreadPoolExecutor() as pool:
            for server, _ in zip(servers, pool.map(lambda each: each.stop(), servers), strict=True):
                progress(f"{server.name} stopped")
        (folder / FILE).unlink(missing_ok=True)


def _all(folder: Path) -> dict[str, Server]:
    servers: list[Server] = [
        Kafka(folder / "kafka", detached=True),
        PostgreSQL(folder / "postgresql", detached=True),
        SeaweedFS(folder / "seaweedfs", detached=True),
        ClickHouse(folder / "clickhouse", detached=True),
        SparkConnect(folder / "spark", detached=True),
    ]
    return {server.name: server for server in servers}


def _start(servers: list[Server], progress: Progress) -> Iterator[Server]:
    """Side by side, each handed over as it answers; failures are raised when all have settled."""
    failures: list[BaseException] = []
    with ThreadPoolExecutor() as pool:
        for future in as_completed(pool.submit(server.start) for server in servers):
            if error := future.exception():
                failures.append(error)
                continue
            server = future.result()
            progress(f"{server.name} runs (pid {server.pid}): {_describe(server)}")
            yield server
    if failures:
        raise ServerError("\n".join(map(str, failures))) from failures[0]


def _describe(server: Server) -> str:
    return next(iter(server.endpoints().values()))


def _attach(folder: Path) -> dict[str, Server]:
    """What servers.json names and still lives. Another boot's process numbers mean nothing."""
    file = folder / FILE
    known = json.loads(file.read_text()) if file.exists() else {}
    if known.get("boot_id") != boot_id():
        return {}
    servers = _all(folder)
    return {
        name: servers[name]
        for name, entry in known["servers"].items()
        if servers[name].attach(entry["process"], entry["ports"])
    }


def _write(folder: Path, servers: dict[str, Server]) -> None:
    entries = {
        name: {
            "process": server.identity(),
            "ports": {**server.ports},
            "endpoints": {**server.endpoints()},
        }
        for name, server in servers.items()
    }
    scratch = folder / f".{FILE}"
    scratch.write_text(json.dumps({"boot_id": boot_id(), "servers": entries}, indent=2) + "\n")
    scratch.replace(folder / FILE)


def _bundle(servers: dict[str, Server]) -> Servers:
    return Servers(**servers)  # type: ignore[arg-type]  # each is in the field of its name


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One `up` or `down` at a time per folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
