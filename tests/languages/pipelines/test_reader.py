"""Files of pipelines: what they come to, and what is told of each mistake, with line and column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dataflow_assets.connectors.kafka_connect import KafkaConnectSource
from dataflow_assets.connectors.kinesis import KinesisSource
from dataflow_assets.contracts import Rejects
from dataflow_assets.flow import Flow
from dataflow_assets.languages.pipelines.reader.read import FORMS, read
from dataflow_assets.languages.pipelines.reader.source import mask_secrets
from dataflow_assets.languages.pipelines.rows.rows import Envelope, PipelineRow, PipelineRows
from dataflow_assets.languages.pipelines.rows.table import PipelineTable
from dataflow_assets.manifests.check import as_json, as_lines
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.redaction import mask
from tests import ROOT
from tests.forms import problems
from tests.languages.pipelines.files import CLASS, COMPUTED, TARGET, filled, loaded, noted, told
from tests.languages.pipelines.files import FIRST as PAGE
from tests.languages.pipelines.files import SECOND as SECOND_PAGE

FIRST, SECOND = filled(PAGE), filled(SECOND_PAGE)
CONFIG = {"connector.class": CLASS, "kafka.topic": "t", "kinesis.stream": "s"}


def pipeline(config: dict[str, Any] | None = None, *clauses: str, name: str = "p") -> str:
    given = json.dumps({**CONFIG, **(config or {})})
    lines = (f"CREATE INFERRED PIPELINE {name} AS LOAD DATA KAFKACONNECT 'x'", f"CONFIG '{given}'")
    return "\n".join((*lines, *clauses)) + ";\n"


def one(folder: Path, text: str, connections: str = TARGET) -> Flow:
    found = loaded(folder, text, connections)
    assert told(found) == []
    (flow,) = found.flows
    return flow


def test_the_first_example_is_a_flow(tmp_path: Path) -> None:
    flow = one(tmp_path, FIRST)
    assert (flow.id, flow.line, flow.language) == ("default/kinesis_pipeline", 5, "pipelines")
    assert not flow.suspended
    assert isinstance(flow.source, KinesisSource)
    assert (flow.source.stream, flow.source.region) == ("my-kinesis-stream", "us-east-1")
    assert flow.source.starting_position == "TRIM_HORIZON"
    assert flow.source.envelope
    assert str(flow.branches[0].address).endswith("kinesis_pipeline")
    assert flow.policies.rejects == Rejects("fail")


def test_the_second_example_is_a_flow(tmp_path: Path) -> None:
    flow = one(tmp_path, SECOND)
    (step,) = (found.step for found in flow.transformations)
    assert isinstance(step, PipelineRows)
    assert [column.name for column in step.rows[0].outputs] == [
        "partitionkey",
        "sequence_number",
        "shardid",
        "data_base64",
    ]
    assert isinstance(flow.source, KinesisSource)
    assert flow.source.traits.poll_seconds == 3  # 2.5 seconds, rounded up


def test_secrets_in_config_are_told_and_never_shown(tmp_path: Path) -> None:
    text = PAGE.replace("<aws_secret_key>", "very-secret").replace("<aws_access_key>", "AKIA77")
    found = loaded(tmp_path, text)
    advice = "is a secret in CONFIG: move it to CREDENTIALS, best as ${env:VARIABLE}"
    assert [line.split(":")[0] for line in noted(found) if advice in line] == ["9", "10"]
    shown = "\n".join((*as_lines(found), json.dumps(as_json(found)), repr(found), str(found.flows)))
    for value in ("very-secret", "AKIA77", "topsecret"):
        assert value not in shown
    assert mask("very-secret and AKIA77", found.flows) == "*** and ***"


def test_settings_are_shown_without_secrets() -> None:
    given = {"a.password": "p", "b": "x", "c": "https://me:topsecret@h/d", "API_KEY": "k"}
    shown = json.loads(mask_secrets(given))
    assert shown == {"a.password": "***", "b": "x", "c": "https://***@h/d", "API_KEY": "***"}
    given = {"kinesis.stream": "s", "open.sesame": "p", "shop": "x"}
    secret = "kinesis.stream", "open.sesame"
    shown = json.loads(mask_secrets({"connector.class": CLASS, **given}, secret))
    assert shown == {"connector.class": CLASS, **given, "open.sesame": "***"}
    assert json.loads(mask_secrets(given, ("kinesis.stream",)))["kinesis.stream"] == "***"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("jdbc:x://h/d?user=me&password=l1teral&a=b", "jdbc:x://h/d?user=me&password=***&a=b"),
        ("Login user='me' password='two words';", "Login user='me' password=***;"),
        ("of planted-s3cret, planted%2Ds3cret", "of ***, planted%2Ds3cret"),
        ("${env:NAME}?password=${env:PASSWORD}", "${env:NAME}?password=***"),
        ("a = b", "a = b"),
    ],
)
def test_a_secret_inside_of_another_setting_is_not_shown(value: str, shown: str) -> None:
    """What CREDENTIALS hold, and what a URL calls a password; references name places alone."""
    given = {"url": value, "sesame": "planted-s3cret"}
    assert json.loads(mask_secrets(given, ("sesame",))) == {"url": shown, "sesame": "***"}


def test_credentials_win_and_are_not_told_of(tmp_path: Path) -> None:
    keys = {"aws.access.key.id": "A" * 20, "aws.secret.key.id": "b" * 20}
    credentials = json.dumps({**keys, "kinesis.stream": "other"})
    flow = one(tmp_path, pipeline(None, f"CREDENTIALS '{credentials}'", "FORMAT AVRO"))
    assert isinstance(flow.source, KinesisSource)
    assert flow.source.stream == "other"
    assert flow.source.access_key is not None
    assert flow.source.access_key.get_secret_value() == "A" * 20
    assert not any("CREDENTIALS" in line for line in noted(load(tmp_path)))


def test_everything_in_credentials_is_hidden_whatever_its_name(tmp_path: Path) -> None:
    """Only the connector knows which of its keys are passwords."""
    config = {"connector.class": "a.B", "plugin.path": str(tmp_path), "shop": "north"}
    config["dataflow.spool"] = str(tmp_path / "spool")
    credentials = {"open.sesame": "planted-s3cret", "shop.user": "${env:SHOP_USER}"}
    found = loaded(tmp_path, pipeline(config, f"CREDENTIALS '{json.dumps(credentials)}'"))
    (flow,) = found.flows
    shown = "\n".join((*as_lines(found), json.dumps(as_json(found)), repr(found), str(flow)))
    assert "planted-s3cret" not in shown
    assert isinstance(flow.source, KafkaConnectSource)
    assert flow.source.properties["open.sesame"] == "planted-s3cret"
    assert flow.source.hidden_values == {"planted-s3cret"}
    assert flow.source.config["shop.user"] == "${env:SHOP_USER}"


def test_batch_interval_is_for_any_class(tmp_path: Path) -> None:
    config = {"connector.class": "a.B", "plugin.path": str(tmp_path)}
    config["dataflow.spool"] = str(tmp_path / "spool")
    assert one(tmp_path, pipeline(config)).source.traits.poll_seconds == 1
    flow = one(tmp_path, pipeline(config, "BATCH_INTERVAL 2500"))
    assert flow.source.traits.poll_seconds == 3


def test_secrets_may_be_references(tmp_path: Path) -> None:
    keys = {"aws.access.key.id": "${env:MY_KEY}", "aws.secret.key.id": "${secrets:aws:key}"}
    flow = one(tmp_path, pipeline(None, f"CREDENTIALS '{json.dumps(keys)}'"))
    assert isinstance(flow.source, KinesisSource)
    assert flow.source.access_key_secret_ref is not None
    assert flow.source.access_key_secret_ref.key == "MY_KEY"
    assert flow.source.secret_access_key_secret_ref is not None
    assert flow.source.secret_access_key_secret_ref.name == "aws"


@pytest.mark.parametrize(
    ("statements", "suspended"),
    [
        ("", True),
        ("START PIPELINE p;", False),
        ("START PIPELINE p; STOP PIPELINE p;", True),
        ("START PIPELINE p; STOP PIPELINE IF RUNNING P DETACH; START ALL PIPELINES;", False),
        ("START PIPELINE IF NOT RUNNING p; START PIPELINE IF NOT RUNNING p;", False),
    ],
)
def test_start_and_stop_set_the_switch(tmp_path: Path, statements: str, suspended: bool) -> None:
    flow = one(tmp_path, pipeline() + statements)
    assert flow.suspended is suspended
    note = "is not started in this file: its flow is suspended until START PIPELINE"
    assert any(note in line for line in noted(load(tmp_path))) is suspended


def test_a_pipeline_is_altered_replaced_and_dropped(tmp_path: Path) -> None:
    text = (
        pipeline()
        + pipeline(name="gone")
        + "ALTER PIPELINE p SET BATCH_INTERVAL 9000 STOP_ON_ERROR OFF "
        "MAX_OFFSETS_PER_BATCH_PARTITION 70;\n"
        "DROP PIPELINE gone; DROP PIPELINE IF EXISTS never;\n"
        "SET GLOBAL pipelines_extractor_batch_size = 10000;\n" + pipeline(name="big")
    )
    found = loaded(tmp_path, text)
    assert told(found) == []
    by_name = {flow.name: flow for flow in found.flows}
    assert sorted(by_name) == ["big", "p"]
    dropped = "behind what it has read, until `dataflow reset`"
    assert [
        line for line in noted(found) if "pipeline gone: is dropped" in line and dropped in line
    ]
    assert by_name["p"].source.traits.poll_seconds == 9
    assert by_name["p"].policies.rejects == Rejects("table")
    assert by_name["p"].policies.limit.records == 70
    assert by_name["big"].policies.limit.records == 10_000
    replaced = text.replace("STOP_ON_ERROR OFF ", "").replace(
        "SET GLOBAL",
        "CREATE OR REPLACE "
        f"INFERRED PIPELINE p AS LOAD DATA CONNECTOR 'x' CONFIG '{json.dumps(CONFIG)}' "
        "SKIP ALL ERRORS FORMAT JSON; SET GLOBAL",
    )
    found = loaded(tmp_path, replaced)
    assert told(found) == []
    (again,) = [flow for flow in found.flows if flow.name == "p"]
    assert (again.source.traits.poll_seconds, again.policies.rejects) == (1, Rejects("table"))


def test_targets_are_found_by_use_by_the_environment_and_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = """
target: first
targets:
  first: postgresql://a.example.com/one
  lake:
    type: iceberg
    config:
      catalogURI: https://lake.example.com
      namespace: raw
  events:
    type: clickhouse
    schema: raw
    config:
      connectionStringSecretRef: {name: ch, key: dsn}
