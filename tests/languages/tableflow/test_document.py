"""Files of Tableflow: what they become, and what is wrong in them, by line and column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dataflow_assets.connectors.iceberg.options import Registered
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.errors import Finding, PermanentError
from dataflow_assets.flow import Flow, asset_key
from dataflow_assets.languages.tableflow.declared_sinks import BucketSink
from dataflow_assets.manifests.load import Loaded, load
from tests import ROOT

EXAMPLE = ROOT / "examples" / "tableflow" / "tableflow.yaml"
HEAD = """\
source_clusters:
  - name: one
    bootstrap_brokers:
      - {hostname: broker, port: 9092}
"""
TABLE = """\
  - source_cluster_name: one
    source_topic: logs
    source_format: json
    schema_mode: inline
    schema:
      fields:
        - {name: a, type: string, id: 1}
"""
BUCKET = "destination_bucket_url: s3://bucket\n"
FILE = f"{HEAD}tables:\n{TABLE}{BUCKET}"


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SASL_USERNAME_ENV_VAR", "SASL_PASSWORD_ENV_VAR"):
        monkeypatch.setenv(f"TABLEFLOW_{name}", f"the {name}")
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def loaded_from(tmp_path: Path) -> Any:
    def of(text: str) -> Loaded:
        path = tmp_path / "tableflow.yaml"
        path.write_text(text)
        return load(path)

    return of


def _ends(flow: Flow) -> tuple[KafkaSource, BucketSink]:
    source, sink = flow.source, flow.branches[0].sink
    assert isinstance(source, KafkaSource)
    assert isinstance(sink, BucketSink)
    return source, sink


def test_the_file_of_the_original_documentation_is_two_flows() -> None:
    loaded = load(EXAMPLE)
    assert (loaded.findings, loaded.hints) == ((), ())
    avro, logs = sorted(loaded.flows, key=lambda flow: flow.source.address().name)
    assert logs.id == "default/tableflow_cluster_1+example_json_logs_topic"
    assert (logs.line, avro.line) == (18, 28)
    source, sink = _ends(logs)
    assert (source.brokers, source.topic, source.tls, source.sasl) == (
        ("localhost:9092",),
        "example_json_logs_topic",
        None,
        None,
    )
    assert source.starting_offsets == "earliest"
    assert sink.declaration.location == (
        "s3://my-bucket-name/warpstream/_tableflow/tableflow_cluster_1+example_json_logs_topic"
    )
    assert asset_key(logs.branches[0].address) == (
        "iceberg",
        "my_bucket_name",
        "warpstream__tableflow",
        "tableflow_cluster_1_example_json_logs_topic",
    )
    assert logs.policies.rejects.way == "table"
    assert [(one["id"], one["name"], one["required"]) for one in _columns(sink)] == [
        (1, "environment", True),
        (2, "service", True),
        (3, "status", True),
        (4, "message", True),
    ]


def _columns(sink: BucketSink) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(sink.table_schema)["fields"]
    return found


def test_nested_fields_keep_their_ids_and_an_avro_record_has_the_same_fields() -> None:
    source, sink = _ends(load(EXAMPLE).flows[1])
    columns = {one["name"]: one for one in _columns(sink)}
    assert columns["cookies"]["type"] == {
        "type": "list",
        "element-id": 21,
        "element": "string",
        "element-required": True,
    }
    assert columns["event_attributes"]["type"] == {
        "type": "map",
        "key-id": 23,
        "key": "string",
        "value-id": 24,
        "value": "string",
        "value-required": True,
    }
    system = columns["device"]["type"]["fields"][1]["type"]["fields"]
    assert system[2] == {"id": 25, "name": "vendor", "required": False, "type": "string"}
    assert (source.format, source.avro_head) == ("avro", "ignored")
    written = {one["name"]: one["type"] for one in json.loads(source.avro_schema or "")["fields"]}
    assert written["event_attributes"] == {"type": "map", "values": "string"}
    assert written["device"]["fields"][4] == {"name": "model", "type": ["null", "string"]}
    assert source.brokers == ("broker1.kafkaserver.com:9092", "broker2.kafkaserver.com:9092")


@pytest.mark.parametrize("prefix", ["TABLEFLOW_", ""])
def test_variables_are_read_when_the_flow_runs_with_the_prefix_or_without(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = load(EXAMPLE).flows[1]
    for name in ("SASL_USERNAME_ENV_VAR", "SASL_PASSWORD_ENV_VAR"):
        monkeypatch.delenv(f"TABLEFLOW_{name}")
        monkeypatch.setenv(f"{prefix}{name}", f"{prefix}value of {name}")
    source, _ = _ends(flow.resolve())
    assert source.sasl is not None
    assert source.sasl.settings() == {
        "mechanism": "PLAIN",
        "username": f"{prefix}value of SASL_USERNAME_ENV_VAR",
        "password": f"{prefix}value of SASL_PASSWORD_ENV_VAR",
    }


def test_a_variable_that_is_not_set_is_a_note_and_an_error_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TABLEFLOW_SASL_PASSWORD_ENV_VAR")
    loaded = load(EXAMPLE)
    said = "the environment has no TABLEFLOW_SASL_PASSWORD_ENV_VAR and no SASL_PASSWORD_ENV_VAR"
    path = "source_clusters[1].credentials.sasl_password_env"
    assert loaded.hints == (
        Finding(str(EXAMPLE), 14, 26, path, f"{said}: it must be set at run time"),
    )
    with pytest.raises(PermanentError, match=said):
        loaded.flows[1].resolve()


def test_certificates_by_variables_and_scram(loaded_from: Any) -> None:
    credentials = """\
    credentials:
      use_tls: true
      tls_insecure_skip_verify: true
      sasl_username_env: A
      sasl_password_env: B
      sasl_mechanism: scram-512
      mtls_client_cert_env: C
      mtls_client_key_env: D
