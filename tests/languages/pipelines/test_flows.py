"""Pipelines from a stream of Kinesis into each target, as SingleStore's page writes them."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clickhouse_connect
import psycopg
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.cli import main
from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import Flow
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from tests.connectors.iceberg.driver import connection
from tests.connectors.kafka_connect.driver import plugins
from tests.connectors.kinesis.driver import Stream
from tests.drained import drain_apart, drained, follow_apart
from tests.languages.pipelines.files import (
    COMPUTED,
    DISTRIBUTION,
    FIRST,
    OFFSETS,
    PERFORMANCE,
    QUERIES,
    SECOND,
    STATUS,
    loaded,
    told,
)


@pytest.fixture
def stream(kinesis: devservers.Kinesis) -> Iterator[Stream]:
    made = Stream(kinesis)
    yield made
    made.remove()


def written(stream: Stream, text: str) -> str:
    """The text of the page, with a stream, keys and an address of the test's own."""
    server = stream.server
    return (
        text.replace("my-kinesis-stream", stream.name)
        .replace("<aws_access_key>", server.access_key)
        .replace("<aws_secret_key>", server.secret_key)
        .replace('"kinesis.region"', f'"kinesis.endpoint": "{server.uri}",\n  "kinesis.region"')
    )


def flow_of(folder: Path, text: str, connections: str) -> Flow:
    found = loaded(folder, text, connections)
    assert told(found) == []
    (flow,) = found.flows
    return flow


@pytest.fixture
def postgresql_target(postgresql: devservers.PostgreSQL, schema: str) -> str:
    config = {"connectionString": postgresql.dsn()}
    return json.dumps({"target": {"type": "postgresql", "schema": schema, "config": config}})


