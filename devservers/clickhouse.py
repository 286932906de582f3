"""ClickHouse: the engine of the package chdb, reached over ClickHouse's HTTP interface.

Loopback only, one user with a password. Acknowledged inserts and their deduplication tokens
survive `kill`. There is no native protocol, no replica and no Keeper. Databases are Atomic as on
a real server, so tables have UUIDs and `EXCHANGE TABLES` works; the engine's own `default` is not.
"""

from __future__ import annotations

import sys
import urllib.request
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.spark.process import LOOPBACK, Server


@dataclass(eq=False)
class ClickHouse(Server):
    """An engine reached by `dsn()`; without a database's name it is `database`."""

    name = "clickhouse"
    port_names = ("http",)
    needs = ("chdb", "lz4", "zstandard")

    user: ClassVar[str] = "dataflow"
    password: ClassVar[str] = "dataflow-secret"  # noqa: S105 (loopback only)
    database: ClassVar[str] = "dataflow"

    @property
    def port(self) -> int:
        """The HTTP port on the loopback address."""
        return self.ports["http"]

    def dsn(self, database: str | None = None) -> str:
        """A connection string for manifests and for `clickhouse_connect.get_client(dsn=...)`."""
        place = f"{LOOPBACK}:{self.port}/{database or self.database}"
        return f"http://{self.user}:{self.password}@{place}"

    @override
    def endpoints(self) -> dict[str, str]:
        return {"dsn": self.dsn()}

    @override
    def prepare(self) -> None:
        (self.folder / "data").mkdir(exist_ok=True)

    @override
    def environment(self) -> dict[str, str]:
        return {"CLICKHOUSE_USER": self.user, "CLICKHOUSE_PASSWORD": self.password}

    @override
    def command(self) -> list[str]:
        front = [sys.executable, "-m", "devservers.clickhouse_http"]
        return [*front, str(self.folder / "data"), str(self.port), self.database]

    @override
    def ready(self) -> bool:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}/ping", timeout=2) as answer:
            return bool(answer.read() == b"Ok.\n")
