"""Programs that no package has: built from Go modules into the cache, each of them once.

Only tests of `make test-all` need them: `make kube-apiserver promtool` builds all of them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dataflow_assets.spark import jars
from dataflow_assets.spark.process import ServerError


@dataclass(frozen=True)
class GoProgram:
    """One program; another version, or other modules, make another one."""

    name: str
    target: str
    """Of the Makefile: it builds the program."""
    package: str
    minutes: int
    """How long its build takes, about."""
    version: str = ""
    """Of the package, where no modules of ours say it."""
    modules: str = ""
    """The folder beside this file with `go.mod`, and with the package where that is `.`."""
    tags: str = ""

    @property
    def binary(self) -> Path:
        """The program in the cache, whether it is built or not."""
        return jars.cache() / f"{self.name}-{self.version or self._digest()}" / self.name

    def missing(self) -> str:
        """Returns why the program is not there; empty where it is."""
        if self.binary.exists():
            return ""
        return (
            f"no {self.binary}: `make {self.target}` builds it, with Go, in {self.minutes} minutes"
        )

    def build(self) -> None:
        """Builds the program into the cache, unless it is there. Raises ServerError without Go."""
        if not self.missing():
            return
        go = shutil.which("go")
        if go is None:
            raise ServerError(f"Go is needed to build {self.name}, and was not found")
        self.binary.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.binary.parent) as scratch:
            self._install(go, Path(scratch)).rename(self.binary)

    def _install(self, go: str, scratch: Path) -> Path:
        """Builds in a folder; what `go install` makes is the only file below `bin`."""
        package = f"{self.package}@{self.version}" if self.version else self.package
        options = ["-ldflags=-s -w", "-tags", self.tags]
        if self.modules:
            shutil.copytree(self._modules(), scratch, dirs_exist_ok=True)
            options.append("-mod=readonly")
        environment = {**os.environ, "GOWORK": "off", "GOBIN": str(scratch / "bin")}
        command = [go, "install", *options, package]
        subprocess.run(command, cwd=scratch, check=True, env=environment)
        (binary,) = (scratch / "bin").iterdir()
        return binary

    def _modules(self) -> Path:
        return Path(__file__).with_name(self.modules)

    def _digest(self) -> str:
        text = b"".join(path.read_bytes() for path in sorted(self._modules().iterdir()))
        return hashlib.sha256(text).hexdigest()[:16]


KUBE_APISERVER = GoProgram("kube-apiserver", "kube-apiserver", ".", 15, modules="kube_apiserver")
HELM = GoProgram("helm", "kube-apiserver", "helm.sh/helm/v3/cmd/helm", 5, version="v3.20.2")
PROMTOOL = GoProgram(
    "promtool",
    "promtool",
    "github.com/prometheus/prometheus/cmd/promtool",
    10,
    modules="prometheus",
    tags="remove_all_sd,netgo",  # no service discovery, whose modules are most of the time
)


if __name__ == "__main__":
    try:
        for program in (KUBE_APISERVER, HELM, PROMTOOL):
            if program.target in sys.argv[1:]:
                program.build()
    except ServerError as error:
        sys.exit(str(error))
