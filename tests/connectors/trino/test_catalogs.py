"""What catalogs can do is found by trying it, and said; types are those that the catalog has."""

from __future__ import annotations

import json
import logging
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.memory import Store
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.rejected.error_sink import _APART, _WHOLE, TrinoRejected
from dataflow_assets.connectors.trino.sink.publish import TrinoPublisher
from dataflow_assets.connectors.trino.table import stage
from dataflow_assets.connectors.trino.table.capabilities import Capabilities
from dataflow_assets.connectors.trino.table.checkpoint_table import TrinoCheckpointTable
from dataflow_assets.connectors.trino.table.table import Column, TrinoPlace, TrinoTable
from dataflow_assets.contracts import ErrorRecord, Run, Target
from dataflow_assets.errors import PermanentError
from dataflow_assets.manifests.load import load
from dataflow_assets.sdk.sql_table.rejected import error_row
from dataflow_assets.spec import hints
from dataflow_assets.testing import choose
from tests.connectors.trino.driver import execute, opened
from tests.flows import manifest, messages
from tests.matrix.test_matrix import run

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

TARGET = Target("ns/catalogs", "trino", "h", "t")


@pytest.fixture
def pg(trino: devservers.Trino) -> Iterator[str]:
    """A fresh schema of the catalog `pg`."""
    name = f"s_{uuid.uuid4().hex[:8]}"
    execute(trino, f"CREATE SCHEMA pg.{name}")
    yield name
    for (table,) in execute(trino, f"SHOW TABLES FROM pg.{name}"):
        execute(trino, f'DROP TABLE pg.{name}."{table}"')
    execute(trino, f"DROP SCHEMA pg.{name}")


def sink(server: devservers.Trino, catalog: str, schema: str, **more: Any) -> TrinoSink:
    config = {"serverURL": server.uri, "catalog": catalog, "schema": schema, "table": "target"}
    return TrinoSink.model_validate(config | more)