"""

    def address(text: str) -> str:
        flow = one(tmp_path, text, connections)
        return str(flow.branches[0].address)

    assert address(pipeline()) == "postgresql/a_example_com_one/public/p"
    assert address("USE events;\n" + pipeline()) == "clickhouse/ch/raw/p"
    assert address("USE lake;\n" + pipeline()).endswith("/raw/p")
    monkeypatch.setenv("DATAFLOW_TARGET", "clickhouse://u:topsecret@b.example.com/two")
    assert address(pipeline()).startswith("clickhouse/")
    monkeypatch.setenv("DATAFLOW_TARGET", "lake")
    assert address(pipeline()).endswith("/raw/p")
    assert address("USE first;\n" + pipeline()) == "postgresql/a_example_com_one/public/p"


@pytest.mark.parametrize(
    ("connections", "text", "message"),
    [
        ("", "", "1:26: nothing says where its table is: write USE name;"),
        ("target: nowhere", "", "target of connections.yaml: no target of this name"),
        (TARGET, "USE other;", "USE other: no target of this name; connections.yaml has no"),
        ("targets:\n  a: postgresql://h/d", "USE b;", "no target of this name; allowed: a"),
        ("target: {type: mysql}", "", "1:16: is required: allowed: postgresql, clickhouse"),
        ("target: {type: postgresql, tabel: x}", "", "unknown key; allowed: type, schema, config"),
        ("target: 'host=db password=topsecret'", "", "1:9: must be a connection string, the name"),
        ("target: {type: postgresql, config: {table: x}}", "", "must be left out: the file names"),
        (
            "target: {type: postgresql, config: {upsertMode: true, connectionString: 'h'}}",
            "",
            "must be left out: the file says what its tables",
        ),
        ("target: {type: postgresql, config: {tabel: x}}", "", "unknown key"),
    ],
)
def test_what_is_wrong_with_a_target_is_told(
    tmp_path: Path, connections: str, text: str, message: str
) -> None:
    found = loaded(tmp_path, text + pipeline(), connections)
    assert any(message in line for line in told(found)), told(found)
    assert "topsecret" not in repr(found)


def test_a_target_in_the_environment_that_is_none_is_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_TARGET", "mysql://u:topsecret@h/d")
    found = loaded(tmp_path, pipeline())
    (line,) = told(found)
    assert "DATAFLOW_TARGET must be a connection string that begins with postgresql://" in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PAGE, "9:3: is a placeholder (<...>): write the value"),
        (FIRST + "INSERT INTO t SELECT 1;", "21:1: this statement is of Flink's SQL, and those "),
        ("INSERT INTO t SELECT a FROM s;\nSTOP PIPELINE p;", "2:1: this statement is of SingleS"),
        ("BANANA x;", "1:1: expected a statement, found BANANA"),
        (pipeline() + "BANANA x;", "3:1: expected a statement, found BANANA"),
        (pipeline() + "DELETE FROM p;", "3:1: DELETE is not supported: rows come from pipelines"),
        ("CREATE PIPELINE p AS LOAD DATA S3 'x';", "LOAD DATA S3 is not supported: use the source"),
        (pipeline(None, "WITH TRANSFORM ('x')"), "3:1: WITH TRANSFORM is not supported"),
        (pipeline(None, "FORMAT CSV"), "3:8: FORMAT CSV is not supported: allowed are AVRO and"),
        (pipeline(None, "REPLACE"), "3:1: REPLACE is not supported in CREATE PIPELINE"),
        (pipeline(None, "SKIP PARSER ERRORS"), "3:1: only SKIP ALL ERRORS is supported"),
        (pipeline(None, "BATCH_INTERVALL 3"), "3:1: the clause BATCH_INTERVALL is not known; did"),
        (pipeline(None, "BATCH_INTERVAL x"), "expected milliseconds, a whole number, found x"),
        (pipeline() + pipeline(), "3:26: is created in line 1 already"),
        (pipeline() + "START PIPELINE q;", "3:16: no pipeline q above; allowed: p"),
        (pipeline() + "START PIPELINE p; START PIPELINE p;", "3:19: is started already: write STA"),
        (pipeline() + "DROP PIPELINE q;", "no pipeline q above"),
        (
            pipeline() + "ALTER PIPELINE p SET OFFSETS EARLIEST;",
            "SET OFFSETS is not supported in a",
        ),
        (pipeline() + "DROP TABLE p;", "3:6: DROP TABLE is not supported"),
        (pipeline({"connector.class": "a.B"}), "is required: folders with the connector's jars"),
        (pipeline({"connector.class": "a.B"}), "is required: a folder of its own"),
        (
            pipeline({"connector.class": "a.B", "tasks.max": 0}),
            "must be a number of tasks, 1 to 64",
        ),
        (
            pipeline({"connector.class": "a.B", "x": "${vault:Y}"}),
            "config.providers does not list the provider vault",
        ),
        (
            pipeline({"connector.class": "a.B", "plugin.path": "/p", "dataflow.spool": "/s"}),
            "is not below the folder DATAFLOW_FILES",
        ),
        *(
            (pipeline({"tasks.max": tasks}), ": must be a number of tasks, at least 1")
            for tasks in ("four", "0", "1.5", "", "9" * 5000)
        ),
        (
            pipeline({"connector.class": "a.B", "tasks.max": "9" * 5000}),
            "must be a number of tasks, 1 to 64",
        ),
        (pipeline({"kinesis.stream": ""}), "is required, but has no value: the stream"),
        (pipeline({"kinesis.shard.id": "x"}), "all shards of a stream are read"),
        (pipeline({"kinesis.position": "FIRST"}), "allowed: TRIM_HORIZON, LATEST"),
        (
            pipeline({"connector.class": "a.B", "config.providers": "v"}),
            "must be one of EnvVarConfigProvider, ",
        ),
        (pipeline({"transforms": "a"}), "transforms of Kafka Connect are not run for Kinesis"),
        (pipeline({"kinesis.stream": "a b"}), "String should match pattern"),
        (pipeline({"aws.access.key.id": "AKIA"}), "belong together"),
        (pipeline({"nested": {"a": 1}}), "2:8: CONFIG: nested must be a text, a number, true or"),
        (
            "CREATE INFERRED PIPELINE p AS LOAD DATA KAFKACONNECT 'x' CONFIG '{\"a\": topsecret}';",
            "1:72: CONFIG is not JSON: Expecting value",
        ),
        (
            "CREATE INFERRED PIPELINE p AS LOAD DATA KAFKACONNECT 'x' CONFIG '{\"a\":1,\"a\":2}';",
            "CONFIG: the key a is a duplicate",
        ),
        ("CREATE PIPELINE p AS LOAD DATA KAFKACONNECT 'x;", "this text has no closing quote"),
        (pipeline() + "ALTER TABLE p ADD COLUMN c AS (record::$a) INT;", "expected PERSISTED"),
        (pipeline() + "ALTER TABLE q ADD COLUMN c INT;", "3:13: no table q above; allowed: p"),
        (pipeline() + "ALTER TABLE p DROP COLUMN id;", "only ADD COLUMN is supported"),
        (pipeline() + "ALTER TABLE p ADD COLUMN c INT NOT NULL;", "c must be nullable: rows that"),
        (pipeline() + "ALTER TABLE p ADD COLUMN c AS (x::$a) PERSISTED INT;", "no column x; "),
        (
            pipeline() + "ALTER TABLE p ADD COLUMN c AS (LOWER(topic)) PERSISTED INT;",
            "LOWER is not",
        ),
        (pipeline() + "ALTER TABLE p ADD COLUMN c AS (topic) PERSISTED DATE;", "compute a VARCHAR"),
        (
            pipeline() + "ALTER TABLE p ADD COLUMN c AS (topic) PERSISTED JSON;",
            "must be made by ::",
        ),
        (pipeline() + "ALTER TABLE p ADD COLUMN id INT;", "the column id is a duplicate"),
        (pipeline() + "CREATE INDEX i ON p (x);", "no column x in p"),
        (pipeline() + "CREATE UNIQUE INDEX i ON p (id);", "CREATE UNIQUE INDEX is not supported"),
        ("CREATE TABLE t (a INT DEFAULT 1);\n" + pipeline(), "DEFAULT is not supported"),
        ("CREATE TABLE t (a INT, UNIQUE KEY (a));\n" + pipeline(), "1:24: UNIQUE is not supported"),
        (
            "CREATE TABLE t (a INT, PRIMARY KEY (b));\n" + pipeline(),
            "1:37: PRIMARY KEY: no column b",
        ),
        ("CREATE TABLE t (a GEOGRAPHY);\n" + pipeline(), "the type GEOGRAPHY is not supported"),
    ],
)
def test_mistakes_are_told_with_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    found = loaded(tmp_path, text)
    assert any(message in line for line in told(found)), told(found)
    assert "topsecret" not in repr(found)


PROCEDURE = """CREATE PROCEDURE f(batch QUERY(topic TEXT, id JSON, record JSON)) AS
BEGIN
  {}
