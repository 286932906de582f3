"""Flows that are drained without Spark: in this process, or in one that may be killed."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Report, Request, Start
from dataflow_assets.testing import choose
from tests.forked import forking
from tests.in_process import Session

_KEPT = ("AWS_", "DATAFLOW_")  # of the environment, where tests set variables
_ENDLESS = 1e9


def drained(flow: Flow, start: Start | None = None) -> list[Report]:
    """Drains a flow; its small micro-batches need no Spark."""
    return list(draining(flow, Request(start=start or Start(), patience=Patience(0, 0.05, 0.2))))


def draining(flow: Flow, request: Request) -> Iterator[Report]:
    """The same, report after report."""
    session = cast("Any", Session(_no_spark))
    return drain(flow, lambda: session, request)


def _no_spark() -> NoReturn:
    raise NotImplementedError("this flow needs no Spark")


def drain_file(file: str, table: Literal["", "truncate"] = "") -> None:
    """Drains the one flow of a file; `truncate`: from the beginning, into an emptied target."""
    drained(choose(load(Path(file)), None), Start("earliest", table=table) if table else None)


def follow_file(file: str, rows: int) -> None:
    """Follows the one flow of a file, which has one branch, until its target has all these rows.

    A run that has an end may come to it early where a source is quiet for a while.
    """
    flow, stored = choose(load(Path(file)), None), 0
    request = Request(
        seconds=_ENDLESS,
        patience=Patience(0, 0.05, 0.2),
        stop=lambda: "all is stored" if stored >= rows else None,
    )
    for report in draining(flow, request):
        stored = report.checkpoint.totals.rows


def drain_apart(file: str, *arguments: str, failpoint: str = "") -> int | None:
    """`drain_file` in a process of its own, and the code it ended with: minus the signal."""
    return apart(drain_file, failpoint, file, *arguments)


def follow_apart(file: str, rows: int, failpoint: str = "") -> int | None:
    """`follow_file` in the same way."""
    return apart(follow_file, failpoint, file, rows)


def apart(target: Callable[..., None], failpoint: str, *arguments: Any) -> int | None:
    """A function of a module in a process of its own, and the code that ended with."""
    armed = {"DATAFLOW_FAILPOINT": failpoint, "DATAFLOW_FAILPOINT_TOKEN": uuid.uuid4().hex}
    known = {name: os.environ[name] for name in os.environ if name.startswith(_KEPT)}
    process = forking().Process(target=_run, args=(known | armed, target, *arguments), daemon=True)
    process.start()
    process.join()
    return process.exitcode


def _run(environment: Mapping[str, str], target: Callable[..., None], *arguments: Any) -> None:
    os.environ.update(environment)
    target(*arguments)
