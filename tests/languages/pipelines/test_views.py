"""The views of a pipeline's target: SingleStore's, by which people watch pipelines.

Their names are in capital letters, as the page has them: ClickHouse tells both apart.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dataflow_assets.cli import main
from dataflow_assets.errors import DataflowError
from tests.connectors.kinesis.driver import Stream
from tests.drained import drained
from tests.languages.pipelines.database import BOTH, Database, body, flow_of, parsed, written
from tests.languages.pipelines.files import DISTRIBUTION, FIRST, OFFSETS, SECOND, STATUS

pytestmark = BOTH


def asked(text: str, schema: str) -> str:
    """A query of the page as it is written, but for the schema's name."""
    return text.replace("information_schema", schema).replace("<pipeline_name>", "kinesis_pipeline")


def test_the_views_answer_the_queries_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stream: Stream, target: Database
) -> None:
    stream.put(map(body, range(20)))
    text, query, schema = written(stream, FIRST), target.query, target.schema
    drained(flow_of(tmp_path, text, target.connections))
    offsets = [(parsed(row[4]), parsed(row[5])) for row in query(asked(OFFSETS, schema))]
    shown = {key["shardId"]: value["sequenceNumber"] for key, value in offsets}
    ids = [parsed(key) for (key,) in query("SELECT id FROM kinesis_pipeline")]
    ids.sort(key=lambda key: str(key["sequenceNumber"]))
    assert shown == {key["shardId"]: key["sequenceNumber"] for key in ids}
    assert sorted(query(asked(DISTRIBUTION, schema))) == [(0, 1), (1, 1)]
    for flags in ([], ["--json"]):
        assert main(["status", str(tmp_path), "--offsets", *flags]) == 0
        said = capsys.readouterr().out
        assert all(shard in said and number in said for shard, number in shown.items())
    ((name, state, config),) = query(asked(STATUS, schema))
    config = parsed(config)
    assert (name, state, config["kinesis.stream"]) == ("kinesis_pipeline", "Stopped", stream.name)
    assert (config["aws.access.key.id"], config["aws.secret.key.id"]) == ("***", "***")
    for view in ("dataflow_pipeline", "PIPELINES"):
        assert stream.server.secret_key not in str(query(f"SELECT * FROM {view}"))
    stream.put(map(body, range(3)))
    drained(flow_of(tmp_path, text, target.connections))
    batches = query("SELECT BATCH_ID, BATCH_STATE, BATCH_ROWS_WRITTEN FROM PIPELINES_BATCHES")
    assert sum(rows for *_, rows in batches) == 23
    assert {state for _, state, _ in batches} == {"Succeeded"}
    assert [number for number, *_ in sorted(batches)] == list(range(1, len(batches) + 1))
    assert query("SELECT DISTINCT BATCH_ID FROM PIPELINES_SOURCE_OFFSETS") == [(len(batches),)]
    assert query("SELECT count(*) FROM PIPELINES_ERRORS") == [(0,)]


def test_an_error_is_a_state_and_a_row(tmp_path: Path, stream: Stream, target: Database) -> None:
    query = target.query
    stream.put(map(body, range(2)), lambda n: ["1", "letters"][n])
    with pytest.raises(DataflowError):
        drained(flow_of(tmp_path, written(stream, SECOND), target.connections))
    assert query("SELECT STATE FROM PIPELINES") == [("Error",)]
    ((kind, message),) = query("SELECT ERROR_TYPE, ERROR_MESSAGE FROM PIPELINES_ERRORS")
    assert kind == "Error"
    assert "column partitionkey: a text is not a number" in message.replace("Key:", "key:")
    assert query("SELECT BATCH_STATE FROM PIPELINES_BATCHES") == [("Failed",)]
    text = SECOND.replace("BATCH_INTERVAL 2500", "BATCH_INTERVAL 2500 STOP_ON_ERROR OFF")
    drained(flow_of(tmp_path, written(stream, text), target.connections))
    assert query("SELECT STATE, SKIPPED_BATCH_PARTITIONS FROM PIPELINES") == [("Stopped", 1)]
    ((line,),) = query("SELECT LOAD_DATA_LINE FROM PIPELINES_ERRORS WHERE ERROR_TYPE = 'Warning'")
    assert parsed(line)["partitionKey"] == "letters"
    assert query("SELECT sum(BATCH_ROWS_WRITTEN) FROM PIPELINES_BATCHES") == [(1,)]


def test_a_table_of_the_user_that_has_the_name_of_a_view_stays(
    tmp_path: Path,
    stream: Stream,
    target: Database,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = "ENGINE = MergeTree ORDER BY ()" if target.type == "clickhouse" else ""
    target.query(f"CREATE TABLE PIPELINES (own int) {engine}")
    stream.put(map(body, range(2)))
    drained(flow_of(tmp_path, written(stream, FIRST), target.connections))
    assert "has a pipelines of its own: there is no view of it" in caplog.text.lower()
    assert target.query("SELECT own FROM PIPELINES") == []
    assert target.query("SELECT sum(BATCH_ROWS_WRITTEN) FROM PIPELINES_BATCHES") == [(2,)]
