"""Statements whose end nobody has seen: none is forgotten while it may still commit."""

from __future__ import annotations

import json
from contextlib import closing
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
from dataflow_assets.connectors.trino.sink.recovery import head
from dataflow_assets.connectors.trino.sink.session import TrinoSinkSession
from dataflow_assets.connectors.trino.table.checkpoint_table import Pending
from dataflow_assets.contracts import Run, Span, Target
from dataflow_assets.errors import PermanentError
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import chosen
from tests.connectors.trino.driver import execute
from tests.matrix.test_matrix import run
from tests.systems import manifest, messages

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

TARGET = Target("ns/doubts", "trino", "h", "t")


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
    flow = chosen(load(manifest(tmp_path, messages(store), ("trino", config))), None)
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


def _opened(sink: TrinoSink) -> TrinoSinkSession:
    session = sink.open(TARGET, Run())
    assert isinstance(session, TrinoSinkSession)
    return session


def _pending(session: TrinoSinkSession, query: str, base: str, position: int) -> None:
    """As a run leaves it that ends in the middle of a statement."""
    found = session._checkpoints.load()
    assert found is not None
    known = replace(found.document.checkpoint, positions={"0": 5}, source="s")
    after = Pending(query, replace(known, positions={"0": position}), base)
    document = msgspec.structs.replace(found.document, checkpoint=known, pending=after)
    assert session._checkpoints.swap(found, document) is not None
    session.close()


@pytest.fixture
def sink(trino: devservers.Trino, trino_schema: str) -> TrinoSink:
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar)")
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    return TrinoSink.model_validate(config)


def test_a_statement_is_found_by_its_files_where_snapshots_have_expired(sink: TrinoSink) -> None:
    """A catalog of Nessie shows one snapshot only: one commit of somebody else hides the others."""
    with closing(Client(sink, "tests")) as client:
        written = client.prepare("INSERT INTO target VALUES (1, 'one')")
        written.run()
        client.run("INSERT INTO target VALUES (2, 'of others')")
    _pending(_opened(sink), written.id, "12345", 6)
    session = _opened(sink)
    assert session.checkpoint.positions == {"0": 6}
    session.close()


def test_what_nobody_can_know_is_said_and_a_restart_goes_on(sink: TrinoSink) -> None:
    with closing(Client(sink, "tests")) as client:
        client.run("INSERT INTO target VALUES (2, 'of others')")
    _pending(_opened(sink), "20200101_000000_00000_aaaaa", "12345", 6)
    session = _opened(sink)
    with pytest.raises(PermanentError, match="the snapshots of that time have expired"):
        session.begin(Span(()))
    session.close()
    session = _opened(sink)
    session.restart({"0": 2}, "s")
    session.begin(Span(()))
    session.close()
    session = _opened(sink)
    assert session.checkpoint.positions == {"0": 2}
    session.close()


def test_a_rewind_is_not_undone_by_a_statement_of_before(sink: TrinoSink) -> None:
    """It has landed between: its rows are in the table, its position is nobody's."""
    session = _opened(sink)
    with closing(Client(sink, "tests")) as client:
        base = head(client, session._table) if session._table else None
        late = client.prepare("INSERT INTO target VALUES (1, 'one')")
        late.run()
    found = session._checkpoints.load()
    assert found is not None
    known = replace(found.document.checkpoint, positions={"0": 5}, source="s")
    doubt = Pending(late.id, replace(known, positions={"0": 103}), base)
    document = msgspec.structs.replace(found.document, checkpoint=known, doubts=(doubt,))
    assert session._checkpoints.swap(found, document) is not None
    session.restart({"0": 0}, "s", empty=True)
    assert session.checkpoint.positions == {"0": 0}
    session.close()
    session = _opened(sink)
    assert session.checkpoint.positions == {"0": 0}
    assert not session.holds_rows()
    session.close()