END;
CREATE TABLE t (a TEXT, b BIGINT NOT NULL, c AS (a) PERSISTED TEXT);
CREATE TABLE u (a JSON);
CREATE TABLE k (a TEXT, b INT, c INT, PRIMARY KEY (a));
"""


def into(body: str, clauses: str = "INTO PROCEDURE f") -> str:
    return PROCEDURE.format(body) + pipeline(None, clauses).replace("INFERRED ", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (into("IF 1 = 1 THEN INSERT INTO t SELECT topic FROM batch; END IF;"), "3:3: IF in a proc"),
        (into("DECLARE x INT;"), "3:3: DECLARE in a procedure is not supported (variables)"),
        (into("LOOP END LOOP;"), "3:3: LOOP in a procedure is not supported (control flow)"),
        (into("UPDATE t SET a = 1;"), "3:3: UPDATE in a procedure is not supported (a change of"),
        (into("CALL g();"), "3:3: CALL in a procedure is not supported"),
        (into("INSERT INTO t(a) SELECT topic FROM u;"), "a procedure reads its batch, batch, and"),
        (into("INSERT INTO t(a) SELECT topic FROM batch WHERE a = 1;"), "WHERE in a procedure is"),
        (
            into("INSERT INTO t(a) SELECT topic FROM batch ON DUPLICATE KEY UPDATE a = 1;"),
            "3:72: only a = VALUES(a) is supported: the new row counts",
        ),
        (
            into("INSERT INTO u SELECT id FROM batch ON DUPLICATE KEY UPDATE a = VALUES(a);"),
            "3:3: ON DUPLICATE KEY UPDATE needs a PRIMARY KEY of u",
        ),
        (
            into("INSERT INTO k SELECT topic, 1, 2 FROM batch;"),
            "write ON DUPLICATE KEY UPDATE b = VALUES(b), c = VALUES(c)",
        ),
        (
            into(
                "INSERT INTO k(a) SELECT topic FROM batch ON DUPLICATE KEY UPDATE "
                "b = VALUES(b), c = VALUES(c);"
            ),
            "b, c of k is not filled: a row must be whole",
        ),
        (
            into("INSERT INTO u SELECT id FROM batch;", "INTO TABLE k"),
            "k has a PRIMARY KEY: fill it by a procedure",
        ),
        (into("INSERT INTO t(a) SELECT * FROM batch;"), "* is not supported: name the columns"),
        (into("INSERT INTO t(a) VALUES (1);"), "expected SELECT, found VALUES"),
        (into("INSERT INTO t(a) SELECT topic, id FROM batch;"), "the SELECT has 2 columns, and t"),
        (into("INSERT INTO t(x) SELECT topic FROM batch;"), "no column x; allowed: a, b"),
        (into("INSERT INTO t(c) SELECT topic FROM batch;"), "c is computed: it cannot be filled"),
        (into("INSERT INTO v(c) SELECT topic FROM batch;"), "no table v in this file; allowed: t"),
        (into("INSERT INTO t(a) SELECT other FROM batch;"), "no column other; allowed: topic, id"),
        (into("", ""), "4:1: the procedure does nothing"),
        (into("INSERT INTO u SELECT id FROM batch;", "INTO PROCEDURE g"), "no procedure g above"),
        (into("INSERT INTO u SELECT id FROM batch;", "INTO TABLE t"), "t has none of the columns"),
        (into("INSERT INTO u SELECT id FROM batch;", "INTO TABLE v"), "no table v in this file"),
        (into("INSERT INTO u SELECT id FROM batch;", "FORMAT AVRO"), "says no target: write INTO"),
        (
            into("INSERT INTO u SELECT id FROM batch; INSERT INTO u SELECT id FROM batch;"),
            "3:39: a second INSERT into u: line 3 has one",
        ),
        (
            into("INSERT INTO u SELECT id FROM batch;", "INTO PROCEDURE f FORMAT AVRO (id <- id)"),
            "FORMAT does not fill topic, a column of the batch",
        ),
        (
            into("INSERT INTO u SELECT id FROM batch;", "INTO TABLE t FORMAT AVRO (a <- x)"),
            "no part x in what is delivered; allowed: topic, id, record",
        ),
    ],
)
def test_what_a_procedure_cannot_do_is_refused_where_it_is(
    tmp_path: Path, text: str, message: str
) -> None:
    found = loaded(tmp_path, text)
    assert any(message in line for line in told(found)), told(found)


def test_several_inserts_are_branches(tmp_path: Path) -> None:
    body = (
        "INSERT INTO t(a, b) SELECT topic, record::$n FROM batch b;\n"
        "INSERT INTO u SELECT id FROM batch;"
    )
    flow = one(tmp_path, into(body))
    assert [branch.address.name for branch in flow.branches] == ["t", "u"]
    assert [branch.routes for branch in flow.branches] == [(None,), ("u",)]


def test_a_global_variable_holds_for_all_pipelines_of_the_file(tmp_path: Path) -> None:
    """As in SingleStore, whose pipelines read it whenever they run; the last value counts."""
    text = (
        "SET GLOBAL pipelines_extractor_batch_size = 70;\n"
        + pipeline(name="above")
        + pipeline(None, "MAX_OFFSETS_PER_BATCH_PARTITION 5", name="own")
        + "SET GLOBAL pipelines_extractor_batch_size = 10000;\n"
    )
    found = loaded(tmp_path, text)
    assert told(found) == []
    limits = {flow.name: flow.policies.limit.records for flow in found.flows}
    assert limits == {"above": 10_000, "own": 5}
    replaced = "replaces the value above: the last one holds for all pipelines of the file"
    assert len([line for line in noted(found) if replaced in line]) == 1


def test_statements_without_effect_are_noted(tmp_path: Path) -> None:
    text = (
        pipeline({"tasks.max": 4, "unknown.key": "x"}, "MAX_PARTITIONS_PER_BATCH 2", "FORMAT AVRO")
        + "START PIPELINE p; TEST PIPELINE p LIMIT 1; SHOW PIPELINES; SELECT * FROM p;\n"
        "CREATE ROWSTORE TABLE t (a INT COMMENT 'x', SORT KEY (a), SHARD KEY ()) ;\n"
        "SET GLOBAL pipelines_extractor_max_batch_interval_ms = 1000;"
    )
    found = loaded(tmp_path, text)
    assert told(found) == []
    notes = " ".join(noted(found))
    for word in ("tasks.max", "unknown", "MAX_PARTITIONS", "TEST", "SHOW", "SELECT", "ROWSTORE"):
        assert word in notes
    for word in ("SORT KEY", "SHARD KEY", "SET pipelines_extractor_max_batch_interval_ms"):
        assert word in notes
    assert "for another class than that of Kinesis" in notes


def test_what_a_worker_would_do_is_noted_for_any_class(tmp_path: Path) -> None:
    """The connector does not get these settings: a configuration for a worker runs as it is."""
    of_workers = {
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": False,
        "topic.creation.default.partitions": 3,
        "exactly.once.support": "required",
        "errors.tolerance": "all",
    }
    given = {"connector.class": "a.B", "plugin.path": str(tmp_path), "transforms": "t"}
    config = {**of_workers, **given, "dataflow.spool": str(tmp_path / "spool")}
    flow = one(tmp_path, pipeline(config))
    assert isinstance(flow.source, KafkaConnectSource)
    assert set(flow.source.config) == {"kafka.topic", "kinesis.stream", "transforms"}
    about = {line.split(": ")[1] for line in noted(load(tmp_path)) if "has no effect" in line}
    assert about == of_workers.keys()


def test_delimiters_comments_and_escapes_are_read(tmp_path: Path) -> None:
    text = into("INSERT INTO u SELECT id FROM batch; # the id").replace(
        "END;", "END //\nDELIMITER ;"
    )
    text = "/* one */ DELIMITER //\n".replace("/* one */ ", "") + text
    text += 'ALTER TABLE u ADD COLUMN b AS ("it\\\'s") PERSISTED TEXT;'
    flow = one(tmp_path, text)
    (table,) = [getattr(branch.sink, "definition") for branch in flow.branches]  # noqa: B009
    assert table.computed_columns[0].computed.value == "it's"


def test_a_computed_column_and_its_index_are_of_the_table(tmp_path: Path) -> None:
    flow = one(tmp_path, FIRST + COMPUTED)
    table = getattr(flow.branches[0].sink, "definition")  # noqa: B009
    assert [column.name for column in table.columns] == ["topic", "id", "record", "status"]
    assert [column.name for column in table.computed_columns] == ["status"]
    assert table.indexes[0].columns == ("status",)


def test_the_manifest_changes_with_what_the_flow_does_and_not_with_its_spelling(
    tmp_path: Path,
) -> None:
    first = one(tmp_path, FIRST).hash
    assert one(tmp_path, FIRST.replace("-- Start the pipeline", "")).hash == first
    assert one(tmp_path, FIRST.replace("second-key", "another-one")).hash == first
    assert one(tmp_path, FIRST + COMPUTED).hash != first
    assert one(tmp_path, FIRST.replace("my-kinesis-stream", "another")).hash != first


def test_the_hash_of_a_flow_changes_with_no_name_in_the_code(tmp_path: Path) -> None:
    assert one(tmp_path, FIRST + COMPUTED).hash[:16] == "15de776b1b9296a7"
    assert problems(FORMS, Envelope, PipelineRow, PipelineTable) == []


def test_spoilt_texts_are_findings_and_never_errors() -> None:
    for text in (FIRST + COMPUTED, SECOND):
        for at in range(0, len(text), 7):
            read(text[:at], "one.sql")
            read(text[:at] + text[at + 5 :], "one.sql")
    assert read("(" * 5000, "one.sql").problems
    deep = f"CREATE TABLE t (a AS ({'(' * 3000}topic{')' * 3000}) PERSISTED INT);"
    assert "nested too deeply" in read(deep, "one.sql").problems[0][1]


def test_the_example_is_a_flow() -> None:
    found = load(ROOT / "examples" / "pipelines")
    assert told(found) == []
    assert [flow.id for flow in found.flows] == ["default/orders_pipeline"]
    assert not any("CONFIG" in line for line in noted(found))


def test_an_index_of_a_table_of_iceberg_is_noted(tmp_path: Path) -> None:
    connections = """
