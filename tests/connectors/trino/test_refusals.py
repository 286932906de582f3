"""What Trino would do silently, or what is one moment's trouble, is told for what it is."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.memory import Store
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import Statement, TrinoClient
from dataflow_assets.connectors.trino.errors import TrinoFailure
from dataflow_assets.connectors.trino.sink.refused_values import TrinoTrial
from dataflow_assets.connectors.trino.table import capabilities
from dataflow_assets.connectors.trino.table.table import Column, TrinoPlace, find
from dataflow_assets.contracts import Run, Target
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.testing import choose
from tests.connectors.trino.driver import execute
from tests.flows import manifest, messages
from tests.matrix.test_matrix import run

pytestmark = [pytest.mark.full, pytest.mark.heavy, pytest.mark.timeout(600)]

_MANY = "UNNEST(sequence(1, 10000))"
LONG = f"SELECT count(*) FROM {_MANY} a(x), {_MANY} b(y), {_MANY} c(z) WHERE x * y % 7 = z % 5"
"""A query that takes hours."""
Drained = Callable[..., int]


@pytest.fixture
def drained(
    trino: devservers.Trino, trino_schema: str, tmp_path: Path, engine: SparkSession, store: Store
) -> Drained:
    """Rows into a table `target`, or as `config` says; how many were stored."""

    def drain(*rows: dict[str, Any], **config: Any) -> int:
        store.produce("t", 0, [json.dumps(row).encode() for row in rows])
        where = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema}
        where |= {"table": "target"} | config
        path = manifest(tmp_path, messages(store), ("trino", where))
        with path.open("a", encoding="utf-8") as file:
            file.write("  onRejected: table\n  maxRejectedPercent: 90\n")
        return run(choose(load(path), None), engine)

    return drain


def declared(server: devservers.Trino, schema: str, **more: Any) -> TrinoSink:
    config = {"serverURL": server.uri, "catalog": "lake", "schema": schema, "table": "target"}
    return TrinoSink.model_validate(config | more)


def test_capital_letters_in_the_names_of_a_manifest_are_small_ones(
    drained: Drained, trino: devservers.Trino, trino_schema: str
) -> None:
    """As in all statements of Trino; else the same table would have two checkpoints."""
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar)")
    upper = {"schema": trino_schema.upper(), "upsertMode": True, "conflictKey": "ID"}
    assert drained({"id": 1, "name": "one"}, table="Target", **upper) == 1
    assert execute(trino, f"SELECT * FROM lake.{trino_schema}.target") == [[1, "one"]]
    one, other = (declared(trino, trino_schema, table=name) for name in ("Target", "target"))
    assert one.address() == other.address()


def test_a_table_is_not_made_with_columns_that_no_record_would_reach(drained: Drained) -> None:
    with pytest.raises(PermanentError) as caught:
        drained({"userId": 1, "name": "one"}, autoCreateTable=True)
    assert str(caught.value) == (
        "table target cannot be made: Trino has all names of columns in small letters, and the "
        "records have userId; rename them with a step `snakeCase` or `replaceField`"
    )


@pytest.mark.parametrize("kind", ["decimall(10, 2)", "decimal(50, 2)"])
def test_a_type_that_trino_does_not_know_is_refused(drained: Drained, kind: str) -> None:
    """And is no reason to store amounts as text."""
    with pytest.raises(PermanentError, match=r"columns\.amount: Trino does not take the type deci"):
        drained({"id": 1, "amount": 1.5}, autoCreateTable=True, columns={"amount": kind})


def test_text_that_is_too_long_is_rejected_inside_arrays_and_rows_too(
    drained: Drained, trino: devservers.Trino, trino_schema: str
) -> None:
    where = {"catalog": "memory", "schema": "default", "table": f"long_{trino_schema}"}
    where["checkpointTable"] = f"lake.{trino_schema}.checkpoints"
    place = f"memory.default.{where['table']}"
    execute(trino, f"CREATE TABLE {place} (id bigint, tags array(varchar(3)), r row(a char(2)))")
    try:
        rows = (
            {"id": 1, "tags": ["abc", None], "r": {"a": "x"}},
            {"id": 2, "tags": ["abcd"], "r": None},
            {"id": 3, "tags": [], "r": {"a": "xyz"}},
        )
        assert drained(*rows, **where) == 1
        assert execute(trino, f"SELECT id, tags, r[1] FROM {place}") == [[1, ["abc", None], "x "]]
        told = execute(trino, f"SELECT reason FROM {place}_rejected ORDER BY id")
        assert [reason for (reason,) in told] == [
            "column tags: not the text of a array(varchar(3))",
            'column r: not the text of a row("a" char(2))',
        ]
    finally:
        for name in (place, f"{place}_rejected"):
            execute(trino, f"DROP TABLE IF EXISTS {name}")


def test_frames_store_no_value_but_their_own(
    trino: devservers.Trino, trino_schema: str, spark: SparkSession
) -> None:
    """Neither text that is cut off nor digits that are rounded away."""
    name = f"short_{trino_schema}"
    execute(trino, f"CREATE TABLE memory.default.{name} (code varchar(5), price decimal(9, 2))")
    sink = declared(trino, "default", catalog="memory", table=name)
    frames = sink.frames("default", name)
    try:
        long = spark.sql("SELECT 'DE-4711' AS code")
        with pytest.raises(PermanentError, match=r"longer than varchar\(5\): DE-4711"):
            frames.write(long, "append", (), None)
        fine = spark.sql("SELECT CAST(1.2345 AS decimal(12, 4)) AS price")
        with pytest.raises(PermanentError, match=r"column price of .+ digits would be rounded"):
            frames.write(fine, "append", (), None)
        frames.write(spark.sql("SELECT 'DE-47' AS code, 1.25BD AS price"), "append", (), None)
        assert execute(trino, f"SELECT code FROM memory.default.{name}") == [["DE-47"]]
    finally:
        execute(trino, f"DROP TABLE memory.default.{name}")


def test_an_outage_while_a_catalog_is_tried_is_no_lack_of_its(
    trino: devservers.Trino, trino_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for one, exactly once would be at least once, or the flow would end for good."""
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar)")
    with closing(TrinoClient(declared(trino, trino_schema), "tests")) as client:
        table = find(client, TrinoPlace("lake", trino_schema, "target"))
        assert table is not None
        down = TrinoFailure("the store answers 503", "ICEBERG_FILESYSTEM_ERROR", "EXTERNAL")

        def failing(_: TrinoClient, __: str) -> int:
            raise down

        monkeypatch.setattr(TrinoClient, "run", failing)
        with pytest.raises(TrinoFailure) as caught:
            capabilities.ask(client, table, ())
    assert caught.value.transient


