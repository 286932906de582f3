"""Statements whose end nobody has seen: none is forgotten while it may still commit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.memory import Store
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import Client, Statement
from dataflow_assets.connectors.trino.errors import CONFLICT, Failure
from dataflow_assets.connectors.trino.sink import recovery
from dataflow_assets.connectors.trino.sink.session import TrinoSinkSession
from dataflow_assets.connectors.trino.table.checkpoint_table import Pending
from dataflow_assets.contracts import Run
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import chosen
from tests.connectors.trino.driver import execute
from tests.matrix.test_matrix import run
from tests.systems import manifest

pytestmark = [pytest.mark.alone, pytest.mark.timeout(600)]


def test_a_commit_that_arrives_while_a_later_statement_runs_counts(
    trino: devservers.Trino,
    trino_schema: str,
    tmp_path: Path,
    engine: SparkSession,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The statement of a dead coordinator lands, the second one conflicts, a third one must not."""
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar)")
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    rows = [[number, f"row {number}"] for number in range(4)]
    bodies = [json.dumps({"id": number, "name": name}).encode() for number, name in rows]
    store.produce("t", 0, bodies[:1])
    read = {"store": store.path.stem.removeprefix("dataflow-memory-"), "topic": "t"}
    flow = chosen(load(manifest(tmp_path, ("memory-offsets", read), ("trino", config))), None)
    assert run(flow, engine) == 1
    store.produce("t", 0, bodies[1:])
    sink = TrinoSink.model_validate(config)
    client = Client(sink, "tests")
    values = ", ".join(f"({number}, '{name}')" for number, name in rows[1:])
    late = client.prepare(f"INSERT INTO target VALUES {values}")
    _leave_open(flow, late.id)
    monkeypatch.setattr(recovery, "_ended", lambda *_: "")  # a coordinator that knows nothing
    to_its_end, conflicts = Statement.run, list[str]()

    def conflicting(self: Statement) -> int:
        if not conflicts and _writes_rows(self):
            conflicts.append(self.id)
            to_its_end(late)
            raise Failure("somebody else was first", CONFLICT, "EXTERNAL")
        return to_its_end(self)

    monkeypatch.setattr(Statement, "run", conflicting)
    run(flow, engine)
    client.close()
    assert conflicts
    query = f"SELECT id, name FROM lake.{trino_schema}.target ORDER BY id"
    assert execute(trino, query) == rows
    assert run(flow, engine) == 0
    assert execute(trino, query) == rows


_TEXTS: dict[str, str] = {}


@pytest.fixture(autouse=True)
def _texts_of_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = Client.prepare

    def kept(self: Client, sql: str) -> Statement:
        statement = prepare(self, sql)
        _TEXTS[statement.id] = sql
        return statement

    monkeypatch.setattr(Client, "prepare", kept)


def _writes_rows(statement: Statement) -> bool:
    return "row 1" in _TEXTS[statement.id] and "dataflow_checkpoints" in _TEXTS[statement.id]


def _leave_open(flow: Any, query: str) -> None:
    """A run of the flow has recorded this statement and ended."""
    resolved = flow.resolved()
    branch = resolved.branches[0]
    session = branch.sink.open(resolved.target(branch), Run())
    assert isinstance(session, TrinoSinkSession)
    found = session._checkpoints.load()
    assert found is not None
    checkpoint = replace(found.document.checkpoint, positions={"0": 4})
    document = msgspec.structs.replace(found.document, pending=Pending(query, checkpoint))
    assert session._checkpoints.swap(found, document) is not None
    session.close()
