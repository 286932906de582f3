"""Apicurio Registry: Confluent's API of a schema registry, whose schemas are kept in a file."""

from __future__ import annotations

import tarfile
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.spark import jars, java
from dataflow_assets.spark.process import LOOPBACK, Server

API = "/apis/ccompat/v7"


@dataclass(eq=False, kw_only=True)
class Apicurio(Server):
    """A registry at `url`, without authentication."""

    name = "apicurio"
    port_names: ClassVar[tuple[str, ...]] = ("apicurio",)

    heap: str = "400m"

    @property
    def url(self) -> str:
        """Where Confluent's API is."""
        return f"http://{LOOPBACK}:{self.ports['apicurio']}{API}"

    @override
    def endpoints(self) -> dict[str, str]:
        return {"url": self.url}

    @override
    def command(self) -> list[str]:
        options = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": self.ports["apicurio"],
            "apicurio.datasource.url": f"jdbc:h2:file:{self.folder / 'schemas'};WRITE_DELAY=0",
        }
        defined = [f"-D{key}={value}" for key, value in options.items()]
        start = [java.executable(), f"-Xmx{self.heap}", *java.OPTIONS, *defined]
        return [*start, "-jar", str(runner())]

    @override
    def ready(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/subjects", timeout=2) as answer:  # noqa: S310 (ours)
            return bool(answer.status == 200)


def runner() -> Path:
    """The program's archive, unpacked on first use."""
    (archive,) = jars.fetch("apicurio")
    folder = jars.cache() / f"apicurio-{archive.parent.name}"
    if not folder.exists():
        _unpack(archive, folder)
    (found,) = folder.rglob("*-runner.jar")
    return found


def _unpack(archive: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        with tarfile.open(archive) as tar:
            tar.extractall(Path(scratch) / "files", filter="data")
        try:
            (Path(scratch) / "files").rename(folder)
        except OSError:
            if not folder.exists():  # else another session was faster
                raise
