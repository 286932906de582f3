"""Drains a manifest without Spark, in this process or in one that is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NoReturn, cast

from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request, Start
from dataflow_assets.testing import chosen
from tests.in_process import Session


def _no_spark() -> NoReturn:
    raise NotImplementedError("this flow needs no Spark")


def main(manifest: str, table: Literal["", "truncate"] = "") -> None:
    """`truncate`: from the beginning, into an emptied folder."""
    flow = chosen(load(Path(manifest)), None)
    session = cast("Any", Session(_no_spark))
    start = Start("earliest", table=table) if table else Start()
    for _ in drain(flow, lambda: session, Request(start=start, patience=Patience(0, 0.05, 0.2))):
        pass
