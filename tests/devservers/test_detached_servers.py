"""A server that is meant to outlive whoever started it is no child that was forgotten."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import devservers
from tests import ROOT

START = """
import sys
from pathlib import Path
import devservers
others = dict.fromkeys(("kafka", "seaweedfs", "clickhouse"), False)
devservers.up(Path(sys.argv[1]), progress=lambda _: None, **others)
"""


def test_a_process_that_leaves_a_server_behind_ends_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", START, str(tmp_path)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert devservers.read(tmp_path).postgresql is not None
    finally:
        devservers.down(tmp_path, progress=lambda _: None)
    assert devservers.read(tmp_path).postgresql is None
