"""Pipelines from a stream of Kinesis into each target, as SingleStore's page writes them."""

from __future__ import annotations

import base64
import json
import signal
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.errors import DataflowError
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from tests.connectors.iceberg.driver import connection
from tests.connectors.kafka_connect.driver import plugins
from tests.connectors.kinesis.driver import Stream
from tests.drained import drain_apart, drained, follow_apart
from tests.languages.pipelines.database import BOTH, Database, body, flow_of, written
from tests.languages.pipelines.files import COMPUTED, FIRST, PERFORMANCE, QUERIES, SECOND


def test_the_first_example_runs_into_postgresql(
    tmp_path: Path,
    stream: Stream,
    postgresql_target: Database,
) -> None:
    stream.put(map(body, range(20)))
    flow = flow_of(tmp_path, written(stream, FIRST), postgresql_target.connections)
    drained(flow)
    rows = postgresql_target.query("SELECT topic, id, record FROM kinesis_pipeline")
    assert len(rows) == 20
    assert {topic for topic, _, _ in rows} == {"kinesis-topic"}
    for _, key, record in rows:
        assert set(record) == {"partitionKey", "sequenceNumber", "shardId", "data"}
        assert key == {name: record[name] for name in ("shardId", "sequenceNumber")}
        assert base64.b64decode(record["data"]) == body(int(record["partitionKey"]))
    assert len({record["sequenceNumber"] for _, _, record in rows}) == 20
    (columns,) = postgresql_target.query(
        "SELECT string_agg(column_name || ' ' || data_type || ' ' || is_nullable, ', ' ORDER BY "
        "ordinal_position) FROM information_schema.columns WHERE table_name = 'kinesis_pipeline' "
        "AND table_schema = current_schema()"
    )
    assert columns == ("topic text NO, id jsonb NO, record jsonb NO",)
    found = postgresql_target.query(
        "SELECT topic, JSON_EXTRACT_STRING(record, 'partitionKey') AS field_value "
        "FROM kinesis_pipeline WHERE JSON_EXTRACT_STRING(record, 'partitionKey') = '7'"
    )
    assert found == [("kinesis-topic", "7")]
    assert [len(postgresql_target.query(each)) for each in QUERIES] == [20, 0, 20]
    stream.put([body(20)], lambda _: "20")
    text = FIRST + COMPUTED + PERFORMANCE
    drained(flow_of(tmp_path, written(stream, text), postgresql_target.connections))
    assert postgresql_target.query("SELECT count(*) FROM kinesis_pipeline WHERE status = '7'") == [
        (1,)
    ]
    assert postgresql_target.query("SELECT count(*), count(status) FROM kinesis_pipeline") == [
        (21, 21)
    ]
    assert postgresql_target.query(
        "SELECT count(*) FROM pg_indexes WHERE indexname = 'idx_status' "
        "AND schemaname = current_schema()"
    ) == [(1,)]


def test_the_first_example_runs_into_clickhouse(
    tmp_path: Path, stream: Stream, clickhouse_target: Database
) -> None:
    stream.put(map(body, range(20)))
    connections, ask = clickhouse_target.connections, clickhouse_target.query
    drained(flow_of(tmp_path, written(stream, FIRST), connections))
    stream.put([body(20)], lambda _: "20")
    drained(flow_of(tmp_path, written(stream, FIRST + COMPUTED), connections))
    rows = ask("SELECT topic, id, record, status FROM kinesis_pipeline")
    indexes = ask(
        "SELECT name FROM system.data_skipping_indices WHERE database = currentDatabase()"
    )
    assert sorted(int(status) for *_, status in rows) == list(range(21))
    for topic, key, record, status in rows:
        assert topic == "kinesis-topic"
        assert json.loads(record)["partitionKey"] == status
        assert json.loads(key)["sequenceNumber"] == json.loads(record)["sequenceNumber"]
    assert indexes == [("idx_status",)]


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


def test_the_second_example_runs_into_postgresql_with_its_queries(
    tmp_path: Path,
    stream: Stream,
    postgresql_target: Database,
) -> None:
    stream.put(map(body, range(6)))
    drained(flow_of(tmp_path, written(stream, SECOND), postgresql_target.connections))
    rows = postgresql_target.query(
        "SELECT partitionKey, sequence_number, parsed_data FROM parsed_kinesis_stream"
    )
    assert sorted((key, json.loads(data)["customer_id"]) for key, _, data in rows) == [
        (n, n) for n in range(6)
    ]
    found = postgresql_target.query(
        "SELECT partitionKey, JSON_EXTRACT_STRING(parsed_data, 'customer_id') AS customer_id, "
        "JSON_EXTRACT_STRING(parsed_data, 'event_type') AS event_type FROM parsed_kinesis_stream"
    )
    assert sorted(found) == [(n, str(n), None) for n in range(6)]
    found = postgresql_target.query(
        "SELECT JSON_EXTRACT_STRING(FROM_BASE64(data_base64), 'customer_id') AS customer_id, "
        "JSON_EXTRACT_STRING(FROM_BASE64(data_base64), 'status') AS status "
        "FROM parsed_kinesis_stream "
        "WHERE JSON_EXTRACT_STRING(FROM_BASE64(data_base64), 'status') = 'active'"
    )
    assert sorted(found) == [("1", "active"), ("3", "active"), ("5", "active")]


