"""Helm, which renders charts: built once from Go modules into the cache, for tests of the chart."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dataflow_assets.spark import jars
from dataflow_assets.spark.process import ServerError

VERSION = "v3.20.2"


def missing() -> str:
    """Why the program is not there; empty where it is."""
    if binary().exists():
        return ""
    return f"no {binary()}: `make kube-apiserver` builds it, too"


def binary() -> Path:
    """The program in the cache, whether it is built or not."""
    return jars.cache() / f"helm-{VERSION}" / "helm"


def build() -> None:
    """Builds the program into the cache, unless it is there. Raises ServerError without Go."""
    if not missing():
        return
    go = shutil.which("go")
    if go is None:
        raise ServerError("Go is needed to build helm, and was not found")
    made = binary()
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
        command = [go, "install", "-ldflags=-s -w", f"helm.sh/helm/v3/cmd/helm@{VERSION}"]
        env = {**os.environ, "GOWORK": "off", "GOBIN": scratch}
        subprocess.run(command, cwd=scratch, check=True, env=env)
        Path(scratch, "helm").rename(made)


if __name__ == "__main__":
    try:
        build()
    except ServerError as error:
        sys.exit(str(error))
