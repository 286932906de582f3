"""What tests ask Trino for, past every flow."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import Any

import msgspec

import devservers
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.sink.session import TrinoSinkSession
from dataflow_assets.connectors.trino.table import stage
from dataflow_assets.connectors.trino.table.document import TrinoPending
from dataflow_assets.contracts import OffsetSlice, Positions, Receipt, Run, Span, Target, Totals
from tests.connectors.iceberg.driver import SOURCE


def execute(
    server: devservers.Trino, sql: str, schema: str = "information_schema"
) -> list[list[Any]]:
    """The rows of a statement's answer."""
    config = {"serverURL": server.uri, "catalog": "lake", "schema": schema}
    with closing(TrinoClient(TrinoSink.model_validate(config | {"table": "t"}), "tests")) as client:
        return client.rows(sql)


def opened(sink: TrinoSink, target: Target, run_id: str) -> TrinoSinkSession:
    """The session of a driver."""
    found = sink.open(target, Run(run_id, "host", 1))
    assert isinstance(found, TrinoSinkSession)
    return found


def stored(session: TrinoSinkSession, offset: int, *rows: list[Any]) -> None:
    """One micro-batch of one record, whose rows travel in the receipt; of none it was rejected."""
    span = session.begin(Span((OffsetSlice("0", offset, offset + 1),)))
    branch = session.ticket().target.branch
    inline = json.dumps([[*row, "0", ""] for row in rows]) if rows else ""
    staged = msgspec.json.encode(stage.TrinoStaged("a", len(rows), inline)).decode()
    session.finish(span, [Receipt(branch, "0", offset + 1, Totals(len(rows)), (staged,))], SOURCE)


def left_open(session: TrinoSinkSession, query: str, base: str | None, after: Positions) -> None:
    """Ends a driver in the middle of a statement: nobody has seen the end of that."""
    found = session._store.checkpoints.load()
    assert found is not None
    pending = TrinoPending(query, replace(found.document.checkpoint, positions=after), base)
    document = msgspec.structs.replace(found.document, pending=pending)
    assert session._store.checkpoints.swap(found, document) is not None
    session.close()