def test_the_second_example_runs_into_clickhouse(
    tmp_path: Path, stream: Stream, clickhouse_target: Database
) -> None:
    stream.put(map(body, range(6)))
    drained(flow_of(tmp_path, written(stream, SECOND), clickhouse_target.connections))
    rows = clickhouse_target.query(
        "SELECT partitionKey, sequence_number, parsed_data FROM parsed_kinesis_stream"
    )
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


def test_a_key_that_is_no_number_stops_the_pipeline_or_is_rejected(
    tmp_path: Path,
    stream: Stream,
    postgresql_target: Database,
) -> None:
    stream.put(map(body, range(2)), lambda n: ["1", "letters"][n])
    with pytest.raises(DataflowError, match="column partitionkey: a text is not a number"):
        drained(flow_of(tmp_path, written(stream, SECOND), postgresql_target.connections))
    text = SECOND.replace("BATCH_INTERVAL 2500", "BATCH_INTERVAL 2500 STOP_ON_ERROR OFF")
    drained(flow_of(tmp_path, written(stream, text), postgresql_target.connections))
    assert postgresql_target.query("SELECT partitionkey FROM parsed_kinesis_stream") == [(1,)]
    ((reason,),) = postgresql_target.query("SELECT reason FROM dataflow_rejected")
    assert "column partitionkey: a text is not a number, as BIGINT needs one" in reason


@pytest.mark.parametrize(
    ("target", "failpoint"),
    [
        ("postgresql", "postgresql.before-commit"),
        ("postgresql", "postgresql.after-commit"),
        ("clickhouse", "clickhouse.finish"),
        pytest.param("clickhouse", "drain.begun", marks=pytest.mark.full),
        pytest.param("clickhouse", "drain.finished", marks=pytest.mark.full),
    ],
    indirect=["target"],
)
def test_a_killed_pipeline_stores_each_record_once_and_is_noted_as_it_ended(
    tmp_path: Path, stream: Stream, target: Database, failpoint: str
) -> None:
    stream.put(map(body, range(100)))
    flow_of(tmp_path, written(stream, FIRST + COMPUTED), target.connections)
    assert drain_apart(str(tmp_path), failpoint=f"{failpoint}:kill") == -signal.SIGKILL
    assert drain_apart(str(tmp_path)) == 0
    counted = target.query("SELECT count(*), count(DISTINCT status) FROM kinesis_pipeline")
    assert counted == [(100, 100)]
    assert target.query("SELECT sum(BATCH_ROWS_WRITTEN) FROM PIPELINES_BATCHES") == [(100,)]
    states = target.query("SELECT DISTINCT BATCH_STATE FROM PIPELINES_BATCHES")
    assert ("In Progress",) not in states


def test_several_inserts_write_several_tables(
    tmp_path: Path,
    stream: Stream,
    postgresql_target: Database,
) -> None:
    text = SECOND.replace("END;", "INSERT INTO raw_records SELECT record FROM batch;\nEND;")
    text = text.replace(
        "CREATE TABLE parsed", "CREATE TABLE raw_records (r JSON);\nCREATE TABLE parsed"
    )
    stream.put(map(body, range(5)))
    drained(flow_of(tmp_path, written(stream, text), postgresql_target.connections))
    assert postgresql_target.query("SELECT count(*) FROM parsed_kinesis_stream") == [(5,)]
    assert postgresql_target.query(
        "SELECT count(DISTINCT r->>'sequenceNumber') FROM raw_records"
    ) == [(5,)]


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


@BOTH
def test_a_row_replaces_that_of_its_key(tmp_path: Path, stream: Stream, target: Database) -> None:
    for numbers in (range(8), range(8, 12)):
        stream.put(map(body, numbers), lambda n: str(n % 4))
        drained(flow_of(tmp_path, written(stream, UPSERT), target.connections))
    final = "FINAL" if target.type == "clickhouse" else ""
    rows = target.query(f"SELECT shardId, parsed_data FROM parsed_kinesis_stream {final}")
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
    tmp_path: Path, postgresql_target: Database
) -> None:
    path = tmp_path / "in.txt"
    for turn in range(2):
        with path.open("a") as file:
            file.writelines(f"line {turn} {n}\n" for n in range(50))
        flow_of(tmp_path, lines_of(path), postgresql_target.connections)
        assert follow_apart(str(tmp_path), 50 * (turn + 1)) == 0
    wanted = sorted(f"line {turn} {n}" for turn in range(2) for n in range(50))
    assert sorted(line for (line,) in postgresql_target.query("SELECT line FROM lines")) == wanted
    assert postgresql_target.query("SELECT DISTINCT topic FROM lines") == [("lines",)]
    offsets = postgresql_target.query("SELECT task_id, key, value FROM pipelines_source_offsets")
    assert offsets == [(0, {"filename": str(path)}, {"position": path.stat().st_size})]


@pytest.mark.heavy
@pytest.mark.full
def test_the_offsets_of_any_class_are_in_clickhouse_too(
    tmp_path: Path, clickhouse_target: Database
) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")
    flow_of(tmp_path, lines_of(path), clickhouse_target.connections)
    assert drain_apart(str(tmp_path)) == 0
    assert sorted(clickhouse_target.query("SELECT line FROM lines")) == [("one",), ("two",)]
    ((task, key, value),) = clickhouse_target.query(
        "SELECT TASK_ID, KEY, VALUE FROM PIPELINES_SOURCE_OFFSETS"
    )
    assert (task, json.loads(key)) == (0, {"filename": str(path)})
    assert json.loads(value) == {"position": path.stat().st_size}
