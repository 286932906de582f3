"""Runs the flow of a file to its end, or a replay of it, with whatever version is on the path.

    python tests/stored/running.py drain|replay FILE

`make.py` runs this file in the checkout of another version, so it knows nothing of the tests that
are beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

from dataflow_assets import failpoints
from dataflow_assets.contracts import Run
from dataflow_assets.manifests.load import load
from dataflow_assets.runs import replay as replays
from dataflow_assets.testing import choose
from tests.drained import drained
from tests.in_process import Session


def drain(file: Path) -> int:
    """The rows that the run has stored."""
    reports = drained(choose(load(file), None))
    return sum(report.delta.rows for report in reports)


def replay(file: Path) -> int:
    """The rows that the replay has stored."""
    failpoints.arm(failpoints.from_environment())
    session = cast("Any", Session(_no_spark))
    parts = replays.replay(choose(load(file), None), lambda: session, Run())
    return sum(part.rows for part in parts)


def _no_spark() -> NoReturn:
    raise NotImplementedError("this flow needs no Spark")


RUNS: Mapping[str, Callable[[Path], int]] = {"drain": drain, "replay": replay}

if __name__ == "__main__":
    RUNS[sys.argv[1]](Path(sys.argv[2]))