@pytest.fixture
def query(postgresql: devservers.PostgreSQL, schema: str) -> Callable[[str], list[tuple[Any, ...]]]:
    """Runs a query of the page as it is written: the schema is in the path."""

    def run(text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
            connection.execute(f"SET search_path = {schema}".encode())
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    return run


def body(n: int) -> bytes:
    return json.dumps({"customer_id": n, "status": "active" if n % 2 else "idle"}).encode()


def test_the_first_example_runs_into_postgresql(
    tmp_path: Path,
    stream: Stream,
    postgresql_target: str,
    query: Callable[[str], list[tuple[Any, ...]]],
) -> None:
    stream.put(map(body, range(20)))
    flow = flow_of(tmp_path, written(stream, FIRST), postgresql_target)
    drained(flow)
    rows = query("SELECT topic, id, record FROM kinesis_pipeline")
    assert len(rows) == 20
    assert {topic for topic, _, _ in rows} == {"kinesis-topic"}
    for _, key, record in rows:
        assert set(record) == {"partitionKey", "sequenceNumber", "shardId", "data"}
        assert key == {name: record[name] for name in ("shardId", "sequenceNumber")}
        assert base64.b64decode(record["data"]) == body(int(record["partitionKey"]))
    assert len({record["sequenceNumber"] for _, _, record in rows}) == 20
    (columns,) = query(
        "SELECT string_agg(column_name || ' ' || data_type || ' ' || is_nullable, ', ' ORDER BY "
        "ordinal_position) FROM information_schema.columns WHERE table_name = 'kinesis_pipeline' "
        "AND table_schema = current_schema()"
    )
    assert columns == ("topic text NO, id jsonb NO, record jsonb NO",)
    found = query(
        "SELECT topic, JSON_EXTRACT_STRING(record, 'partitionKey') AS field_value "
        "FROM kinesis_pipeline WHERE JSON_EXTRACT_STRING(record, 'partitionKey') = '7'"
    )
    assert found == [("kinesis-topic", "7")]
    assert [len(query(each)) for each in QUERIES] == [20, 0, 20]
    stream.put([body(20)], lambda _: "20")
    text = FIRST + COMPUTED + PERFORMANCE
    drained(flow_of(tmp_path, written(stream, text), postgresql_target))
    assert query("SELECT count(*) FROM kinesis_pipeline WHERE status = '7'") == [(1,)]
    assert query("SELECT count(*), count(status) FROM kinesis_pipeline") == [(21, 21)]
    assert query(
        "SELECT count(*) FROM pg_indexes WHERE indexname = 'idx_status' "
        "AND schemaname = current_schema()"
    ) == [(1,)]


def test_the_second_example_runs_into_postgresql_with_its_queries(
    tmp_path: Path,
    stream: Stream,
    postgresql_target: str,
    query: Callable[[str], list[tuple[Any, ...]]],
) -> None:
    stream.put(map(body, range(6)))
    drained(flow_of(tmp_path, written(stream, SECOND), postgresql_target))
    rows = query("SELECT partitionKey, sequence_number, parsed_data FROM parsed_kinesis_stream")
    assert sorted((key, json.loads(data)["customer_id"]) for key, _, data in rows) == [
        (n, n) for n in range(6)
    ]
    found = query(
        "SELECT partitionKey, JSON_EXTRACT_STRING(parsed_data, 'customer_id') AS customer_id, "
        "JSON_EXTRACT_STRING(parsed_data, 'event_type') AS event_type FROM parsed_kinesis_stream"
    )
    assert sorted(found) == [(n, str(n), None) for n in range(6)]
    found = query(
        "SELECT JSON_EXTRACT_STRING(FROM_BASE64(data_base64), 'customer_id') AS customer_id, "
        "JSON_EXTRACT_STRING(FROM_BASE64(data_base64), 'status') AS status "
        "FROM parsed_kinesis_stream "
        "WHERE JSON_EXTRACT_STRING(FROM_BASE64(data_base64), 'status') = 'active'"
    )
    assert sorted(found) == [("1", "active"), ("3", "active"), ("5", "active")]


def test_a_key_that_is_no_number_stops_the_pipeline_or_is_rejected(
    tmp_path: Path,
    stream: Stream,
    postgresql_target: str,
    query: Callable[[str], list[tuple[Any, ...]]],
) -> None:
    stream.put(map(body, range(2)), lambda n: ["1", "letters"][n])
    with pytest.raises(DataflowError, match="column partitionkey: a text is not a number"):
        drained(flow_of(tmp_path, written(stream, SECOND), postgresql_target))
    text = SECOND.replace("BATCH_INTERVAL 2500", "BATCH_INTERVAL 2500 STOP_ON_ERROR OFF")
    drained(flow_of(tmp_path, written(stream, text), postgresql_target))
    assert query("SELECT partitionkey FROM parsed_kinesis_stream") == [(1,)]
    ((reason,),) = query("SELECT reason FROM dataflow_rejected")
    assert "column partitionkey: a text is not a number, as BIGINT needs one" in reason


@pytest.mark.parametrize("failpoint", ["postgresql.before-commit", "postgresql.after-commit"])
def test_a_killed_pipeline_stores_each_record_once(
    tmp_path: Path,
    stream: Stream,
    postgresql_target: str,
    query: Callable[[str], list[tuple[Any, ...]]],
    failpoint: str,
) -> None:
    stream.put(map(body, range(100)))
    flow_of(tmp_path, written(stream, FIRST + COMPUTED), postgresql_target)
    assert drain_apart(str(tmp_path), failpoint=f"{failpoint}:kill") == -signal.SIGKILL
    assert drain_apart(str(tmp_path)) == 0
    counted = query("SELECT count(*), count(DISTINCT status) FROM kinesis_pipeline")
    assert counted == [(100, 100)]
    assert query("SELECT sum(batch_rows_written) FROM pipelines_batches") == [(100,)]
    assert query("SELECT count(*) FROM pipelines_batches WHERE batch_state = 'In Progress'") == [
        (0,)
    ]


def test_the_first_example_runs_into_clickhouse(
    tmp_path: Path, stream: Stream, clickhouse: devservers.ClickHouse, database: str
) -> None:
    stream.put(map(body, range(20)))
    config = {"connectionString": clickhouse.dsn(database)}
    target = json.dumps({"target": {"type": "clickhouse", "config": config}})
    drained(flow_of(tmp_path, written(stream, FIRST), target))
    stream.put([body(20)], lambda _: "20")
    drained(flow_of(tmp_path, written(stream, FIRST + COMPUTED), target))
    with clickhouse_connect.get_client(dsn=clickhouse.dsn(database)) as client:
        rows = client.query("SELECT topic, id, record, status FROM kinesis_pipeline").result_rows
        indexes = client.query(
            "SELECT name FROM system.data_skipping_indices WHERE database = currentDatabase()"
        ).result_rows
    assert sorted(int(status) for *_, status in rows) == list(range(21))
    for topic, key, record, status in rows:
        assert topic == "kinesis-topic"
        assert json.loads(record)["partitionKey"] == status
        assert json.loads(key)["sequenceNumber"] == json.loads(record)["sequenceNumber"]
    assert indexes == [("idx_status",)]


@pytest.fixture
def clickhouse_target(clickhouse: devservers.ClickHouse, database: str) -> str:
    config = {"connectionString": clickhouse.dsn(database)}
    return json.dumps({"target": {"type": "clickhouse", "config": config}})


@pytest.fixture
def ask(
    clickhouse: devservers.ClickHouse, database: str
) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    """Runs a query in ClickHouse."""
    with clickhouse_connect.get_client(dsn=clickhouse.dsn(database)) as client:
        yield lambda text: [tuple(row) for row in client.query(text.strip(";\n")).result_rows]


def test_the_views_of_clickhouse_answer_the_queries_of_the_page(
    tmp_path: Path,
    stream: Stream,
    clickhouse_target: str,
    database: str,
    ask: Callable[[str], list[tuple[Any, ...]]],
) -> None:
    """Their names are in capital letters, as the page has them: ClickHouse tells both apart."""
    stream.put(map(body, range(20)))
    text = written(stream, FIRST)
    drained(flow_of(tmp_path, text, clickhouse_target))
    newest = ask(
        "SELECT JSONExtractString(id, 'shardId'), max(JSONExtractString(id, 'sequenceNumber')) "
        "FROM kinesis_pipeline GROUP BY 1"
    )
    offsets = [(json.loads(row[4]), json.loads(row[5])) for row in ask(asked(OFFSETS, database))]
    wanted = [({"shardId": shard}, {"sequenceNumber": number}) for shard, number in newest]
    assert sorted(map(repr, offsets)) == sorted(map(repr, wanted))
    assert sorted(ask(asked(DISTRIBUTION, database))) == [(0, 1), (1, 1)]
    ((name, state, config),) = ask(asked(STATUS, database))
    assert (name, state) == ("kinesis_pipeline", "Stopped")
    assert json.loads(config)["aws.secret.key.id"] == "***"
    assert stream.server.secret_key not in str(ask("SELECT * FROM dataflow_pipeline"))
    stream.put(map(body, range(3)))
    drained(flow_of(tmp_path, text, clickhouse_target))
    batches = ask("SELECT BATCH_ID, BATCH_STATE, BATCH_ROWS_WRITTEN FROM PIPELINES_BATCHES")
    assert sum(rows for *_, rows in batches) == 23
    assert {state for _, state, _ in batches} == {"Succeeded"}
    assert [number for number, *_ in sorted(batches)] == list(range(1, len(batches) + 1))
    assert ask("SELECT DISTINCT BATCH_ID FROM PIPELINES_SOURCE_OFFSETS") == [(len(batches),)]
    assert ask("SELECT count() FROM PIPELINES_ERRORS") == [(0,)]


def test_an_error_is_a_state_and_a_row_in_clickhouse(
    tmp_path: Path,
    stream: Stream,
    clickhouse_target: str,
    ask: Callable[[str], list[tuple[Any, ...]]],
) -> None:
    stream.put(map(body, range(2)), lambda n: ["1", "letters"][n])
    with pytest.raises(DataflowError):
        drained(flow_of(tmp_path, written(stream, SECOND), clickhouse_target))
    assert ask("SELECT STATE FROM PIPELINES") == [("Error",)]
    ((kind, message),) = ask("SELECT ERROR_TYPE, ERROR_MESSAGE FROM PIPELINES_ERRORS")
    assert (kind, "column partitionKey: a text is not a number" in message) == ("Error", True)
    assert ask("SELECT BATCH_STATE FROM PIPELINES_BATCHES") == [("Failed",)]
    text = SECOND.replace("BATCH_INTERVAL 2500", "BATCH_INTERVAL 2500 STOP_ON_ERROR OFF")
    drained(flow_of(tmp_path, written(stream, text), clickhouse_target))
    assert ask("SELECT STATE, SKIPPED_BATCH_PARTITIONS FROM PIPELINES") == [("Stopped", 1)]
    ((line,),) = ask("SELECT LOAD_DATA_LINE FROM PIPELINES_ERRORS WHERE ERROR_TYPE = 'Warning'")
    assert json.loads(line)["partitionKey"] == "letters"


def test_a_table_of_a_user_with_the_name_of_a_view_stays(
    tmp_path: Path,
    stream: Stream,
    clickhouse_target: str,
    ask: Callable[[str], list[tuple[Any, ...]]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    ask("CREATE TABLE PIPELINES (own Int32) ENGINE = MergeTree ORDER BY ()")
    stream.put(map(body, range(2)))
    drained(flow_of(tmp_path, written(stream, FIRST), clickhouse_target))
    assert "has a PIPELINES of its own: there is no view of it" in caplog.text
    assert ask("SELECT own FROM PIPELINES") == []
    assert ask("SELECT sum(BATCH_ROWS_WRITTEN) FROM PIPELINES_BATCHES") == [(2,)]


@pytest.mark.parametrize(
    "failpoint",
    [
        "clickhouse.finish",
        pytest.param("drain.begun", marks=pytest.mark.full),
        pytest.param("drain.finished", marks=pytest.mark.full),
    ],
)
def test_a_killed_pipeline_into_clickhouse_is_noted_as_it_ended(
    tmp_path: Path,
    stream: Stream,
    clickhouse_target: str,
    ask: Callable[[str], list[tuple[Any, ...]]],
    failpoint: str,
) -> None:
    stream.put(map(body, range(30)))
    flow_of(tmp_path, written(stream, FIRST), clickhouse_target)
    assert drain_apart(str(tmp_path), failpoint=f"{failpoint}:kill") == -signal.SIGKILL
    assert drain_apart(str(tmp_path)) == 0
    assert ask("SELECT count() FROM kinesis_pipeline") == [(30,)]
    assert ask("SELECT sum(BATCH_ROWS_WRITTEN) FROM PIPELINES_BATCHES") == [(30,)]
    states = ask("SELECT DISTINCT BATCH_STATE FROM PIPELINES_BATCHES")
    assert ("In Progress",) not in states


def lake(seaweedfs: devservers.SeaweedFS, namespace: str) -> str:
    """A connections.yaml whose target is a namespace of Iceberg's."""
    config = connection(seaweedfs, namespace, "unused")
    del config["table"]
    return json.dumps({"target": {"type": "iceberg", "config": config}})


def test_the_first_example_runs_into_iceberg(
    tmp_path: Path,
    stream: Stream,
    seaweedfs: devservers.SeaweedFS,
    catalog: Catalog,
    namespace: str,
) -> None:
    stream.put(map(body, range(20)))
    target = lake(seaweedfs, namespace)
    drained(flow_of(tmp_path, written(stream, FIRST), target))
    stream.put([body(20)], lambda _: "20")
    drained(flow_of(tmp_path, written(stream, FIRST + COMPUTED), target))
    table = catalog.load_table((namespace, "kinesis_pipeline"))
    assert [field.name for field in table.schema().fields] == ["topic", "id", "record", "status"]
    rows = table.scan().to_arrow().to_pylist()
    assert len(rows) == 21
    assert [row["status"] for row in rows if row["status"] is not None] == ["20"]
    for row in rows:
        record = json.loads(row["record"])
        assert json.loads(row["id"])["sequenceNumber"] == record["sequenceNumber"]


def test_the_second_example_runs_into_clickhouse(
    tmp_path: Path, stream: Stream, clickhouse: devservers.ClickHouse, database: str
) -> None:
    stream.put(map(body, range(6)))
    config = {"connectionString": clickhouse.dsn(database)}
    target = json.dumps({"target": {"type": "clickhouse", "config": config}})
    drained(flow_of(tmp_path, written(stream, SECOND), target))
    with clickhouse_connect.get_client(dsn=clickhouse.dsn(database)) as client:
        rows = client.query(
            "SELECT partitionKey, sequence_number, parsed_data FROM parsed_kinesis_stream"
        ).result_rows
    assert sorted((key, json.loads(data)["customer_id"]) for key, _, data in rows) == [
        (n, n) for n in range(6)
    ]


def test_the_second_example_runs_into_iceberg(
    tmp_path: Path,
    stream: Stream,
    seaweedfs: devservers.SeaweedFS,
    catalog: Catalog,
    namespace: str,
) -> None:
    stream.put(map(body, range(6)))
    target = lake(seaweedfs, namespace)
    drained(flow_of(tmp_path, written(stream, SECOND), target))
    rows = catalog.load_table((namespace, "parsed_kinesis_stream")).scan().to_arrow().to_pylist()
    assert sorted((row["partitionKey"], row["parsed_data"]) for row in rows) == [
        (n, body(n).decode()) for n in range(6)
    ]


def test_several_inserts_write_several_tables(
    tmp_path: Path,
    stream: Stream,
    postgresql_target: str,
    query: Callable[[str], list[tuple[Any, ...]]],
) -> None:
    text = SECOND.replace("END;", "INSERT INTO raw_records SELECT record FROM batch;\nEND;")
    text = text.replace(
        "CREATE TABLE parsed", "CREATE TABLE raw_records (r JSON);\nCREATE TABLE parsed"
    )
    stream.put(map(body, range(5)))
    drained(flow_of(tmp_path, written(stream, text), postgresql_target))
    assert query("SELECT count(*) FROM parsed_kinesis_stream") == [(5,)]
    assert query("SELECT count(DISTINCT r->>'sequenceNumber') FROM raw_records") == [(5,)]


def asked(text: str, schema: str) -> str:
    """A query of the page as it is written, but for the schema's name."""
    return text.replace("information_schema", schema).replace("<pipeline_name>", "kinesis_pipeline")


def test_the_views_answer_the_queries_of_the_page(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    stream: Stream,
    postgresql_target: str,
    schema: str,
    query: Callable[[str], list[tuple[Any, ...]]],
) -> None:
    stream.put(map(body, range(20)))
    text = written(stream, FIRST)
    drained(flow_of(tmp_path, text, postgresql_target))
    offsets = query(asked(OFFSETS, schema))
    newest = query(
        "SELECT id->>'shardId', max(id->>'sequenceNumber') FROM kinesis_pipeline GROUP BY 1"
    )
    assert sorted((row[4]["shardId"], row[5]["sequenceNumber"]) for row in offsets) == sorted(
        newest
    )
    assert sorted(query(asked(DISTRIBUTION, schema))) == [(0, 1), (1, 1)]
    for flags in ([], ["--json"]):
        assert main(["status", str(tmp_path), "--offsets", *flags]) == 0
        said = capsys.readouterr().out
        for row in offsets:
            assert row[4]["shardId"] in said
            assert row[5]["sequenceNumber"] in said
    ((name, state, config),) = query(asked(STATUS, schema))
    assert (name, state, config["kinesis.stream"]) == ("kinesis_pipeline", "Stopped", stream.name)
    assert (config["aws.access.key.id"], config["aws.secret.key.id"]) == ("***", "***")
    shown = "".join(
        str(query(f"SELECT * FROM {name}")) for name in ("dataflow_pipeline", "pipelines")
    )
    assert stream.server.secret_key not in shown
    stream.put(map(body, range(3)))
    drained(flow_of(tmp_path, text, postgresql_target))
    batches = query("SELECT batch_id, batch_state, batch_rows_written FROM pipelines_batches")
    assert sum(rows for *_, rows in batches) == 23
    assert {state for _, state, _ in batches} == {"Succeeded"}
    assert [number for number, *_ in sorted(batches)] == list(range(1, len(batches) + 1))
    assert query("SELECT count(*) FROM pipelines_errors") == [(0,)]
    assert query("SELECT DISTINCT batch_id FROM pipelines_source_offsets") == [(len(batches),)]


def test_an_error_is_a_state_and_a_row(
    tmp_path: Path,
    stream: Stream,
    postgresql_target: str,
    query: Callable[[str], list[tuple[Any, ...]]],
) -> None:
    stream.put(map(body, range(2)), lambda n: ["1", "letters"][n])
    with pytest.raises(DataflowError):
        drained(flow_of(tmp_path, written(stream, SECOND), postgresql_target))
    assert query("SELECT state FROM pipelines") == [("Error",)]
    ((kind, message),) = query("SELECT error_type, error_message FROM pipelines_errors")
    assert (kind, "column partitionkey: a text is not a number" in message) == ("Error", True)
    assert query("SELECT batch_state FROM pipelines_batches") == [("Failed",)]
    text = SECOND.replace("BATCH_INTERVAL 2500", "BATCH_INTERVAL 2500 STOP_ON_ERROR OFF")
    drained(flow_of(tmp_path, written(stream, text), postgresql_target))
    assert query("SELECT state, skipped_batch_partitions FROM pipelines") == [("Stopped", 1)]
    ((line,),) = query("SELECT load_data_line FROM pipelines_errors WHERE error_type = 'Warning'")
    assert json.loads(line)["partitionKey"] == "letters"
    assert query("SELECT sum(batch_rows_written) FROM pipelines_batches") == [(1,)]


def test_a_table_of_the_user_that_has_the_name_of_a_view_stays(
    tmp_path: Path,
    stream: Stream,
    postgresql_target: str,
    query: Callable[[str], list[tuple[Any, ...]]],
) -> None:
    query("CREATE TABLE pipelines (mine int)")
    stream.put(map(body, range(2)))
    drained(flow_of(tmp_path, written(stream, FIRST), postgresql_target))
    assert query("SELECT * FROM pipelines") == []
    assert query("SELECT count(*) FROM pipelines_batches") == [(1,)]


UPSERT = (
    SECOND.replace("data_base64 VARCHAR(255),", "data_base64 VARCHAR(255), PRIMARY KEY (shardId),")
    .replace("record::$shardId", "record::$partitionKey")
    .replace(
        "FROM batch;",
        "FROM batch\n  ON DUPLICATE KEY UPDATE partitionKey = VALUES(partitionKey), "
        "sequence_number = VALUES(sequence_number), data_base64 = VALUES(data_base64);",
    )
)
"""Rows by their partition key, each of which replaces the one before."""


@pytest.mark.parametrize("system", ["postgresql", "clickhouse"])
def test_a_row_replaces_that_of_its_key(
    tmp_path: Path,
    stream: Stream,
    postgresql_target: str,
    query: Callable[[str], list[tuple[Any, ...]]],
    clickhouse: devservers.ClickHouse,
    database: str,
    system: str,
) -> None:
    config = {"connectionString": clickhouse.dsn(database)}
    other = json.dumps({"target": {"type": "clickhouse", "config": config}})
    target = postgresql_target if system == "postgresql" else other
    for numbers in (range(8), range(8, 12)):
        stream.put(map(body, numbers), lambda n: str(n % 4))
        drained(flow_of(tmp_path, written(stream, UPSERT), target))
    if system == "postgresql":
        rows = query("SELECT shardid, parsed_data FROM parsed_kinesis_stream")
    else:
        with clickhouse_connect.get_client(dsn=clickhouse.dsn(database)) as client:
            found = client.query("SELECT shardId, parsed_data FROM parsed_kinesis_stream FINAL")
            rows = [tuple(row) for row in found.result_rows]
    assert sorted((key, json.loads(data)["customer_id"]) for key, data in rows) == [
        (str(n), n + 8) for n in range(4)
    ]


@pytest.mark.full
def test_a_row_replaces_that_of_its_key_in_iceberg(
    tmp_path: Path,
    stream: Stream,
    seaweedfs: devservers.SeaweedFS,
    catalog: Catalog,
    namespace: str,
    engine: SparkSession,
) -> None:
    target = lake(seaweedfs, namespace)
    for numbers in (range(8), range(8, 12)):
        stream.put(map(body, numbers), lambda n: str(n % 4))
        flow = flow_of(tmp_path, written(stream, UPSERT), target)
        list(drain(flow, lambda: engine, Request(patience=Patience(0, 0.05, 0.2))))
    rows = catalog.load_table((namespace, "parsed_kinesis_stream")).scan().to_arrow().to_pylist()
    assert sorted((row["shardId"], row["parsed_data"]) for row in rows) == [
        (str(n), body(n + 8).decode()) for n in range(4)
    ]


def lines_of(file: Path) -> str:
    """A pipeline of FileStreamSourceConnector, which appends the lines of a file."""
    config = {
        "connector.class": "FileStreamSourceConnector",
        "file": str(file),
        "topic": "lines",
        "tasks.max": 1,
        "plugin.path": plugins(file.parent),
        "dataflow.spool": str(file.parent / "spool"),
    }
    return (
        "CREATE INFERRED PIPELINE lines AS LOAD DATA KAFKACONNECT 'x' "
        f"CONFIG '{json.dumps(config)}' FORMAT AVRO;\n"
        "ALTER TABLE lines ADD COLUMN line AS (JSON_EXTRACT_STRING(record)) PERSISTED TEXT;\n"
        "START PIPELINE lines;"
    )


@pytest.mark.heavy
def test_any_class_of_kafka_connect_is_a_pipeline(
    tmp_path: Path, postgresql_target: str, query: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    path = tmp_path / "in.txt"
    for turn in range(2):
        with path.open("a") as file:
            file.writelines(f"line {turn} {n}\n" for n in range(50))
        flow_of(tmp_path, lines_of(path), postgresql_target)
        assert follow_apart(str(tmp_path), 50 * (turn + 1)) == 0
    wanted = sorted(f"line {turn} {n}" for turn in range(2) for n in range(50))
    assert sorted(line for (line,) in query("SELECT line FROM lines")) == wanted
    assert query("SELECT DISTINCT topic FROM lines") == [("lines",)]
    offsets = query("SELECT task_id, key, value FROM pipelines_source_offsets")
    assert offsets == [(0, {"filename": str(path)}, {"position": path.stat().st_size})]


@pytest.mark.heavy
@pytest.mark.full
def test_the_offsets_of_any_class_are_in_clickhouse_too(
    tmp_path: Path, clickhouse_target: str, ask: Callable[[str], list[tuple[Any, ...]]]
) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")
    flow_of(tmp_path, lines_of(path), clickhouse_target)
    assert drain_apart(str(tmp_path)) == 0
    assert sorted(ask("SELECT line FROM lines")) == [("one",), ("two",)]
    ((task, key, value),) = ask("SELECT TASK_ID, KEY, VALUE FROM PIPELINES_SOURCE_OFFSETS")
    assert (task, json.loads(key)) == (0, {"filename": str(path)})
    assert json.loads(value) == {"position": path.stat().st_size}
