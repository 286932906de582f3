"""The Java that the servers run on.

A machine often has several. `home` takes the oldest that is new enough: Spark and Kafka are built
for 17, and what needs a newer one says so.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from dataflow_assets.spark.process import ServerError

INSTALLED = Path("/usr/lib/jvm")

# The optimizing compiler compiles code after ten times as many calls as by default. In the first
# minutes of a server that compiler takes half of the server's CPU, most of it for code that runs a
# few times a second. What runs for each record is compiled all the same (docs/decisions.md).
OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Of the local Spark server, and of the brokers of tests."""


def home(minimum: int = 17) -> Path:
    """JAVA_HOME of the oldest Java from `minimum` on: of JAVA_HOME, the path, the usual folder."""
    homes = {release: folder for folder in _folders() if (release := _release(folder))}
    fitting = [release for release in homes if release >= minimum]
    if not fitting:
        there = ", ".join(f"{release} in {folder}" for release, folder in homes.items()) or "none"
        raise ServerError(f"Java {minimum} or newer is needed and was not found; there is: {there}")
    return homes[min(fitting)]


def executable(minimum: int = 17) -> str:
    return str(home(minimum) / "bin" / "java")


def _folders() -> Iterator[Path]:
    if "JAVA_HOME" in os.environ:
        yield Path(os.environ["JAVA_HOME"])
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    if INSTALLED.is_dir():
        yield from sorted(java.parent.parent for java in INSTALLED.glob("*/bin/java"))


def _release(folder: Path) -> int | None:
    """The major version, from the file that every Java carries: starting it would take longer."""
    try:
        text = (folder / "release").read_text()
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="(\d+)', text, re.MULTILINE)
    return int(match[1]) if match else None
