"""Statements whose end nobody has seen: none is forgotten while it may still commit."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.memory import Store
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import Statement, TrinoClient
from dataflow_assets.connectors.trino.errors import CONFLICT, TrinoFailure
from dataflow_assets.connectors.trino.sink import recovery
from dataflow_assets.connectors.trino.sink.session import TrinoSinkSession
from dataflow_assets.connectors.trino.table import statement
from dataflow_assets.connectors.trino.table.document import MOST_WHOLE, TrinoPending
from dataflow_assets.connectors.trino.table.snapshots import head
from dataflow_assets.connectors.trino.table.table import TrinoPlace, find
from dataflow_assets.contracts import Run, Span, Target
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.connectors.trino.driver import execute, left_open, stored
from tests.flows import manifest, messages
from tests.matrix.test_matrix import run

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
    flow = choose(load(manifest(tmp_path, messages(store), ("trino", config))), None)
    assert run(flow, engine) == 1
    store.produce("t", 0, bodies[1:])
    sink = TrinoSink.model_validate(config)
    client = TrinoClient(sink, "tests")
    values = ", ".join(f"({number}, '{name}')" for number, name in rows[1:])
    late = client.prepare(f"INSERT INTO target VALUES {values}")
    _leave_open(flow, late.id)
    monkeypatch.setattr(recovery, "_end_states", lambda *_: {})  # a coordinator that knows nothing
    to_its_end, conflicts = Statement.run, list[str]()

    def conflicting(self: Statement) -> int:
        if not conflicts and _writes_rows(self):
            conflicts.append(self.id)
            to_its_end(late)
            raise TrinoFailure("somebody else was first", CONFLICT, "EXTERNAL")
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
    prepare = TrinoClient.prepare

    def kept(self: TrinoClient, sql: str) -> Statement:
        statement = prepare(self, sql)
        _TEXTS[statement.id] = sql
        return statement

    monkeypatch.setattr(TrinoClient, "prepare", kept)


def _writes_rows(statement: Statement) -> bool:
    return "row 1" in _TEXTS[statement.id] and "dataflow_checkpoints" in _TEXTS[statement.id]


def _leave_open(flow: Any, query: str) -> None:
    """A run of the flow has recorded this statement and ended."""
    resolved = flow.resolve()
    branch = resolved.branches[0]
    session = branch.sink.open(resolved.target(branch), Run())
    assert isinstance(session, TrinoSinkSession)
    left_open(session, query, None, {"0": 4})


def _opened(sink: TrinoSink) -> TrinoSinkSession:
    session = sink.open(TARGET, Run())
    assert isinstance(session, TrinoSinkSession)
    return session


def _pending(session: TrinoSinkSession, query: str, base: str | None, position: int) -> None:
    """As a run leaves it that ends in the middle of a statement."""
    found = session._store.checkpoints.load()
    assert found is not None
    known = replace(found.document.checkpoint, positions={"0": 5}, source="s")
    document = msgspec.structs.replace(found.document, checkpoint=known)
    assert session._store.checkpoints.swap(found, document) is not None
    left_open(session, query, base, {"0": position})


@pytest.fixture
def sink(trino: devservers.Trino, trino_schema: str) -> TrinoSink:
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar)")
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    return TrinoSink.model_validate(config)


def test_a_statement_is_found_by_its_files_where_snapshots_have_expired(sink: TrinoSink) -> None:
    """A catalog of Nessie shows one snapshot only: one commit of somebody else hides the others."""
    with closing(TrinoClient(sink, "tests")) as client:
        written = client.prepare("INSERT INTO target VALUES (1, 'one')")
        written.run()
        client.run("INSERT INTO target VALUES (2, 'of others')")
    _pending(_opened(sink), written.id, "12345", 6)
    session = _opened(sink)
    assert session.checkpoint.positions == {"0": 6}
    session.close()


def _expire(catalog: Catalog, sink: TrinoSink, query: str) -> None:
    """The snapshot that the query has made, alone."""
    table = catalog.load_table(sink.place())
    made = [s for s in table.snapshots() if s.summary and s.summary.get("trino_query_id") == query]
    table.maintenance.expire_snapshots().by_id(made[0].snapshot_id).commit()


def _base(client: TrinoClient, sink: TrinoSink) -> str | None:
    table = find(client, TrinoPlace("lake", *sink.place()))
    assert table is not None
    return head(client, table)


def test_the_first_commit_of_a_table_is_found_when_its_snapshot_has_expired(
    trino: devservers.Trino, trino_schema: str, catalog: Catalog
) -> None:
    """A table that Spark or PyIceberg has made has no snapshot before the first rows."""
    names = (NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    catalog.create_table((trino_schema, "target"), Schema(*names))
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    declared = TrinoSink.model_validate(config)
    session = _opened(declared)
    with closing(TrinoClient(declared, "tests")) as client:
        assert _base(client, declared) is None
        written = client.prepare("INSERT INTO target VALUES (1, 'one')")
        written.run()
        client.run("INSERT INTO target VALUES (2, 'of others')")
    _expire(catalog, declared, written.id)
    _pending(session, written.id, None, 6)
    session = _opened(declared)
    assert session.checkpoint.positions == {"0": 6}
    session.close()


def test_a_base_that_is_kept_for_a_tag_proves_nothing(sink: TrinoSink, catalog: Catalog) -> None:
    """It stays listed for ever, and the snapshots since expire."""
    with closing(TrinoClient(sink, "tests")) as client:
        base = _base(client, sink)
        assert base is not None
        written = client.prepare("INSERT INTO target VALUES (1, 'one')")
        written.run()
        client.run("INSERT INTO target VALUES (2, 'of others')")
    table = catalog.load_table(sink.place())
    table.manage_snapshots().create_tag(int(base), "audit").commit()
    _expire(catalog, sink, written.id)
    _pending(_opened(sink), "20200101_000000_00000_aaaaa", base, 6)
    session = _opened(sink)
    with pytest.raises(PermanentError, match="its snapshot is not listed"):
        session.begin(Span(()))
    _pending(session, written.id, base, 6)
    session = _opened(sink)
    assert session.checkpoint.positions == {"0": 6}
    session.close()


def test_a_commit_that_arrives_late_counts_also_where_its_snapshot_is_gone(
    sink: TrinoSink, catalog: Catalog, trino: devservers.Trino, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a catalog of Nessie, where the next commit hides it."""
    monkeypatch.setattr(recovery, "_end_states", lambda *_: {})  # a coordinator that knows nothing
    with closing(TrinoClient(sink, "tests")) as client:
        base = _base(client, sink)
        late = client.prepare("INSERT INTO target VALUES (1, 'one')")
        _pending(_opened(sink), late.id, base, 6)
        session = _opened(sink)
        assert session.checkpoint.positions == {"0": 5}
        late.run()
        client.run("INSERT INTO target VALUES (2, 'of others')")
    _expire(catalog, sink, late.id)
    with pytest.raises(TransientError, match="0 of 1 rows were written"):
        stored(session, 5, [1, "one"])
    session.close()
    session = _opened(sink)
    assert session.checkpoint.positions == {"0": 6}
    session.close()
    rows = f"SELECT id FROM lake.{sink.usual_schema()}.target ORDER BY id"
    assert execute(trino, rows) == [[1], [2]]