"""
    loaded = loaded_from(FILE.replace("tables:\n", f"{credentials}tables:\n"))
    assert loaded.findings == ()
    said = {(one.line, one.path.rpartition(".")[2], one.message[:30]) for one in loaded.hints}
    assert (7, "tls_insecure_skip_verify", "the server's certificate is no") in said
    assert (11, "mtls_client_cert_env", "the environment has no TABLEFL") in said
    source, _ = _ends(loaded.flows[0])
    assert source.protocol == "SASL_SSL"
    assert source.sasl is not None
    assert source.sasl.mechanism == "scram-sha-512"


def test_a_bucket_with_region_and_prefix_and_a_folder(loaded_from: Any, tmp_path: Path) -> None:
    for url, location, region in (
        ("s3://b-1?region=eu-west-1&prefix=a/b", "s3://b-1/a/b", "eu-west-1"),
        ("s3://b-1?prefix=/x/", "s3://b-1/x", None),
        (f"file://{tmp_path}/lake/?prefix=p", f"file://{tmp_path}/lake/p", None),
    ):
        loaded = loaded_from(FILE.replace("s3://bucket", url))
        assert loaded.findings == ()
        _, sink = _ends(loaded.flows[0])
        assert sink.declaration.location == f"{location}/warpstream/_tableflow/one+logs"
        assert sink.s3_region == region


def test_by_hour_there_is_a_column_for_the_records_time(loaded_from: Any) -> None:
    text = FILE.replace("schema_mode: inline", "schema_mode: inline\n    partitioning_scheme: hour")
    _, sink = _ends(loaded_from(text).flows[0])
    assert sink.declaration.partitions == ("hour(_record_timestamp)",)
    assert sink.traits.record_time == "_record_timestamp"
    assert _columns(sink)[-1] == {
        "id": 2_000_000_000,
        "name": "_record_timestamp",
        "required": False,
        "type": "timestamptz",
    }


FIELD = "{name: a, type: string, id: 1}"
CREDENTIALS = "    credentials: {%s}\ntables:\n"
JSON = "source_format: json"
NO_ID = "{name: a, type: string}"
_PAIR = "{name: key, type: int, id: 2}, {name: value, type: int, id: 3}"
BAD_KEY = f"{{name: a, type: map, id: 1, fields: [{_PAIR}]}}"
MISTAKES: list[tuple[str, str, int, int, str, str]] = [
    ("source_topic: logs", "source_topik: logs", 7, 5, "tables[0].source_topik",
     "unknown key; did you mean source_topic?"),
    ("source_cluster_name: one", "source_cluster_name: onne", 6, 26,
     "tables[0].source_cluster_name", "is no cluster of this file; did you mean one?"),
    ("source_format: json", "source_format: protobuf", 8, 20, "tables[0].source_format",
     "not supported yet: files of Tableflow are read with topics in JSON and Avro; a DataFlow"),
    (JSON, f"{JSON}\n    input_schema: '{{}}'", 9, 19, "tables[0].input_schema",
     "not supported yet: a table has the columns of `schema`, whose ids are those of the Iceberg"),
    (JSON, f"{JSON}\n    compression: snappy", 9, 18, "tables[0].compression",
     "is not one of the allowed values: zstd"),
    (JSON, f"{JSON}\n    dlq_mode: topic", 9, 15, "tables[0].dlq_mode",
     "is not one of the allowed values: skip, stop"),
    (JSON, "source_format: avro\n    wire_format: raw", 9, 5, "tables[0].wire_format",
     "is for json: of Avro a schema's id is removed where there is one"),
    ("source_topic: logs", "source_topic: a/b", 7, 19, "tables[0].source_topic",
     "must be the name of a topic"),
    (FIELD, "{name: a, type: strng, id: 1}", 12, 27, "tables[0].schema.fields[0].type",
     "unknown type; did you mean string?"),
    (FIELD, NO_ID, 12, 11, "tables[0].schema.fields[0].id", "is required"),
    (FIELD, "{name: a, type: 'decimal(39, 2)', id: 1}", 12, 27, "tables[0].schema.fields[0].type",
     "must have 1 to 38 digits, and no more behind the point; did you mean decimal(p, s)?"),
    (FIELD, f"{FIELD}\n        - {{name: b, type: int, id: 1}}", 13, 36,
     "tables[0].schema.fields[1].id", "is also the id of a field in line 12"),
    (FIELD, f"{FIELD}\n        - {{name: a, type: int, id: 2}}", 13, 18,
     "tables[0].schema.fields[1].name", "is the name of another field beside it"),
    (FIELD, "{name: a, type: list, id: 1}", 12, 11, "tables[0].schema.fields[0].fields",
     "must be element, for a list"),
    (FIELD, "{name: a, type: struct, id: 1}", 12, 11, "tables[0].schema.fields[0].fields",
     "are required: a struct has fields"),
    (FIELD, "{name: a, type: int, id: 1, fields: [{name: b, type: int, id: 2}]}", 12, 39,
     "tables[0].schema.fields[0].fields", "are for struct, list and map, not for int"),
    (FIELD, BAD_KEY, 12, 66, "tables[0].schema.fields[0].fields[0].type",
     "must be string, and not optional: keys of JSON objects and of Avro maps are text"),
    (FIELD, "{name: _record_timestamp, type: int, id: 1}", 12, 18,
     "tables[0].schema.fields[0].name",
     "is the column that holds the time of each record, which is always there"),
    (FIELD, "{name: a, type: int, id: 2000000000}", 12, 36, "tables[0].schema.fields[0].id",
     "must be at most 1999999999"),
    ("s3://bucket", "gs://bucket", 13, 25, "destination_bucket_url",
     "must be s3://bucket or file:///folder; other stores: not supported yet"),
    ("s3://bucket", "s3://bucket?regoin=x", 13, 25, "destination_bucket_url",
     "has an unknown parameter; did you mean region?"),
    ("s3://bucket", "file:///etc", 13, 25, "destination_bucket_url",
     "its folder is not below the folder DATAFLOW_FILES"),
    ("tables:\n", CREDENTIALS % "sasl_username_env: A", 5, 19,
     "source_clusters[0].credentials.sasl_username_env",
     "belongs to sasl_password_env: set both or none"),
    ("tables:\n", CREDENTIALS % "mtls_server_ca_cert_env: A", 5, 19,
     "source_clusters[0].credentials.mtls_server_ca_cert_env", "needs use_tls: true"),
    ("tables:\n", CREDENTIALS % "sasl_mechanism: scram-256", 5, 19,
     "source_clusters[0].credentials.sasl_mechanism",
     "has no effect without sasl_username_env and sasl_password_env: set them"),
    ("tables:\n", CREDENTIALS % "sasl_username_env: $A, sasl_password_env: B", 5, 38,
     "source_clusters[0].credentials.sasl_username_env",
     "must be the name of an environment variable: letters a-z, digits and `_`, no digit first"),
    (JSON, f"{JSON}\n    partition_by: [day(b)]", 9, 19, "tables[0].partition_by",
     "day(b): names no column of this table; allowed: a, _record_timestamp"),
    (JSON, f"{JSON}\n    partition_by: day(a)", 9, 19, "tables[0].partition_by",
     "day(a): day cannot take a column of type string"),
    (JSON, f"{JSON}\n    partition_by: weekly(a)", 9, 19, "tables[0].partition_by",
     "'(value)': unknown transform 'weekly'"),
    (JSON, f"{JSON}\n    partition_by: a\n    partitioning_scheme: hour", 9, 5,
     "tables[0].partition_by", "replaces partitioning_scheme: leave one of them out"),
    (JSON, f"{JSON}\n    retention: 3w", 9, 16, "tables[0].retention",
     "must be hours or days, such as 12h or 30d"),
    (JSON, f"{JSON}\n    retention: 3d", 9, 5, "tables[0].retention",
     "needs a table that is partitioned by the time of its records: partitioning_scheme: hour"),
    (JSON, f"{JSON}\n    upsert_key: b", 9, 17, "tables[0].upsert_key",
     "b is no column of this table; allowed: a"),
    (FIELD, "{name: a, type: double, id: 1}\n    upsert_key: a", 13, 17, "tables[0].upsert_key",
     "a is of type double, by which rows cannot be matched"),
    ("{hostname: broker, port: 9092}", "{hostname: 'broker:9092'}", 4, 20,
     "source_clusters[0].bootstrap_brokers[0].hostname",
     "must be a host's name or address, no port"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wrong", "line", "column", "path", "message"), MISTAKES)
def test_a_mistake_has_its_line_and_what_is_allowed(
    text: str, wrong: str, line: int, column: int, path: str, message: str, loaded_from: Any
) -> None:
    assert text in FILE
    loaded = loaded_from(FILE.replace(text, wrong, 1))
    (found,) = (one for one in loaded.findings if one.message != "is required" or wrong == NO_ID)
    assert (found.line, found.column, found.path) == (line, column, path)
    assert found.message.startswith(message)
    assert loaded.flows == ()


def test_keys_of_later_versions_are_read(loaded_from: Any) -> None:
    more = "compression: zstd\n    wire_format: raw\n    dlq_mode: "
    ways = []
    for key in ("", f"\n    {more}skip", f"\n    {more}stop"):
        loaded = loaded_from(FILE.replace(JSON, f"{JSON}{key}", 1))
        assert loaded.findings == ()
        ways += [flow.policies.rejects.way for flow in loaded.flows]
    assert ways == ["table", "table", "fail"]


def test_a_table_with_a_mistake_does_not_hide_the_others(loaded_from: Any) -> None:
    more = TABLE.replace("logs", "more")
    two = HEAD.removeprefix("source_clusters:\n").replace("name: one", "name: two")
    broken = TABLE.replace("name: one", "name: two").replace("inline", "registry")
    text = f"{HEAD}{two}tables:\n{TABLE}{broken}{more}{BUCKET}"
    loaded = loaded_from(text)
    assert [flow.name for flow in loaded.flows] == ["one+logs", "one+more"]
    assert [(one.line, one.path) for one in loaded.findings] == [
        (19, "tables[1].schema_mode"),
        (20, "tables[1].schema"),
    ]


REGISTRY = """\
    schema_registry: {url: 'https://registry:8081', username_env: USER, password_env: WORD}
