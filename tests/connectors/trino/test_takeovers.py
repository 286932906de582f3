"""What a driver does that is late: another one has the flow by then, or an answer was lost."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.memory import Store
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import Statement, TrinoClient
from dataflow_assets.connectors.trino.errors import CONFLICT, TrinoFailure
from dataflow_assets.connectors.trino.sink import checkpoint_store, publish
from dataflow_assets.connectors.trino.sink.recovery import have_committed
from dataflow_assets.connectors.trino.sink.session import TrinoSinkSession
from dataflow_assets.connectors.trino.table import stage
from dataflow_assets.connectors.trino.table.checkpoint_table import TrinoCheckpointTable
from dataflow_assets.connectors.trino.table.document import TrinoDocument, TrinoPending, TrinoStored
from dataflow_assets.contracts import OffsetSlice, Receipt, Run, Span, Target, Totals
from dataflow_assets.errors import DataflowError, PermanentError, TakenOver
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.sdk.sink.state import BranchState, check_owner
from dataflow_assets.testing import choose
from tests.connectors.trino import driver
from tests.connectors.trino.driver import execute
from tests.flows import manifest, messages
from tests.matrix.test_matrix import run

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

TARGET = Target("ns/takeovers", "trino", "h", "t")


def config(server: devservers.Trino, schema: str) -> dict[str, Any]:
    return {"serverURL": server.uri, "catalog": "lake", "schema": schema, "table": "target"}


@pytest.fixture
def declared(trino: devservers.Trino, trino_schema: str) -> TrinoSink:
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar)")
    return TrinoSink.model_validate(config(trino, trino_schema))


@pytest.fixture
def flow(trino: devservers.Trino, trino_schema: str, tmp_path: Path, store: Store) -> Flow:
    """From the topic `t` of the store into the table of `declared`."""
    sink = ("trino", config(trino, trino_schema))
    return choose(load(manifest(tmp_path, messages(store), sink)), None)


def opened(declared: TrinoSink, run_id: str) -> TrinoSinkSession:
    found = declared.open(TARGET, Run(run_id, "host", 1))
    assert isinstance(found, TrinoSinkSession)
    return found


def stored(session: TrinoSinkSession) -> TrinoStored:
    found = session._store.checkpoints.load()
    assert found is not None
    return found


def test_a_driver_that_waits_for_a_query_stores_nothing_once_another_has_come(
    declared: TrinoSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would set the checkpoint back, under an epoch that is over, and rows would come twice."""
    first = opened(declared, "first")
    found = stored(first)
    checkpoint = replace(found.document.checkpoint, positions={"0": 5})
    pending = TrinoPending("20200101_000000_00000_aaaaa", checkpoint)
    document = msgspec.structs.replace(found.document, pending=pending)
    assert first._store.checkpoints.swap(found, document) is not None
    first.close()
    others: list[TrinoSinkSession] = []
    decided = have_committed

    def late(*asked: Any, prove: bool) -> list[bool | None]:
        if others:
            return decided(*asked, prove=prove)
        others.append(first)
        others.append(opened(declared, "third"))
        return [True]

    monkeypatch.setattr(checkpoint_store, "have_committed", late)
    with pytest.raises(TakenOver):
        opened(declared, "second")
    third = others[1]
    kept = stored(third).document
    assert (kept.checkpoint.epoch, kept.checkpoint.positions) == (third.checkpoint.epoch, {})
    assert (kept.pending, kept.doubts, kept.aside) == (None, (pending,), ())
    assert third._store.checkpoints.after(kept, pending.query) == checkpoint
    third.close()


def test_a_driver_that_comes_late_writes_nothing_although_it_reads_its_checkpoint_once(
    declared: TrinoSink, trino: devservers.Trino
) -> None:
    """Between the beginning of its span and its end another driver has taken the flow."""
    first = opened(declared, "first")
    first.restart({"0": 0}, "source")
    first.begin(Span((OffsetSlice("0", 0, 1),)))
    second = opened(declared, "second")
    first.ticket()  # makes a name for the stage
    staged = msgspec.json.encode(stage.TrinoStaged("a", 1, '[[1,"one","0","",1]]')).decode()
    receipt = Receipt(TARGET.branch, "0", 1, Totals(1), (staged,))
    known = first._state

    def finished(found: BranchState | None) -> BranchState:
        epoch = known.checkpoint.epoch
        return check_owner(TARGET.flow, found, epoch, Run("first", "host", 1), declared.address())

    with pytest.raises(TakenOver):
        first._store.publish(finished, [receipt])
    assert stored(second).document.checkpoint.epoch == known.checkpoint.epoch + 1
    assert execute(trino, f"SELECT * FROM lake.{declared.usual_schema()}.target") == []
    second.close()


