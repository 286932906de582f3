"""Prometheus' own tool that evaluates alert rules, built from Go modules: ten minutes, once.

Only tests of `make test-all` need it; `make promtool` builds it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dataflow_assets.spark import jars
from dataflow_assets.spark.process import ServerError

MODULE = Path(__file__).with_name("prometheus")
_PACKAGE = "github.com/prometheus/prometheus/cmd/promtool"
_TAGS = "remove_all_sd,netgo"  # no service discovery, whose modules are most of the time


def missing() -> str:
    """Why the program is not there; empty where it is."""
    if binary().exists():
        return ""
    return f"no {binary()}: `make promtool` builds it, with Go, in ten minutes"


def binary() -> Path:
    """The program in the cache, whether it is built or not; other modules make another one."""
    modules = b"".join(path.read_bytes() for path in sorted(MODULE.iterdir()))
    name = hashlib.sha256(modules).hexdigest()[:16]
    return jars.cache() / f"promtool-{name}" / "promtool"


def build() -> None:
    """Builds the program into the cache, unless it is there. Raises ServerError without Go."""
    if not missing():
        return
    go = shutil.which("go")
    if go is None:
        raise ServerError("Go is needed to build promtool, and was not found")
    made = binary()
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
        shutil.copytree(MODULE, scratch, dirs_exist_ok=True)
        output = Path(scratch, "built")
        options = ["-mod=readonly", "-tags", _TAGS, "-ldflags=-s -w", "-o", str(output)]
        environment = {**os.environ, "GOWORK": "off"}
        subprocess.run([go, "build", *options, _PACKAGE], cwd=scratch, check=True, env=environment)
        output.rename(made)


if __name__ == "__main__":
    try:
        build()
    except ServerError as error:
        sys.exit(str(error))