"""
OF_REGISTRY = """\
  - source_cluster_name: one
    source_topic: logs
    source_format: avro
    schema_mode: registry
"""


def test_the_columns_of_a_table_may_be_those_of_a_registry(
    loaded_from: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the credentials of the cluster's registry, for reading and for the table."""
    monkeypatch.setenv("TABLEFLOW_USER", "u")
    monkeypatch.setenv("WORD", "p")
    more = "    schema_subject: shop.Order\n    partition_by: [day(_record_timestamp), a]\n"
    text = f"{HEAD}{REGISTRY}tables:\n{OF_REGISTRY}{more}{BUCKET}"
    loaded = loaded_from(text)
    assert (loaded.findings, loaded.hints) == ((), ())
    source, sink = _ends(loaded.flows[0].resolve())
    columns = sink.declaration.columns
    assert isinstance(columns, Registered)
    assert (columns.subject, columns.key, columns.record_time) == (
        "shop.Order", (), "_record_timestamp",
    )  # fmt: skip
    assert source.schema_registry is not None
    assert source.schema_registry.client() == columns.registry.client()
    client = columns.registry.client()
    assert (client.url, client.username, client.password) == ("https://registry:8081", "u", "p")
    assert (source.format, source.avro_schema, sink.unknown_fields) == ("avro", None, "reject")


