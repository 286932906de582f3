"""Languages that name variables: Secrets of other namespaces must be listed, here as elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from dataflow_assets.errors import PermanentError
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.redaction import mask
from dataflow_assets.secrets import Secrets, VariableRef
from tests.languages.justone.test_reader import CONNECTOR, WORKER
from tests.languages.pipelines.files import CLASS, TARGET

VARIABLE = "DATAFLOW_SECRET__OTHER__PG__PASSWORD"
SAID = (
    f"the variable {VARIABLE} must not be used: it is in namespace OTHER, the flow in default; "
    "other namespaces must be listed in DATAFLOW_SECRET_NAMESPACES (not set), separated by commas, "
    "or `*` for all"
)
SOURCE = """\
CREATE TABLE s (a STRING) WITH ('connector' = 'kafka', 'topic' = 't',
  'properties.bootstrap.servers' = 'k:9092', 'properties.group.id' = 'g', 'format' = 'json',
  'scan.startup.mode' = 'earliest-offset');
"""
TABLEFLOW = """\
source_clusters:
  - name: one
    bootstrap_brokers: [{{hostname: broker, port: 9092}}]
{}
tables:
  - source_cluster_name: one
    source_topic: logs
    source_format: json
    schema_mode: inline
    schema: {{fields: [{{name: a, type: string, id: 1}}]}}
destination_bucket_url: s3://bucket
"""
LOGIN = f"{{sasl_mechanism: plain, sasl_username_env: U, sasl_password_env: {VARIABLE}}}"


class Written(NamedTuple):
    """A file that names the variable, the line of what the variable is for, and files beside it."""

    name: str
    text: str
    line: int
    beside: dict[str, str]


def _pipeline(name: str, keys: dict[str, str]) -> Written:
    config = json.dumps({"connector.class": name, "kafka.topic": "t", "kinesis.stream": "s"})
    text = (
        "CREATE INFERRED PIPELINE p AS LOAD DATA KAFKACONNECT 'x'\n"
        f"CONFIG '{config}'\nCREDENTIALS '{json.dumps(keys)}';\nSTART PIPELINE p;\n"
    )
    return Written("p.sql", text, 1, {"connections.yaml": TARGET})


def _sql(option: str) -> Written:
    url = "'url' = 'jdbc:postgresql://h/d', 'username' = 'u'"
    database = f"'connector' = 'jdbc', 'table-name' = 't', {url}"
    if "connectionString" in option:
        database = "'connector' = 'postgresql', 'table' = 't'"
    text = (
        f"CREATE TABLE o (a STRING) WITH ({database},\n  {option});\nINSERT INTO o SELECT a FROM s;"
    )
    return Written("q.sql", SOURCE + text, 4, {})


REFERENCE = f"${{env:{VARIABLE}}}"
LOGGED_IN = f"""\
CREATE TABLE w (a STRING) WITH ('connector' = 'kafka', 'topic' = 'w',
  'properties.bootstrap.servers' = 'k:9092', 'properties.group.id' = 'g', 'format' = 'json',
  'scan.startup.mode' = 'earliest-offset',
  'properties.security.protocol' = 'SASL_PLAINTEXT', 'properties.sasl.mechanism' = 'PLAIN',
  'properties.sasl.jaas.config' =
    'x.PlainLoginModule required username="u" password="{REFERENCE}";');
CREATE TABLE o (a STRING, n BIGINT, PRIMARY KEY (a) NOT ENFORCED) WITH ('connector' = 'jdbc',
  'table-name' = 't', 'url' = 'jdbc:postgresql://h/d', 'username' = 'u');
