"""`dagster dev` on this project, as a server that is started and stopped."""

from __future__ import annotations

import shutil
import signal
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override

from dataflow_assets.spark import system
from dataflow_assets.spark.jars import ROOT
from dataflow_assets.spark.process import LOOPBACK, Server

WEB = 3000


@dataclass(eq=False)
class Dagster(Server):
    """`dagster dev` on this project; its web server is a child, so the port is asked by HTTP."""

    name = "dagster"
    port_names = ()
    start_timeout = 120
    stop_timeout = 30
    stop_signal = signal.SIGINT

    port: int = WEB
    variables: Mapping[str, str] | None = None

    @property
    def url(self) -> str:
        """For the browser."""
        return f"http://{LOOPBACK}:{self.port}"

    @override
    def endpoints(self) -> dict[str, str]:
        return {"url": self.url}

    @override
    def prepare(self) -> None:
        settings = ROOT / "dagster.yaml"
        if settings.exists():
            shutil.copy(settings, self.folder / settings.name)

    @override
    def environment(self) -> dict[str, str]:
        return {"DAGSTER_HOME": str(self.folder), **(self.variables or {})}

    @override
    def command(self) -> list[str]:
        where = ["--host", LOOPBACK, "--port", str(self.port)]
        what = ["--workspace", str(ROOT / "workspace.yaml")]
        return [sys.executable, "-m", "dagster", "dev", *where, *what]

    @override
    def stop(self) -> None:
        """As Ctrl-C would on a terminal: runs finish their micro-batch while the rest ends."""
        system.send(self.stop_signal, self._family()[1:])
        super().stop()

    @override
    def ready(self) -> bool:
        info = f"{self.url}/server_info"
        with urllib.request.urlopen(info, timeout=2) as answer:  # noqa: S310 (ours)
            return bool(answer.status == 200)