def test_json_of_a_registry_has_columns_of_its_json_schemas(loaded_from: Any) -> None:
    """Messages may begin with the id of their schema; of their fields none is left out."""
    table = OF_REGISTRY.replace("avro", "json")
    loaded = loaded_from(f"{HEAD}{REGISTRY}tables:\n{table}{BUCKET}")
    assert loaded.findings == ()
    source, sink = _ends(loaded.flows[0])
    columns = sink.declaration.columns
    assert isinstance(columns, Registered)
    assert (columns.kind, columns.subject) == ("JSON", "logs-value")
    assert sink.unknown_fields == "reject"
    sent = pa.array([b'\0\0\0\0\7{"a": 1}', b'{"a": 2}', None], pa.binary())
    form = source.message_format()
    assert form is not None
    assert form.texts(sent).texts.to_pylist() == [b'{"a": 1}', b'{"a": 2}', None]
    (group,) = form.columns(sent).groups
    assert (group.at.tolist(), group.rows.to_pylist()) == ([0, 1], [b'{"a": 1}', b'{"a": 2}'])


OF_REGISTRIES: list[tuple[str, str, int, str, str]] = [
    (REGISTRY, "", 9, "tables[0].schema_mode",
     "registry needs a schema_registry in the cluster one"),
    (", password_env: WORD", "", 5, "source_clusters[0].schema_registry.username_env",
     "belongs to password_env: set both or none"),
    ("'https://registry:8081'", "registry", 5, "source_clusters[0].schema_registry.url",
     "must be the address of a registry, like https://registry:8081"),
    ("https://registry:8081'", "http://registry:8081', mtls_server_ca_cert_env: CA", 5,
     "source_clusters[0].schema_registry.mtls_server_ca_cert_env",
     "needs an url that begins with https:"),
    ("username_env", "bearer_token_env: T, username_env", 5,
     "source_clusters[0].schema_registry.bearer_token_env",
     "and username_env exclude each other: keep one"),
    ("mode: registry", "mode: inline", 7, "tables[0].schema",
     "is required with schema_mode: inline"),
    ("mode: registry", "mode: registry\n    schema: {fields: [{name: a, type: int, id: 1}]}", 11,
     "tables[0].schema",
     "is for schema_mode: inline; with registry the columns are those of the subject"),
    ("mode: registry", "mode: registry\n    partition_by: weekly(a)", 11,
     "tables[0].partition_by", "'(value)': unknown transform 'weekly'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wrong", "line", "path", "message"), OF_REGISTRIES)