def test_what_a_catalog_can_do_is_found_by_trying(
    trino: devservers.Trino, trino_schema: str, pg: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the catalog is called."""
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar)")
    execute(trino, f"CREATE TABLE pg.{pg}.target (id bigint, name varchar)")
    keyed = {"upsertMode": True, "conflictKey": "id"}
    for more in ({}, keyed):
        sink(trino, "lake", trino_schema, **more).open(TARGET, Run()).close()
    assert "at least once" not in caplog.text
    with caplog.at_level(logging.WARNING):
        sink(trino, "pg", pg).open(TARGET, Run()).close()
    assert "catalog pg does not list its commits" in caplog.text
    with pytest.raises(PermanentError, match=r"upsertMode needs MERGE, which catalog pg does not"):
        sink(trino, "pg", pg, **keyed).open(TARGET, Run())
    with pytest.raises(PermanentError, match=r"conflictKey names key, which lake\.\w+\.target"):
        sink(trino, "lake", trino_schema, upsertMode=True, conflictKey="key").open(TARGET, Run())


def test_rows_that_no_condition_deletes_are_taken_out_by_a_person(
    trino: devservers.Trino, pg: str
) -> None:
    """A driver that asks, and deletes then, may be late: the next one's rows would go."""
    place = f"pg.{pg}.target"
    execute(trino, f"CREATE TABLE {place} (id bigint, name varchar)")
    execute(trino, f"INSERT INTO {place} VALUES (1, 'one')")
    session = opened(declared := sink(trino, "pg", pg), TARGET, "first")
    session.restart({"0": 3}, "source")
    with pytest.raises(PermanentError, match=rf"delete the rows of {place}: .*\(NOT_SUPPORTED\)"):
        session.restart({"0": 0}, "source", empty=True)
    session.close()
    assert execute(trino, f"SELECT id FROM {place}") == [[1]]
    session = opened(declared, TARGET, "second")
    assert session.checkpoint.positions == {"0": 3}
    execute(trino, f"DELETE FROM {place}")
    session.restart({"0": 0}, "source", empty=True)
    assert session.checkpoint.positions == {"0": 0}
    session.close()


def test_a_flow_that_creates_its_table_says_what_it_promises(
    trino: devservers.Trino, pg: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In the run that creates it, and not only in the next one."""
    session = opened(sink(trino, "pg", pg, autoCreateTable=True), TARGET, "first")
    with caplog.at_level(logging.WARNING):
        session.table.create(pa.schema([("id", pa.int64()), ("name", pa.string())]))
    session.close()
    assert "catalog pg does not list its commits" in caplog.text


def test_a_table_whose_merges_do_not_see_rows_of_others_is_not_exactly_once(
    trino: devservers.Trino, trino_schema: str, catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    """With isolation `snapshot` a MERGE commits beside an INSERT that came meanwhile."""
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar)")
    with catalog.load_table((trino_schema, "target")).transaction() as change:
        change.set_properties({"write.delete.isolation-level": "snapshot"})
    with caplog.at_level(logging.WARNING):
        sink(trino, "lake", trino_schema).open(TARGET, Run()).close()
    said = f"the property write.delete.isolation-level of lake.{trino_schema}.target is snapshot"
    assert f"{said}: rows that are appended are stored at least once" in caplog.text
    keyed = sink(trino, "lake", trino_schema, upsertMode=True, conflictKey="id")
    with pytest.raises(PermanentError, match="to be serializable, which is Iceberg's own value"):
        keyed.open(TARGET, Run())
    with catalog.load_table((trino_schema, "target")).transaction() as change:
        change.remove_properties("write.delete.isolation-level")
    keyed.open(TARGET, Run()).close()


def test_a_catalog_without_updates_needs_a_checkpoint_elsewhere(
    trino: devservers.Trino, trino_schema: str, tmp_path: Path, engine: SparkSession, store: Store
) -> None:
    name = f"memory_{uuid.uuid4().hex[:8]}"
    execute(trino, f"CREATE TABLE memory.default.{name} (id bigint, name varchar)")
    config = {"serverURL": trino.uri, "catalog": "memory", "schema": "default", "table": name}
    store.produce("t", 0, [json.dumps({"id": 1, "name": "one"}).encode()])

    def drained(**more: str) -> int:
        path = manifest(tmp_path, messages(store), ("trino", config | more))
        return run(choose(load(path), None), engine)

    with pytest.raises(PermanentError, match="set checkpointTable to a table of a catalog that"):
        drained()
    assert drained(checkpointTable=f"lake.{trino_schema}.checkpoints") == 1
    assert execute(trino, f"SELECT * FROM memory.default.{name}") == [[1, "one"]]


def test_tables_are_made_in_the_types_of_the_catalog(
    trino: devservers.Trino, trino_schema: str, tmp_path: Path, engine: SparkSession, store: Store
) -> None:
    """Iceberg has no tinyint, no time zone but UTC, and no more than six digits of a second."""
    columns = {
        "small": "tinyint",
        "amount": "decimal(38, 18)",
        "late": "timestamp(9)",
        "at": "timestamp(6) with time zone",
        "tags": "array(row(k varchar, v decimal(5, 2)))",
        "counts": "map(varchar, bigint)",
        "key": "uuid",
        "bytes": "varbinary",
    }
    row = {
        "small": -128,
        "amount": "12345678901234567890.123456789012345678",
        "late": "2020-02-29T12:00:00.123456789",
        "at": "2020-02-29T12:00:00.123456+02:00",
        "tags": [{"k": "it's", "v": 1.25}, {"k": None, "v": None}],
        "counts": {"a": 9007199254740993},
        "key": "9b155af0-0f06-4d56-a294-3d90a9f0a63d",
        "bytes": "AP8=",
        "text": "quotes ' and \" and \\ and ü \u0001 €",
        "nested": {"a": [1, {"b": None}]},
        "nothing": None,
    }
    store.produce("t", 0, [json.dumps(row).encode(), json.dumps({"small": 1}).encode()])
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    config |= {"autoCreateTable": True, "columns": columns}  # type: ignore[dict-item]
    path = manifest(tmp_path, messages(store), ("trino", config))
    assert run(choose(load(path), None), engine) == 2
    made = {name: kind for name, kind, *_ in execute(trino, f"DESCRIBE lake.{trino_schema}.target")}
    assert made["small"] == "integer"
    assert made["late"] == "varchar"
    assert made["counts"] == "map(varchar, bigint)"
    assert made["nested"] == "varchar"
    listed = "small, CAST(amount AS varchar), late, CAST(at AS varchar), CAST(tags AS json)"
    listed += ", counts['a'], CAST(key AS varchar), to_hex(bytes), text, nested, nothing"
    found = execute(trino, f"SELECT {listed} FROM lake.{trino_schema}.target WHERE small < 0")
    assert found == [
        [
            -128,
            row["amount"],
            "2020-02-29T12:00:00.123456789",
            "2020-02-29 10:00:00.123456 UTC",
            '[{"k":"it\'s","v":1.25},{"k":null,"v":null}]',
            9007199254740993,
            row["key"],
            "00FF",
            row["text"],
            '{"a": [1, {"b": null}]}',
            None,
        ]
    ]


def test_many_rows_wait_in_a_stage_that_is_dropped(
    trino: devservers.Trino, trino_schema: str, tmp_path: Path, engine: SparkSession, store: Store
) -> None:
    """A row that is longer than a statement is rejected; all others are stored, by one MERGE."""
    rows = [{"id": number, "name": f"{number} " + "x" * 300} for number in range(1_000)]
    bodies = [json.dumps(row).encode() for row in rows]
    bodies.insert(500, json.dumps({"id": -1, "name": "x" * 200_000}).encode())
    for partition in (0, 1):
        store.produce("t", partition, bodies[partition::2])
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar)")
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    config |= {"maxStatementLength": 150_000}  # type: ignore[dict-item]
    path = manifest(tmp_path, messages(store), ("trino", config), records=10_000)
    with path.open("a", encoding="utf-8") as file:
        file.write("  onRejected: table\n")
    assert run(choose(load(path), None), engine) == 1_000
    place = f"lake.{trino_schema}"
    found = execute(trino, f"SELECT id, name FROM {place}.target ORDER BY id")
    assert found == [[row["id"], row["name"]] for row in rows]
    ((reason,),) = execute(trino, f"SELECT reason FROM {place}.target_rejected")
    assert "characters are more than one statement takes" in reason
    tables = {name for (name,) in execute(trino, f"SHOW TABLES FROM {place}")}
    assert tables == {"target", "target_rejected", "dataflow_checkpoints"}


def test_what_is_said_before_a_run() -> None:
    config: dict[str, Any]
    config = {"serverURL": "http://t:1", "catalog": "c", "schema": "s", "table": "t"}
    said = dict(hints(TrinoSink.model_validate(config)))
    assert "at least once" in said["catalog"]
    keyed = {"upsertMode": True, "conflictKey": "id"}
    said = dict(hints(TrinoSink.model_validate(config | keyed)))
    assert "commits a MERGE as a whole" in said["catalog"]
    config["catalogSecretRef"] = {"name": "n", "key": "k"}
    del config["catalog"]
    said = dict(hints(TrinoSink.model_validate(config)))
    assert "at least once" in said["catalogSecretRef"]
    with pytest.raises(ValueError, match="upsertMode requires conflictKey"):
        TrinoSink.model_validate(config | {"upsertMode": True})


@pytest.mark.parametrize(("most", "expected"), [(10_000, 5_000), (1_000_000, 940_000)])
def test_also_a_short_statement_has_room_for_rows(most: int, expected: int) -> None:
    """With none every row would be rejected as too long."""
    given = {"serverURL": "http://t:1", "catalog": "c", "schema": "s", "table": "t"}
    declared = TrinoSink.model_validate(given | {"maxStatementLength": most})
    assert stage.room(declared.max_statement_length) == expected


@pytest.mark.parametrize(("count", "staged"), [(10, False), (60, False), (150, False), (250, True)])
@pytest.mark.parametrize("more", [{}, {"upsertMode": True, "conflictKey": "column_of_customer_0"}])
def test_a_statement_of_many_columns_is_no_longer_than_allowed(
    count: int, more: dict[str, Any], *, staged: bool
) -> None:
    """A MERGE names each column many times: rows that leave no room for that wait in a stage."""
    given = {"serverURL": "http://t:1", "catalog": "c", "schema": "s", "table": "t"}
    declared, sent = TrinoSink.model_validate(given | more), list[str]()
    client = cast(
        "TrinoClient", SimpleNamespace(run=sent.append, create=sent.append, rows=lambda _: [])
    )
    columns = tuple(Column(f"column_of_customer_{at}", "varchar") for at in range(count))
    table = TrinoTable(TrinoPlace("c", "s", "t"), columns, "i")
    checkpoints = TrinoCheckpointTable(client, declared, TARGET)
    able = Capabilities(snapshots=True, merge=True)
    publisher = TrinoPublisher(client, declared, TARGET.flow, checkpoints, table, able)
    most = declared.max_statement_length
    row = json.dumps(["x" * 90_000] + [""] * (count + 1))
    receipts = [stage.TrinoStaged(f"a{at}", 1, f"[{row}]") for at in range(10)]
    source = publisher.source(TrinoPlace("c", "s", "stage"), receipts)
    sql = publisher._sql(source, ["20200101_000000_00000_aaaaa"], "0" * 32)
    assert len(sql) <= most
    assert all(len(one) <= most for one in sent)
    assert bool(source.attempts) == bool(sent)
    if more:
        assert bool(source.attempts) == staged
    assert bool(source.inline) != bool(source.attempts)


@pytest.mark.parametrize(("text", "expected"), [("ab", 2), ("it's", 5), ("ü€", 2), ("a😀b", 4)])
def test_the_length_of_a_text_is_what_trino_counts(text: str, expected: int) -> None:
    """Else a chunk of many emojis is refused, for good, as a text that is too large."""
    assert stage.length_of(text) == expected


def test_a_row_that_is_too_long_is_rejected_where_values_are_tried_as_well(
    trino: devservers.Trino, trino_schema: str, tmp_path: Path, engine: SparkSession, store: Store
) -> None:
    """It fits no statement, also none that only looks at it."""
    columns = "id bigint, name varchar, counts map(varchar, bigint)"
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target ({columns})")
    rows = [{"id": 1, "counts": {"a": 1}}, {"id": 2, "name": "x" * 1_200_000}, {"id": 3}]
    store.produce("t", 0, [json.dumps(row).encode() for row in rows])
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    path = manifest(tmp_path, messages(store), ("trino", config))
    with path.open("a", encoding="utf-8") as file:
        file.write("  onRejected: skip\n")
    assert run(choose(load(path), None), engine) == 2
    found = execute(trino, f"SELECT id FROM lake.{trino_schema}.target ORDER BY id")
    assert found == [[1], [3]]


def test_a_record_that_no_statement_takes_is_kept_beside_the_table(
    trino: devservers.Trino, trino_schema: str, tmp_path: Path, engine: SparkSession, store: Store
) -> None:
    """Whole, and with the others; nothing of its pieces is left."""
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar)")
    long = 'it\'s 😀 \\ "long" ' * 100_000
    rows = [{"id": 1, "name": "a"}, {"id": "no", "name": "b"}, {"id": 2, "name": long}, {"id": 3}]
    store.produce("t", 0, [json.dumps(row).encode() for row in rows])
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    path = manifest(tmp_path, messages(store), ("trino", config))
    with path.open("a", encoding="utf-8") as file:
        file.write("  onRejected: table\n  maxRejectedPercent: 90\n")
    assert run(choose(load(path), None), engine) == 2
    place = f"lake.{trino_schema}"
    found = execute(trino, f"SELECT body FROM {place}.target_rejected ORDER BY id")
    assert [json.loads(message) for (message,) in found] == [rows[1], rows[2]]
    tables = {name for (name,) in execute(trino, f"SHOW TABLES FROM {place}")}
    assert tables == {"target", "target_rejected", "dataflow_checkpoints"}


def test_a_chunk_has_no_more_rows_than_the_statement_can_tell_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else rows of the next chunk would come before its last ones, and the older row would win."""
    monkeypatch.setattr(stage, "MOST_ROWS", 4)
    run_sql: list[str] = []
    client = cast("TrinoClient", SimpleNamespace(run=run_sql.append, create=run_sql.append))
    chunks = stage.TrinoChunks(client, TrinoPlace("c", "s", "t"), "a", 1_000_000)
    for number in range(7):
        chunks.add(f"[{number}]", 3)
    chunks.flush()
    assert [sql[sql.index("VALUES") :] for sql in run_sql if "INSERT" in sql] == [
        "VALUES ('a', 0, '[[0],[1],[2]]')",
        "VALUES ('a', 1, '[[3],[4],[5]]')",
        "VALUES ('a', 2, '[[6]]')",
    ]


def test_the_reason_of_a_rejected_record_can_be_stored_in_postgresql() -> None:
    """The message is JSON text, in which the character is written as an escape anyway."""
    body = b'{"error": {"message": "is a\\u0000b"}, "original_message": {"a": "\\u0000"}}'
    record = ErrorRecord("id", "ns/flow", body, b"{}")
    nothing: Any = None
    for columns in (_APART, _WHOLE):
        table = TrinoRejected(nothing, nothing, nothing, columns, frozenset())
        row = table._values(error_row(record))
        assert row[2] == r"is a\u0000b"
        assert not any("\0" in str(text) for text in row)


@pytest.mark.crash
@pytest.mark.parametrize("failpoint", ["trino.read", "trino.read-batch"])
def test_a_load_that_breaks_off_neither_loses_nor_doubles(
    failpoint: str,
    trino: devservers.Trino,
    trino_schema: str,
    tmp_path: Path,
    engine: SparkSession,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task ends before it has its rows, and behind some of them: what was read is not stored."""
    place = f"lake.{trino_schema}.source"
    made = "SELECT n AS id, CAST(n AS varchar) AS name FROM UNNEST(sequence(0, 59)) AS t (n)"
    execute(trino, f"CREATE TABLE {place} AS {made}")
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "source"}
    source = ("trino", config | {"pollInterval": 0})
    target = ("memory-span", {"store": store.name, "table": "target"})
    flow = choose(load(manifest(tmp_path, source, target, records=20)), None)
    token = uuid.uuid4().hex
    monkeypatch.setenv("DATAFLOW_FAILPOINT", f"{failpoint}:raise:2")
    monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", token)
    run(flow, engine)
    reached = Path(tempfile.gettempdir(), f"dataflow-failpoint-{failpoint}-{token}")
    assert reached.stat().st_size > 2
    execute(trino, f"INSERT INTO {place} VALUES (60, '60')")
    run(flow, engine)
    found = sorted(json.loads(row)["id"] for (row,) in store.query("select row from rows"))
    assert found == list(range(61))


@pytest.mark.full
def test_a_text_that_postgresql_cannot_hold_is_rejected(
    trino: devservers.Trino,
    trino_schema: str,
    pg: str,
    tmp_path: Path,
    engine: SparkSession,
    store: Store,
) -> None:
    """U+0000, which Trino takes and the database refuses, as if the same might succeed later."""
    execute(trino, f"CREATE TABLE pg.{pg}.target (id bigint, name varchar)")
    names = ["one", "a\0b", "three"]
    bodies = [json.dumps({"id": at, "name": name}).encode() for at, name in enumerate(names)]
    store.produce("t", 0, [*bodies, b'{"id": "c\\u0000d"}'])
    config = {"serverURL": trino.uri, "catalog": "pg", "schema": pg, "table": "target"}
    checkpoints = {"checkpointTable": f"lake.{trino_schema}.dataflow_checkpoints"}
    path = manifest(tmp_path, messages(store), ("trino", config | checkpoints))
    with path.open("a", encoding="utf-8") as file:
        file.write("  onRejected: table\n  maxRejectedPercent: 90\n")
    assert run(choose(load(path), None), engine) == 2
    assert execute(trino, f"SELECT id FROM pg.{pg}.target ORDER BY id") == [[0], [2]]
    rejected = execute(trino, f"SELECT reason FROM pg.{pg}.target_rejected ORDER BY id")
    reasons = [reason for (reason,) in rejected]
    assert len(reasons) == 2
    assert "holds the character NUL, which text cannot store" in reasons[0]
