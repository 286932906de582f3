"""Drains a SQL file without Spark, in a process that may be killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn, cast

from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from dataflow_assets.testing import chosen
from tests.in_process import Session


def _no_spark() -> NoReturn:
    raise NotImplementedError("this flow needs no Spark")


def main(path: str) -> None:
    session = cast("Any", Session(_no_spark))
    flow = chosen(load(Path(path)), None)
    for _ in drain(flow, lambda: session, Request(patience=Patience(0, 0.05, 0.2))):
        pass