def test_a_coordinator_that_was_started_again_is_asked_again(
    trino: devservers.Trino, trino_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows no query of before: 404."""
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar)")
    sink = declared(trino, trino_schema)
    forgotten = "20200101_000000_00000_aaaaa"
    process = TrinoClient.prepare

    def unknown(self: TrinoClient, sql: str) -> Statement:
        statement = process(self, sql)
        known = statement._status.next_uri
        statement._status.next_uri = known.replace(statement.id, forgotten) if known else None
        return statement

    monkeypatch.setattr(TrinoClient, "prepare", unknown)
    with pytest.raises(TransientError, match=r"does not know query 2\S+ any more: was the coord"):
        sink.open(Target("ns/f", "trino", "h", "t"), Run())
    monkeypatch.undo()


def test_a_statement_that_nobody_waits_for_is_cancelled(
    trino: devservers.Trino, trino_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next run waits for it."""
    with closing(TrinoClient(declared(trino, trino_schema), "tests")) as client:
        statement = client.prepare(LONG)
        following, fetched = Statement._next, list[str]()

        def interrupted(self: Statement, uri: str) -> Any:
            fetched.append(uri)
            if len(fetched) > 2:
                raise KeyboardInterrupt
            return following(self, uri)

        monkeypatch.setattr(Statement, "_next", interrupted)
        with pytest.raises(KeyboardInterrupt):
            statement.run()
        monkeypatch.undo()
    mine = f"query_id = '{statement.id}'"
    query = f"SELECT state, error_code FROM system.runtime.queries WHERE {mine}"
    assert execute(trino, query) == [["FAILED", "USER_CANCELED"]]


def test_a_statement_that_takes_too_long_is_ended_and_says_what_to_raise(
    trino: devservers.Trino, trino_schema: str
) -> None:
    brief = declared(trino, trino_schema, queryTimeoutSeconds=1)
    said = r"EXCEEDED_TIME_LIMIT\); raise queryTimeoutSeconds, or lower maxRecordsPerBatch"
    with (
        pytest.raises(TransientError, match=said),
        translate_errors("reading"),
        closing(TrinoClient(brief, "tests")) as client,
    ):
        client.rows(LONG)


def test_a_catalog_that_is_full_where_rows_are_staged(
    trino: devservers.Trino, tmp_path: Path, engine: SparkSession, store: Store
) -> None:
    """What has come into the stage counts for nobody; once there is room all is stored, once."""
    name = f"full_{uuid.uuid4().hex[:8]}"
    target, filler = f"memory.default.{name}", f"memory.default.filler_{name}"
    store.produce(
        "t", 0, [json.dumps({"id": n, "name": "x" * 200_000}).encode() for n in range(20)]
    )
    where = {"serverURL": trino.uri, "catalog": "memory", "schema": "default", "table": name}
    where["checkpointTable"] = f"pg.public.c_{name}"
    flow = choose(load(manifest(tmp_path, messages(store), ("trino", where))), None)
    execute(trino, f"CREATE TABLE {target} (id bigint, name varchar)")
    try:
        _fill(trino, filler)
        with pytest.raises(TransientError, match=r"writing to trino/.*MEMORY_LIMIT_EXCEEDED"):
            list(drain(flow, lambda: engine, Request(patience=Patience(0.5, 0.05, 0.2))))
        assert execute(trino, f"SELECT count(*) FROM {target}") == [[0]]
        execute(trino, f"DROP TABLE {filler}")
        assert run(flow, engine) == 20
        assert execute(trino, f"SELECT id FROM {target} ORDER BY id") == [[n] for n in range(20)]
        staged = execute(trino, "SHOW TABLES FROM memory.default LIKE 'dataflow_stage_%'")
        assert staged == []
    finally:
        for table in (filler, target, where["checkpointTable"]):
            execute(trino, f"DROP TABLE IF EXISTS {table}")


def _fill(server: devservers.Trino, table: str) -> None:
    """Until less than a chunk of rows has room."""
    execute(server, f"CREATE TABLE {table} (text varchar)")
    for rows, length in ((16, 1_000_000), (1, 1_000_000), (1, 100_000)):
        values = f"SELECT lpad(CAST(n AS varchar), {length}, 'x') FROM UNNEST(sequence(1, {rows}))"
        with pytest.raises(TrinoFailure, match="MEMORY_LIMIT_EXCEEDED"):
            _repeated(server, f"INSERT INTO {table} {values} AS given (n)")


def _repeated(server: devservers.Trino, sql: str) -> NoReturn:
    while True:
        execute(server, sql)


@pytest.mark.parametrize(("given", "seconds"), [(7, 7), (0, 300), (-1, 300)])
def test_how_long_a_statement_may_run(given: int, seconds: int) -> None:
    where = {"serverURL": "http://trino:8080", "catalog": "c", "schema": "s", "table": "t"}
    assert TrinoSink.model_validate(where | {"queryTimeoutSeconds": given}).seconds == seconds


def test_times_that_trino_does_not_know_are_rejected_and_end_no_statement(
    trino: devservers.Trino, trino_schema: str
) -> None:
    """A day's end at 24:00, as PostgreSQL has it, and infinity inside an array."""
    columns = (Column("at", "time(6)"), Column("days", "array(date)"))
    lines = [
        json.dumps([at, days, "0", ""])
        for at, days in (
            ("23:59:59.999999", ["2020-01-01"]),
            ("24:00:00", None),
            (None, ["2020-01-01", "infinity"]),
        )
    ]
    sink = TrinoSink.model_validate(
        {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "t"}
    )
    with closing(TrinoClient(sink, "tests")) as client:
        assert TrinoTrial(client, columns, 100_000).refused_rows(lines) == {
            1: "column at: not the text of a time(6)",
            2: "column days: not the text of a array(date)",
        }