target: lake
targets:
  lake: {type: iceberg, config: {catalogURI: https://lake.example.com, namespace: raw}}
"""
    one(tmp_path, pipeline() + "CREATE INDEX i ON p (topic);", connections)
    assert any(
        "index i: has no effect: a table of Iceberg" in line for line in noted(load(tmp_path))
    )


@pytest.mark.parametrize(
    ("mistake", "left"),
    [
        ("USEE other;", []),
        ("USE other now;", []),
        ("STOP PIPELIN p;", []),
        ("STOP PIPELINE pp;", []),
        ("DETACH PIPELINE p;", ["q"]),
        ("DROP PIPELINE p now;", ["q"]),
        ("ALTER PIPELINE p SET OFFSETS LATEST;", ["q"]),
        ("ALTER PIPELINE p SET CONFIG '{';", ["q"]),
        ("ALTER TABLE p DROP COLUMN record;", ["q"]),
        ("CREATE OR REPLACE INFERRED PIPELINE p AS LOAD DATA;", ["q"]),
        ("START PIPELINE p;", ["q"]),
        ("SET GLOBAL pipelines_extractor_batch_size = 'x';", ["p", "q"]),
        ("CREATE INDEX i ON p (nothing);", ["p", "q"]),
        ("DELETE FROM p WHERE 1;", ["p", "q"]),
    ],
)
def test_no_pipeline_runs_with_what_a_mistake_leaves(
    tmp_path: Path, mistake: str, left: list[str]
) -> None:
    """In the default target, from the beginning, or although it is to be stopped."""
    text = pipeline() + "START PIPELINE p;" + pipeline(name="q") + "START PIPELINE q;\n" + mistake
    found = loaded(tmp_path, text, TARGET)
    assert told(found)
    assert [flow.name for flow in found.flows] == left
    assert [one.message for one in found.hints if "no flow" in one.message] == [
        "no flow is made of it until line 6 is corrected"
    ] * (0 if left else 2)