INSERT INTO o SELECT a, COUNT(*) FROM (SELECT a FROM s UNION ALL SELECT a FROM w) GROUP BY a;
"""
JAAS = (
    "consumer.security.protocol=SASL_PLAINTEXT\nconsumer.sasl.mechanism=PLAIN\n"
    f'consumer.sasl.jaas.config=x.PlainLoginModule required username="u" password="{REFERENCE}";\n'
)
FILES = {
    "SQL, a password": _sql(f"'password' = '{REFERENCE}'"),
    "SQL, a connection string": _sql(f"'connectionString' = '{REFERENCE}'"),
    "SQL, the second of several tables": Written("q.sql", SOURCE + LOGGED_IN, 4, {}),
    "properties, the database": Written(
        "sink.properties",
        f"{CONNECTOR}db.password={REFERENCE}\n",
        19,
        {"worker.properties": WORKER},
    ),
    "properties, the brokers": Written(
        "sink.properties", CONNECTOR, 7, {"worker.properties": WORKER + JAAS}
    ),
    "Tableflow": Written("t.yaml", TABLEFLOW.format(f"    credentials: {LOGIN}"), 4, {}),
    "Tableflow, a registry": Written(
        "t.yaml",
        TABLEFLOW.format(f"    schema_registry: {{url: 'http://r', bearer_token_env: {VARIABLE}}}")
        .replace("inline", "registry")
        .replace("    schema: {fields: [{name: a, type: string, id: 1}]}\n", ""),
        4,
        {},
    ),
    "a pipeline of Kinesis": _pipeline(
        CLASS, {"aws.access.key.id": "A", "aws.secret.key.id": REFERENCE}
    ),
    "a pipeline of Kafka Connect": _pipeline(
        "x.Y", {"password": f"a{REFERENCE}b", "plugin.path": "/srv/p", "dataflow.spool": "/srv/s"}
    ),
}


@pytest.mark.parametrize("written", FILES.values(), ids=list(FILES))
def test_a_variable_of_another_namespace_must_be_listed(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused by the check, with the place in the file, and by the run after the list is cut."""
    monkeypatch.setenv(VARIABLE, "host=planted")
    monkeypatch.setenv("U", "user")
    monkeypatch.setenv("DATAFLOW_FILES", "/srv")
    for name, text in (*written.beside.items(), (written.name, written.text)):
        (tmp_path / name).write_text(text)
    loaded = load(tmp_path)
    assert {(one.line, one.message) for one in loaded.findings} == {(written.line, SAID)}
    assert loaded.flows == ()
    monkeypatch.setenv("DATAFLOW_SECRET_NAMESPACES", "OTHER")
    allowed = load(tmp_path)
    assert [str(one) for one in allowed.findings] == []
    (flow,) = allowed.flows
    flow.resolve()
    monkeypatch.delenv("DATAFLOW_SECRET_NAMESPACES")
    with pytest.raises(PermanentError) as caught:
        flow.resolve()
    assert SAID in str(caught.value)
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    ("listed", "name", "own"),
    [
        ("", "DATAFLOW_SECRET__MY_SHOP__PG__PASSWORD", "my-shop"),
        ("x, team-a", "DATAFLOW_SECRET__TEAM_A__PG__PASSWORD", "my-shop"),
        ("*", VARIABLE, "my-shop"),
        ("", "DATAFLOW_SECRET_NAMESPACES", "my-shop"),
        ("", "PASSWORD", "my-shop"),
    ],
)
def test_variables_that_may_be_used(
    listed: str, name: str, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "value")
    monkeypatch.setenv("DATAFLOW_SECRET_NAMESPACES", listed)
    assert Secrets(own).get(VariableRef.of(name)) == (
        listed if name.endswith("SPACES") else "value"
    )


def test_every_spelling_of_a_variable_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the one behind a variable that is set: the other process may not have that."""
    monkeypatch.setenv("FIRST", "value")
    with pytest.raises(PermanentError, match=f"the variable {VARIABLE} must not be used"):
        Secrets("shop").get(VariableRef.of("FIRST", VARIABLE))


def test_a_password_of_the_second_of_several_tables_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is written in the file itself."""
    monkeypatch.setenv("DATAFLOW_FILES", "/srv")
    (tmp_path / "q.sql").write_text(SOURCE + LOGGED_IN.replace(REFERENCE, "hunter55"))
    (flow,) = load(tmp_path).flows
    assert mask("the broker said: hunter55 is wrong", [flow]) == "the broker said: *** is wrong"
