"""What the demos have in common: servers on fixed ports, a shop, Dagster, and where to look.

The manifests of a demo are used as they stand; where their ports are taken, DATAFLOW_DEMO_OFFSET
moves all ports, and copies of the manifests with them.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import psycopg
from psycopg import sql

from dataflow_assets.spark import system
from dataflow_assets.spark.jars import ROOT
from dataflow_assets.spark.process import LOOPBACK, Server, ServerError
from dataflow_assets.spark.server import SparkConnect
from devservers.demo.dagster_dev import WEB, Dagster
from devservers.postgresql import PostgreSQL

OFFSET = "DATAFLOW_DEMO_OFFSET"
OWNER = "shop"  # a role of PostgreSQL, and its database
PASSWORD = "shop-password"  # noqa: S105 (stands in the demos' secrets.yaml)
POSTGRESQL = {"postgresql": 15432}
SPARK = {"connect": 15002}
QUOTED_PORTS = re.compile(r"(?<=127\.0\.0\.1:)\d+")

Say = Callable[[str], None]


class Demo(ABC):
    """The servers, the shop and Dagster of one folder. A subclass adds its servers and its shop."""

    name: ClassVar[str]
    """Of its folder in examples/ and in .data/, and of the target of make that starts it."""
    databases: ClassVar[Mapping[str, str]] = {OWNER: ""}
    """Of PostgreSQL, each with the attributes of its owner, a role of the same name."""

    def __init__(self, folder: Path, offset: int, say: Say) -> None:
        self._say, self._folder, self._offset = say, folder, offset
        self.postgresql = PostgreSQL(folder / "postgresql", ports=self.moved(POSTGRESQL))
        self.spark = SparkConnect(folder / "spark", ports=self.moved(SPARK))
        self.dagster = Dagster(folder / "dagster", port=WEB + offset)

    @property
    def servers(self) -> list[Server]:
        """What the flows read, write and run on."""
        return [self.postgresql, self.spark]

    @abstractmethod
    def open_shop(self, stack: ExitStack) -> None:
        """Makes what the flows need, and has the shop go on until the stack is closed."""

    @abstractmethod
    def places(self) -> Iterator[tuple[str, str]]:
        """What there is to look at beside Dagster: name and place."""

    def variables(self) -> dict[str, str]:
        """Of the environment of Dagster."""
        flows = os.pathsep.join(map(str, (self.manifests, ROOT / "flows")))
        return {
            "DATAFLOW_FLOWS": flows,
            "DATAFLOW_START": "1",
            "DATAFLOW_SPARK": self.spark.remote,
        }

    def status_command(self) -> str:
        """What shows on a terminal how far the flows are."""
        return (
            f"DAGSTER_HOME={self.dagster.folder.absolute()} dataflow status {near(self.manifests)}"
        )

    def moved(self, ports: Mapping[str, int]) -> dict[str, int]:
        """These ports by the offset."""
        return {name: port + self._offset for name, port in ports.items()}

    @property
    def manifests(self) -> Path:
        """The examples themselves, or copies whose ports are moved."""
        return self._folder / "flows" if self._offset else self._examples

    def check(self) -> None:
        """Raises ServerError when one of the ports is taken."""
        wanted = {"dagster": self.dagster.port}
        for server in self.servers:
            wanted |= {f"{server.name} {name}": port for name, port in server.ports.items()}
        taken = [f"{port} ({name})" for name, port in wanted.items() if not system.is_free(port)]
        if taken:
            raise ServerError(
                f"the demo needs ports that somebody listens on: {', '.join(taken)}; end that "
                f"program, or move all of the demo's ports, for example by {OFFSET}=1000"
            )

    def start(self, stack: ExitStack, ended: threading.Event) -> bool:
        """Starts all of it; what began is stopped by the stack. False: ended meanwhile."""
        self._say(f"starting; data and logs are kept in {self._folder}")
        stack.callback(_stop, self.servers, self._say)
        for server in _side_by_side(self.servers):
            self._say(f"{server.name} answers: {next(iter(server.endpoints().values()))}")
        self._copy_manifests()
        for name, attributes in self.databases.items():
            self._make_database(name, attributes)
        if ended.is_set():
            return False
        self.open_shop(stack)
        self.dagster.variables = self.variables()
        self._say("starting Dagster, which loads the manifests: half a minute on an idle machine")
        stack.callback(_stop, [self.dagster], self._say)
        self.dagster.start()
        return not ended.is_set()

    def show(self) -> None:
        """Where to look."""
        listed = {
            "Dagster": self.dagster.url,
            "how far": self.status_command(),
            "manifests": f"{near(self.manifests)}; drop your own into {near(ROOT / 'flows')}",
            **dict(self.places()),
            "logs": f"{near(self._folder)}/*/*.log",
        }
        printed("")
        for name, place in listed.items():
            self._say(f"  {name:<15} {place}")
        printed("")
        self._say("Ctrl-C stops all of it; the data stays")

    def watch(self, ended: threading.Event) -> int:
        """Waits for the end; says so when a server ends by itself."""
        while not ended.wait(1):
            for server in (*self.servers, self.dagster):
                if not server.running:
                    self._say(f"{server.name} has ended by itself; see {near(server.log)}")
                    return 1
        return 0

    def dsn(self, database: str = OWNER) -> str:
        """Of one of the databases, as its owner."""
        return f"postgresql://{database}:{PASSWORD}@{LOOPBACK}:{self.postgresql.port}/{database}"

    @property
    def _examples(self) -> Path:
        return ROOT / "examples" / self.name

    def _copy_manifests(self) -> None:
        if not self._offset:
            return
        folder = self.manifests
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._examples, folder)
        for file in (one for kind in ("yaml", "py", "sql") for one in folder.glob(f"*.{kind}")):
            moved = QUOTED_PORTS.sub(lambda m: str(int(m[0]) + self._offset), file.read_text())
            file.write_text(moved)

    def _make_database(self, name: str, attributes: str) -> None:
        with psycopg.connect(self.postgresql.dsn(), autocommit=True) as connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
            if known.fetchone() is None:
                role = sql.SQL(f"CREATE ROLE {{}} LOGIN {attributes} PASSWORD {{}}")
                connection.execute(role.format(sql.Identifier(name), sql.Literal(PASSWORD)))
                database = sql.SQL("CREATE DATABASE {0} OWNER {0}")
                connection.execute(database.format(sql.Identifier(name)))


def near(path: Path) -> str:
    """The path as one would type it here."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def printed(text: str) -> None:
    """A line on the terminal."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _side_by_side(servers: list[Server]) -> Iterator[Server]:
    """Starts them; each is handed over as it answers. The first failure is raised at the end."""
    with ThreadPoolExecutor(len(servers)) as pool:
        failures = []
        for future in as_completed([pool.submit(server.start) for server in servers]):
            if error := future.exception():
                failures.append(error)
            else:
                yield future.result()
    if failures:
        raise ServerError("\n".join(map(str, failures)))


def _stop(servers: list[Server], say: Say) -> None:
    with ThreadPoolExecutor(len(servers)) as pool:
        for server, _ in zip(servers, pool.map(lambda each: each.stop(), servers), strict=True):
            say(f"{server.name} stopped")