def test_a_micro_batch_reads_its_checkpoint_once(
    declared: TrinoSink,
    flow: Flow,
    engine: SparkSession,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One more for the session that opens: each is a query that the coordinator plans."""
    store.produce("t", 0, [b'{"id": 1, "name": "one"}'])
    assert run(flow, engine) == 1
    store.produce("t", 0, [b'{"id": 2, "name": "two"}'])
    texts, prepare = list[str](), TrinoClient.prepare

    def kept(self: TrinoClient, sql: str) -> Statement:
        texts.append(sql)
        return prepare(self, sql)

    monkeypatch.setattr(TrinoClient, "prepare", kept)
    assert run(flow, engine) == 1
    assert len([text for text in texts if text.startswith("SELECT stamp, state FROM")]) == 2


def test_a_table_is_emptied_once_also_where_others_change_the_checkpoints_meanwhile(
    declared: TrinoSink, trino: devservers.Trino, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next run deletes what was stored since, and does not read it again."""
    execute(trino, f"INSERT INTO lake.{declared.usual_schema()}.target VALUES (1, 'one')")
    session, refused = opened(declared, "first"), list[TrinoDocument]()
    swap = TrinoCheckpointTable.swap

    def conflicting(
        self: TrinoCheckpointTable,
        found: TrinoStored | None,
        document: TrinoDocument,
        stamp: str = "",
    ) -> TrinoStored | None:
        ends = found is not None and found.document.emptying and not document.emptying
        if ends and not refused:
            refused.append(document)
            return None
        return swap(self, found, document, stamp)

    monkeypatch.setattr(TrinoCheckpointTable, "swap", conflicting)
    session.restart({"0": 0}, "source", empty=True)
    assert refused
    assert not stored(session).document.emptying
    assert execute(trino, f"SELECT * FROM lake.{declared.usual_schema()}.target") == []
    session.close()


def test_rows_are_stored_once_where_a_conflict_was_a_commit_whose_answer_was_lost(
    declared: TrinoSink,
    trino: devservers.Trino,
    trino_schema: str,
    flow: Flow,
    engine: SparkSession,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [[number, f"row {number}"] for number in range(3)]
    bodies = [json.dumps({"id": number, "name": name}).encode() for number, name in rows]
    store.produce("t", 0, bodies)
    lost: list[str] = []
    to_its_end = Statement.run

    def unanswered(self: Statement) -> int:
        written = to_its_end(self)
        if written == len(rows) and not lost:
            lost.append(self.id)
            raise TrinoFailure("the catalog did not answer", CONFLICT, "EXTERNAL")
        return written

    monkeypatch.setattr(Statement, "run", unanswered)
    run(flow, engine)
    assert lost
    query = f"SELECT id, name FROM lake.{trino_schema}.target ORDER BY id"
    assert execute(trino, query) == rows
    assert run(flow, engine) == 0
    assert execute(trino, query) == rows


def test_a_driver_that_began_at_once_with_another_and_died_stops_nobody(
    declared: TrinoSink, trino: devservers.Trino, trino_schema: str
) -> None:
    """Its row says nothing, and the one of the driver that went on is kept."""
    place = f"lake.{trino_schema}.dataflow_checkpoints"
    first = opened(declared, "first")
    fresh = msgspec.json.encode(stored(first).document).decode().replace("'", "''")
    first.begin(Span((OffsetSlice("0", 0, 5),)))
    known = stored(first).document.checkpoint
    assert known.positions
    values = f"'{TARGET.id}', '{TARGET.flow}', 1, 'of the other', '{fresh}'"
    execute(trino, f"INSERT INTO {place} VALUES ({values})")
    first.close()
    second = opened(declared, "second")
    assert second.checkpoint.positions == known.positions
    second.close()
    assert execute(trino, f"SELECT count(*) FROM {place} WHERE id = '{TARGET.id}'") == [[1]]


@pytest.mark.full
def test_drivers_that_began_at_once_and_all_died_stop_nobody(
    declared: TrinoSink, trino: devservers.Trino, trino_schema: str
) -> None:
    """Nothing is known by their rows: one is kept, under which a session goes on, or forgets."""
    opened(declared, "first").close()
    place = f"lake.{trino_schema}.dataflow_checkpoints"
    copied = f"SELECT id, flow, epoch, 'of another', state FROM {place}"
    for _ in ("a run", "dataflow reset"):
        execute(trino, f"INSERT INTO {place} {copied}")
        session = opened(declared, "next")
        assert execute(trino, f"SELECT count(*) FROM {place}") == [[1]]
        session.forget()
        session.close()


@pytest.mark.full
def test_a_driver_whose_row_went_with_those_that_began_at_once_stores_nothing(
    declared: TrinoSink, trino: devservers.Trino, trino_schema: str
) -> None:
    """It lives, and the next one has kept the row of another driver."""
    first = opened(declared, "first")
    place = f"lake.{trino_schema}.dataflow_checkpoints"
    document = json.loads(execute(trino, f"SELECT state FROM {place}")[0][0])
    document["checkpoint"]["epoch"] += 1
    later = json.dumps(document).replace("'", "''")
    execute(trino, f"INSERT INTO {place} SELECT id, flow, 2, 'of another', '{later}' FROM {place}")
    second = opened(declared, "second")
    with pytest.raises(TakenOver):
        first.restart({"0": 0}, "source")
    second.restart({"0": 0}, "source")
    driver.stored(second, 0, [1, "one"])
    assert execute(trino, f"SELECT id FROM lake.{trino_schema}.target") == [[1]]
    for session in (first, second):
        session.close()


def test_two_checkpoints_that_both_know_something_are_left_to_a_person(
    declared: TrinoSink, trino: devservers.Trino, trino_schema: str
) -> None:
    first = opened(declared, "first")
    first.restart({"0": 0}, "source")
    first.close()
    place = f"lake.{trino_schema}.dataflow_checkpoints"
    copied = f"SELECT id, flow, epoch, 'of another', state FROM {place}"
    execute(trino, f"INSERT INTO {place} {copied}")
    with pytest.raises(PermanentError, match=r"has 2 checkpoints of flow ns/takeovers, which no"):
        opened(declared, "second")
    assert execute(trino, f"SELECT count(*) FROM {place}") == [[2]]


def test_stages_of_a_later_driver_are_left_alone(
    declared: TrinoSink, trino: devservers.Trino
) -> None:
    session = opened(declared, "first")
    place, branch, epoch = session._table.place, TARGET.id, session.checkpoint.epoch
    client = session._store.client
    names = [stage.name(branch, number, "abcdef01") for number in (epoch - 1, epoch, epoch + 1)]
    for name in names:
        stage.create(client, place.beside(name))
    session._store.stage.drop_older(session.checkpoint.epoch)
    session.close()
    left = {name for (name,) in execute(trino, f"SHOW TABLES FROM lake.{place.schema}")}
    assert left & set(names) == {names[-1]}


@pytest.mark.full
@pytest.mark.parametrize(
    ("catalog", "more"),
    [
        ("pg", {}),
        ("pg", {"upsertMode": True, "conflictKey": "id"}),
        ("memory", {}),
        ("lake", {}),
        ("lake", {"upsertMode": True, "conflictKey": "id"}),
    ],
    ids=["pg", "pg-upsert", "memory", "lake", "lake-upsert"],
)
def test_a_statement_that_begins_after_a_takeover_fails_and_is_no_commit(
    catalog: str,
    more: dict[str, Any],
    trino: devservers.Trino,
    trino_schema: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It runs between the stamp of the second driver and its question how the query has ended."""
    execute(trino, f"CREATE SCHEMA IF NOT EXISTS {catalog}.{trino_schema}")
    _create(trino, catalog, trino_schema, keyed=bool(more))
    checkpoints = f"lake.{trino_schema}.dataflow_checkpoints"
    given = config(trino, trino_schema) | {"catalog": catalog, "checkpointTable": checkpoints}
    first = opened(sink := TrinoSink.model_validate(given | more), "first")
    first.restart({"0": 0}, "source")
    recorded, wakes = threading.Event(), threading.Event()
    raised = list[DataflowError]()

    def paused(name: str) -> None:
        if name == "trino.recorded":
            recorded.set()
            assert wakes.wait(300)

    def write() -> None:
        try:
            driver.stored(first, 0, [1, "one"])
        except DataflowError as error:
            raised.append(error)

    thread = threading.Thread(target=write)

    def asked(*given: Any, prove: bool) -> list[bool | None]:
        wakes.set()
        thread.join()
        return have_committed(*given, prove=prove)

    monkeypatch.setattr(publish, "reach", paused)
    monkeypatch.setattr(checkpoint_store, "have_committed", asked)
    thread.start()
    assert recorded.wait(300)
    second = opened(sink, "second")
    assert second.checkpoint.positions == {"0": 0}
    assert isinstance(raised[0], TakenOver)
    monkeypatch.setattr(publish, "reach", lambda _: None)
    driver.stored(second, 0, [1, "one"])
    place = f"{catalog}.{trino_schema}.target"
    assert execute(trino, f"SELECT id, name FROM {place}") == [[1, "one"]]
    second.close()
    first.close()
    if catalog != "lake":
        execute(trino, f"DROP TABLE {place}")
        execute(trino, f"DROP SCHEMA {catalog}.{trino_schema}")


def _create(server: devservers.Trino, catalog: str, schema: str, *, keyed: bool) -> None:
    if catalog == "pg" and keyed:
        sql = f"CREATE TABLE {schema}.target (id bigint primary key, name varchar)"
        execute(server, f"CALL pg.system.execute(query => '{sql}')")
        return
    execute(server, f"CREATE TABLE {catalog}.{schema}.target (id bigint, name varchar)")


@pytest.mark.full
def test_a_driver_that_is_paused_before_its_statement_is_told_that_another_has_come(
    declared: TrinoSink, trino: devservers.Trino, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a TransientError it would open again, and take the branch back."""
    first, others = opened(declared, "first"), list[TrinoSinkSession]()
    first.restart({"0": 0}, "source")

    def paused(name: str) -> None:
        if name == "trino.recorded":
            others.append(opened(declared, "second"))

    monkeypatch.setattr(publish, "reach", paused)
    with pytest.raises(TakenOver):
        driver.stored(first, 0, [1, "one"])
    assert others[0].checkpoint.positions == {"0": 0}
    assert execute(trino, f"SELECT * FROM lake.{declared.usual_schema()}.target") == []
    for session in (first, *others):
        session.close()
