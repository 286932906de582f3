"""The table of checkpoints stays small, and says the same as before."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

import devservers
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import Statement, TrinoClient
from dataflow_assets.connectors.trino.sink import session as sessions
from dataflow_assets.connectors.trino.sink.session import TrinoSinkSession
from dataflow_assets.connectors.trino.table import checkpoint_upkeep, stage
from dataflow_assets.connectors.trino.table.checkpoint_upkeep import keep_small
from dataflow_assets.contracts import OffsetSlice, Receipt, Run, Span, Target, Totals
from dataflow_assets.sdk.sink.state import BranchState
from tests.connectors.iceberg.driver import SOURCE
from tests.connectors.trino.driver import execute, opened, stored

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

ONE, OTHER = Target("ns/one", "trino:one", "h", "t"), Target("ns/other", "trino:other", "h", "t")
CHANGES = 6


@pytest.fixture
def sink(trino: devservers.Trino, trino_schema: str) -> TrinoSink:
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar)")
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    return TrinoSink.model_validate(config)


def same(found: BranchState | None) -> BranchState:
    assert found is not None
    return found


def receipt(number: int, partition: str, position: int | None) -> Receipt:
    """Of a task that hands over one row."""
    inline = json.dumps([[number, "n", "0", ""]])
    staged = json.dumps({"attempt": str(number), "rows": 1, "inline": inline})
    return Receipt(ONE.branch, partition, position, Totals(1), (staged,))


def changed(sink: TrinoSink, target: Target) -> TrinoSinkSession:
    """A session that has stored its checkpoint several times."""
    session = sink.open(target, Run())
    assert isinstance(session, TrinoSinkSession)
    for _ in range(CHANGES):
        session._store.change(same)
    return session


def counted(server: devservers.Trino, schema: str, hidden: str) -> int:
    ((count,),) = execute(
        server, f'SELECT count(*) FROM lake.{schema}."dataflow_checkpoints${hidden}"'
    )
    return int(count)


def rows(server: devservers.Trino, schema: str) -> list[Any]:
    return execute(server, f"SELECT * FROM lake.{schema}.dataflow_checkpoints ORDER BY id")


def test_files_become_one_and_snapshots_go(
    sink: TrinoSink, trino: devservers.Trino, trino_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = changed(sink, ONE), changed(sink, OTHER)
    before = rows(trino, trino_schema)
    files, snapshots = (counted(trino, trino_schema, each) for each in ("files", "snapshots"))
    assert files > CHANGES
    assert snapshots > CHANGES
    keep_small(sink, one._store.checkpoints.place, ONE.id)
    assert counted(trino, trino_schema, "snapshots") == snapshots, "all are of this hour"
    monkeypatch.setattr(checkpoint_upkeep, "MOST_FILES", 2)
    monkeypatch.setattr(checkpoint_upkeep, "MOST_SNAPSHOTS", 0)
    monkeypatch.setattr(checkpoint_upkeep, "retention", lambda _: 0)
    for target in (ONE, OTHER):
        keep_small(sink, one._store.checkpoints.place, target.id)
    assert counted(trino, trino_schema, "snapshots") == 1
    assert counted(trino, trino_schema, "files") == 2, "one of each branch"
    assert rows(trino, trino_schema) == before
    for session in (one, other):
        session._store.change(same)
        session.close()


def test_files_of_a_run_stay_few(
    sink: TrinoSink, trino: devservers.Trino, trino_schema: str
) -> None:
    """Each statement of a micro-batch reads them all."""
    session = sink.open(ONE, Run())
    assert isinstance(session, TrinoSinkSession)
    for number in range(8):
        session.ticket()
        session._store.publish(same, [receipt(number, "0", None)])
        session._tidy()
    session.close()
    assert execute(trino, f"SELECT count(*) FROM lake.{trino_schema}.target") == [[8]]
    assert counted(trino, trino_schema, "files") <= 12


def test_a_micro_batch_is_five_statements(sink: TrinoSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored; what the table's head is; that it will be written, the rows, that it was."""
    session = sink.open(ONE, Run())
    session.restart({"0": 0}, "topic-1")
    asked: list[str] = []
    prepare = TrinoClient.prepare

    def noted(self: TrinoClient, sql: str) -> Statement:
        asked.append(sql.split(maxsplit=1)[0])
        return prepare(self, sql)

    monkeypatch.setattr(TrinoClient, "prepare", noted)
    for offset in range(3):
        asked.clear()
        span = session.begin(Span((OffsetSlice("0", offset, offset + 1),)))
        session.ticket()
        session.finish(span, [receipt(offset, "0", offset + 1)], SOURCE)
        # The id of the query that writes is stored first: it is prepared and runs afterwards.
        assert asked == ["SELECT", "MERGE", "SELECT", "UPDATE", "UPDATE"]
    session.close()


def test_a_stage_goes_with_its_span_and_those_of_failed_tasks_now_and_then(
    sink: TrinoSink, trino: devservers.Trino, trino_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "KEPT_EVERY", 3)
    session = sink.open(ONE, Run())
    assert isinstance(session, TrinoSinkSession)
    session.restart({"0": 0}, "topic-1")
    left: list[int] = []
    for offset in range(3):
        span = session.begin(Span((OffsetSlice("0", offset, offset + 1),)))
        session.ticket()
        failed = session._store.stage.place
        stage.create(session._store.client, failed)
        session.ticket()
        chunks = stage.TrinoChunks(
            session._store.client, session._store.stage.place, f"a{offset}", 1_000
        )
        line = json.dumps([offset, "n", "0", ""])
        chunks.add(line, len(line))
        chunks.flush()
        told = msgspec.json.encode(chunks.handed_over(lacks=False)).decode()
        session.finish(span, [Receipt(ONE.branch, "0", offset + 1, Totals(1), (told,))], SOURCE)
        found = execute(trino, f"SHOW TABLES FROM lake.{trino_schema} LIKE 'dataflow_stage_%'")
        left.append(len(found))
    session.close()
    assert left == [1, 2, 0]
    assert execute(trino, f"SELECT count(*) FROM lake.{trino_schema}.target") == [[3]]


def test_a_catalog_without_snapshots_is_left_alone(
    sink: TrinoSink, trino: devservers.Trino, trino_schema: str
) -> None:
    elsewhere = sink.model_copy(update={"checkpoint_table": f"pg.public.c_{trino_schema}"})
    try:
        session = changed(elsewhere, ONE)
        keep_small(elsewhere, session._store.checkpoints.place, ONE.id)
        session._store.change(same)
        session.close()
    finally:
        execute(trino, f"DROP TABLE pg.public.c_{trino_schema}")


@pytest.mark.full
def test_files_of_a_run_stay_few_where_micro_batches_have_no_rows(
    sink: TrinoSink, trino: devservers.Trino, trino_schema: str
) -> None:
    """All records are rejected, or a filter lets few through."""
    session = opened(sink, ONE, "first")
    session.restart({"0": 0}, "source")
    for offset in range(24):
        stored(session, offset)
    session.close()
    assert counted(trino, trino_schema, "files") <= 12 + 2 * 8
