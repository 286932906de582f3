"""`python -m tests.connectors.files.drain MANIFEST`: drains it without Spark, to be killed.

With a second argument, `truncate`, from the beginning into an emptied folder.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

from dataflow_assets.manifests.load import load_strict
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request, Start
from tests.in_process import Session


def _no_spark() -> NoReturn:
    raise NotImplementedError("this flow needs no Spark")


def main(manifest: str, table: Literal["", "truncate"] = "") -> None:
    (flow,) = load_strict(Path(manifest)).flows
    session = cast("Any", Session(_no_spark))
    start = Start("earliest", table=table) if table else Start()
    for _ in drain(flow, lambda: session, Request(start=start, patience=Patience(0, 0.05, 0.2))):
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