def test_a_mistake_about_a_registry_has_its_line(
    text: str, wrong: str, line: int, path: str, message: str, loaded_from: Any
) -> None:
    given = f"{HEAD}{REGISTRY}tables:\n{OF_REGISTRY}{BUCKET}"
    assert text in given
    loaded = loaded_from(given.replace(text, wrong, 1))
    (found,) = loaded.findings
    assert (found.line, found.path) == (line, path)
    assert found.message.startswith(message)
    assert loaded.flows == ()


@pytest.mark.parametrize("inside", [False, True])
def test_names_that_differ_by_case_alone_are_noted(loaded_from: Any, inside: bool) -> None:
    both = """\
{pad}- {{name: At, id: 11, type: string, optional: true}}
{pad}- {{name: aT, id: 12, type: string, optional: true}}
"""
    if inside:
        head = "        - name: s\n          id: 10\n          type: struct\n"
        fields = f"{head}          fields:\n{both.format(pad=' ' * 12)}"
    else:
        fields = both.format(pad=" " * 8)
    loaded = loaded_from(FILE.replace("      fields:\n", f"      fields:\n{fields}", 1))
    assert not loaded.findings
    assert loaded.flows
    (said,) = [one for one in loaded.hints if "capital letters" in one.message]
    assert said.path.endswith("fields[1].name")
    assert said.message.startswith("differs from At by capital letters alone, which readers such")


def test_tables_of_one_name_and_of_one_name_in_dagster_are_findings(loaded_from: Any) -> None:
    loaded = loaded_from(f"{HEAD}tables:\n{TABLE}{TABLE}{BUCKET}")
    assert loaded.flows == ()
    assert [(one.line, one.column, one.path) for one in loaded.findings] == [
        (7, 19, "tables[0].source_topic"),
        (14, 19, "tables[1].source_topic"),
    ]
    assert "duplicate flow name default/one+logs" in loaded.findings[0].message
    alike = TABLE.replace("logs", "lo.gs"), TABLE.replace("logs", "lo_gs")
    loaded = loaded_from(f"{HEAD}tables:\n{''.join(alike)}{BUCKET}")
    assert loaded.flows == ()
    assert "one_lo_gs" in loaded.findings[0].message


def test_a_key_at_the_top_that_is_unknown_stops_all_tables(loaded_from: Any) -> None:
    loaded = loaded_from(f"{FILE}retention: 3d\n")
    assert loaded.flows == ()
    (found,) = loaded.findings
    assert (found.line, found.path, found.message[:11]) == (14, "retention", "unknown key")


def test_other_yaml_is_not_taken_for_one(loaded_from: Any) -> None:
    assert loaded_from("tables:\n  - a\n").flows == ()
    assert loaded_from("tables: []\nother: 1\n").findings[0].path == "apiVersion"