@pytest.mark.parametrize("guarded", [True, False])
def test_of_two_statements_at_once_one_fails_if_it_is_a_merge(
    sink: TrinoSink, trino: devservers.Trino, *, guarded: bool
) -> None:
    """What exactly once rests on; an INSERT is added to whatever came meanwhile."""
    place = TrinoPlace("lake", *sink.place())
    ended = list[str]()

    def slow(sql: str) -> None:
        with closing(TrinoClient(sink, "tests")) as client:
            try:
                client.run(sql)
            except TrinoFailure as failure:
                ended.append(failure.name)
            else:
                ended.append("stored")

    with closing(TrinoClient(sink, "tests")) as client, _locked(trino) as (held, waiting):
        table = find(client, place)
        assert table is not None
        sql = [
            statement.insert(
                table, statement.Source(table.columns, rows, place), condition, guarded=guarded
            )
            for rows, condition in (
                ('[[1,"first","0",""]]', held),
                ('[[2,"second","0",""]]', "true"),
            )
        ]
        thread = threading.Thread(target=slow, args=sql[:1])
        thread.start()
        waiting()
        client.run(sql[1])
    thread.join(120)
    assert ended == [CONFLICT if guarded else "stored"]
    rows = execute(trino, f"SELECT id FROM {place} ORDER BY id")
    assert rows == ([[2]] if guarded else [[1], [2]])


@contextmanager
def _locked(trino: devservers.Trino) -> Iterator[tuple[str, Callable[[], None]]]:
    """A view of the catalog `pg` whose row comes behind the block, and what waits for a reader."""
    lock, view = random.getrandbits(30), f"held_{uuid.uuid4().hex[:8]}"
    asked = f"SELECT count(*) FROM pg_locks WHERE objid = {lock} AND NOT granted"
    with psycopg.connect(trino.database.dsn(), autocommit=True) as connection:
        body = f"SELECT 1 AS one FROM pg_advisory_xact_lock_shared({lock})"
        connection.execute(f"CREATE VIEW {view} AS {body}")
        connection.execute(f"SELECT pg_advisory_lock({lock})")

        def waiting() -> None:
            until = time.monotonic() + 60
            while connection.execute(asked).fetchall() == [(0,)]:
                assert time.monotonic() < until
                time.sleep(0.1)

        yield f"EXISTS (SELECT 1 FROM pg.public.{view} WHERE one > 0)", waiting
    with psycopg.connect(trino.database.dsn(), autocommit=True) as connection:
        connection.execute(f"DROP VIEW {view}")


