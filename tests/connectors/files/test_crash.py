"""The process is killed at each step, from one folder into another; each line arrives once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.connectors.files import driver
from tests.contract.files_drivers import FilesOnDisk

ROWS = 60
FAILPOINTS = ("files.read", *(n for n in FilesOnDisk.failpoints if n.startswith("files.")))

PLACES = [("disk", failpoint) for failpoint in FAILPOINTS] + [
    ("s3", "files.committed"),
    ("s3", "files.published"),
]


def _lines(low: int, high: int) -> bytes:
    return b"".join(b'{"id": %d, "name": "name-%d"}\n' % (n, n) for n in range(low, high))


def _drain(manifest: Path, failpoint: str = "") -> int:
    armed = {"DATAFLOW_FAILPOINT": failpoint, "DATAFLOW_FAILPOINT_TOKEN": uuid.uuid4().hex}
    command = [sys.executable, "-m", "tests.connectors.files.drain", str(manifest)]
    done = subprocess.run(command, env={**os.environ, **armed}, check=False, timeout=120)
    return done.returncode


@pytest.mark.crash
@pytest.mark.parametrize(("place", "failpoint"), PLACES, indirect=["place"])
def test_each_line_once(failpoint: str, place: driver.Config, tmp_path: Path) -> None:
    read = {**place, "path": f"{place['path']}/in", "parallelReads": 2}
    written = {**place, "path": f"{place['path']}/out", "targetFileSizeBytes": 1024}
    source, target = (
        driver.folder({**place, "path": read["path"]}),
        driver.folder({**place, "path": written["path"]}),
    )
    source.put("b.jsonl", _lines(0, 40))
    source.put("a.jsonl", _lines(40, ROWS))
    document: dict[str, Any] = {
        "apiVersion": "dataflow.dataflow.io/v1",
        "kind": "DataFlow",
        "metadata": {"name": "crash"},
        "spec": {
            "maxRecordsPerBatch": 15,
            "source": {"type": "files", "config": read},
            "sink": {"type": "files", "config": written},
        },
    }
    manifest = tmp_path / "crash.yaml"
    YAML().dump(document, manifest)
    assert _drain(manifest, f"{failpoint}:kill:2") == -signal.SIGKILL
    seen = [row["id"] for file in driver.lines(target) for row in file]
    assert len(seen) == len(set(seen))
    assert _drain(manifest) == 0
    stored = [row["id"] for file in driver.lines(target) for row in file]
    assert sorted(stored) == list(range(ROWS))
    assert target.files("_dataflow/staged") == []