def test_what_nobody_can_know_is_said_and_a_restart_goes_on(sink: TrinoSink) -> None:
    with closing(TrinoClient(sink, "tests")) as client:
        client.run("INSERT INTO target VALUES (2, 'of others')")
    _pending(_opened(sink), "20200101_000000_00000_aaaaa", "12345", 6)
    session = _opened(sink)
    with pytest.raises(PermanentError, match="its snapshot is not listed"):
        session.begin(Span(()))
    session.close()
    session = _opened(sink)
    session.restart({"0": 2}, "s")
    session.begin(Span(()))
    session.close()
    session = _opened(sink)
    assert session.checkpoint.positions == {"0": 2}
    session.close()


def test_upserts_go_on_where_nobody_can_know(
    sink: TrinoSink, trino: devservers.Trino, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Nessie when somebody else has committed: a repeated MERGE changes nothing."""
    keyed = sink.model_copy(update={"upsert_mode": True, "conflict_key": ("id",)})
    with closing(TrinoClient(sink, "tests")) as client:
        client.run("INSERT INTO target VALUES (1, 'one')")
        client.run("INSERT INTO target VALUES (2, 'of others')")
    _pending(_opened(keyed), "20200101_000000_00000_aaaaa", "12345", 6)
    session = _opened(keyed)
    assert "query 20200101_000000_00000_aaaaa has stored its rows" in caplog.text
    assert session.checkpoint.positions == {"0": 5}
    assert session._store.checkpoints.latest().document.open_doubts == ()  # type: ignore[union-attr]
    stored(session, 5, [1, "one"])
    assert session.checkpoint.positions == {"0": 6}
    session.close()
    rows = execute(trino, f"SELECT id, name FROM lake.{sink.usual_schema()}.target ORDER BY id")
    assert rows == [[1, "one"], [2, "of others"]]


@pytest.mark.parametrize("kept", [True, False], ids=["newest", "oldest"])
def test_a_hundred_doubts_are_decided_and_written_past(
    sink: TrinoSink, trino: devservers.Trino, monkeypatch: pytest.MonkeyPatch, *, kept: bool
) -> None:
    """Each try that fails adds one; a statement of so many stages as doubts never begins.

    Of the newest ones alone it is kept up to which position they have stored rows.
    """
    session = _opened(sink)
    with closing(TrinoClient(sink, "tests")) as client:
        base = _base(client, sink)
        late = client.prepare("INSERT INTO target VALUES (1, 'one')")
    found = session._store.checkpoints.load()
    assert found is not None
    known = replace(found.document.checkpoint, positions={"0": 5}, source="s")
    names = [f"20200101_000000_{n:05}_aaaaa" for n in range(99)]
    names = [late.id, *names] if kept else [*names, late.id]
    doubts = [
        TrinoPending(name, replace(known, positions={"0": 6 + n}), base)
        for n, name in enumerate(names)
    ]
    document = msgspec.structs.replace(found.document, checkpoint=known, doubts=tuple(doubts))
    assert session._store.checkpoints.swap(found, document) is not None
    session.close()
    monkeypatch.setattr(recovery, "_end_states", lambda *_: {})  # a coordinator that knows nothing
    session = _opened(sink)
    document = session._store.checkpoints.latest().document  # type: ignore[union-attr]
    assert document.doubts == tuple(doubts[:MOST_WHOLE])
    assert document.aside == tuple(one.doubt for one in doubts[MOST_WHOLE:])
    late.run()
    with pytest.raises(TransientError, match="0 of 1 rows were written"):
        stored(session, 5, [1, "one"])
    session.close()
    session = _opened(sink)
    if not kept:
        with pytest.raises(PermanentError, match="position is not kept any more"):
            session.begin(Span(()))
        session.close()
        return
    assert session.checkpoint.positions == {"0": 6}
    assert session._store.checkpoints.latest().document.open_doubts == ()  # type: ignore[union-attr]
    stored(session, 6, [2, "two"])
    session.close()
    rows = f"SELECT id FROM lake.{sink.usual_schema()}.target ORDER BY id"
    assert execute(trino, rows) == [[1], [2]]


def test_a_rewind_is_not_undone_by_a_statement_of_before(sink: TrinoSink) -> None:
    """It has landed between: its rows are in the table, its position is nobody's."""
    session = _opened(sink)
    with closing(TrinoClient(sink, "tests")) as client:
        base = head(client, session._table.found) if session._table.found else None
        late = client.prepare("INSERT INTO target VALUES (1, 'one')")
        late.run()
    found = session._store.checkpoints.load()
    assert found is not None
    known = replace(found.document.checkpoint, positions={"0": 5}, source="s")
    doubt = TrinoPending(late.id, replace(known, positions={"0": 103}), base)
    document = msgspec.structs.replace(found.document, checkpoint=known, doubts=(doubt,))
    assert session._store.checkpoints.swap(found, document) is not None
    session.restart({"0": 0}, "s", empty=True)
    assert session.checkpoint.positions == {"0": 0}
    session.close()
    session = _opened(sink)
    assert session.checkpoint.positions == {"0": 0}
    assert not session.table.holds_rows()
    session.close()
