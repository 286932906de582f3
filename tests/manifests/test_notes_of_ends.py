"""Keys that have no effect beside the others, and ends that do not fit: check says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from dataflow_assets.manifests.load import Loaded, load

TOPIC = {"brokers": ["h:1"], "topic": "t"}
KAFKA = {"type": "kafka", "config": TOPIC}
QUERY = {"query": "select 1"}
POSTGRESQL = {"connectionString": "postgresql://h/d", "table": "t"}
CLICKHOUSE = {"connectionString": "clickhouse://h:9000/d", "table": "t"}
TRINO = {"serverURL": "https://h", "catalog": "c", "schema": "s", "table": "t"}
NESSIE = {"baseURL": "https://h", "namespace": "n", "table": "t"}
REST = {"catalogURI": "https://h", "namespace": "n", "table": "t"}
UPSERT = {"upsertMode": True, "conflictKey": "id"}
FOLLOWED = {
    "connectionString": "postgresql://h/d",
    "slotName": "s",
    "publicationName": "p",
    "tables": ["public.orders"],
}
CDC = {"type": "postgresql-cdc", "config": FOLLOWED}


def loaded(folder: Path, source: Mapping[str, Any], sink: Mapping[str, Any], **spec: Any) -> Loaded:
    whole = {
        "apiVersion": "dataflow.dataflow.io/v1",
        "kind": "DataFlow",
        "metadata": {"name": "a", **spec.pop("metadata", {})},
        "spec": {"source": dict(source), "sink": dict(sink), **spec},
    }
    (folder / "a.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    return load(folder)


def said(folder: Path, source: Mapping[str, Any], sink: Mapping[str, Any], **spec: Any) -> str:
    found = loaded(folder, source, sink, **spec)
    assert not found.findings
    assert found.flows
    return "\n".join(f"{one.path}: {one.message}" for one in found.hints)


def at(place: str, found: str) -> list[str]:
    """What is said there."""
    return [line for line in found.splitlines() if line.startswith(f"{place}: ")]


KEYCLOAK = {"token": "t", "serverURL": "https://k", "realm": "r", "clientID": "c"}
BOTH = {"bearerToken": "t", "basicAuth": {"username": "u", "password": "p"}}
AT_SOURCE: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "postgresql",
        {**QUERY, "autoCreateTable": True},
        "autoCreateTable",
        "without table",
    ),
    *(
        (type_, {**QUERY, key: value}, key, "without changeTrackingColumn")
        for type_ in ("postgresql", "clickhouse", "trino")
        for key, value in (("orderByColumn", "n"), ("readBatchSize", 5))
    ),
]
AT_SINK: list[tuple[str, dict[str, Any], str, str]] = [
    ("clickhouse", {"tableEngine": "MergeTree"}, "tableEngine", "without autoCreateTable: true"),
    (
        "clickhouse",
        {"connectionString": "clickhouse://h:9000/d?max_open_conns=5&block_buffer_size=2"},
        "connectionString",
        "max_open_conns, block_buffer_size: no effect here",
    ),
    ("trino", {"keycloak": KEYCLOAK}, "keycloak.realm", "no effect beside token"),
    *(
        (type_, {"batchFlushIntervalSeconds": 0}, "batchFlushIntervalSeconds", "no pause between")
        for type_ in ("trino", "iceberg", "nessie")
    ),
    *(
        (type_, {"rawMode": True, "flattenMetadataColumnsPrefix": "k_"}, key, "without flatten")
        for type_ in ("postgresql", "clickhouse", "trino", "iceberg", "nessie")
        for key in ("flattenMetadataColumnsPrefix",)
    ),
    *(
        (type_, more, key, says)
        for type_ in ("iceberg", "nessie")
        for more, key, says in (
            (BOTH, "basicAuth", "is not sent: bearerToken is"),
            ({**BOTH, "authenticationType": "BASIC"}, "bearerToken", "is not sent: basicAuth is"),
            ({**BOTH, "authenticationType": "NONE"}, "bearerToken", "authenticationType is NONE"),
            ({"oauth2ServerURI": "https://k/t"}, "oauth2ServerURI", "without oauth2ClientID"),
            ({"oauth2Scope": "x"}, "oauth2Scope", "without oauth2ClientID"),
        )
    ),
]
CONFIGS = {
    "postgresql": POSTGRESQL,
    "clickhouse": CLICKHOUSE,
    "trino": TRINO,
    "nessie": NESSIE,
    "iceberg": REST,
}


@pytest.mark.parametrize(("type_", "more", "key", "says"), AT_SOURCE)
def test_a_key_of_a_source_without_effect(
    type_: str, more: dict[str, Any], key: str, says: str, tmp_path: Path
) -> None:
    config = {**CONFIGS[type_], **more}
    del config["table"]
    sink = {"type": "clickhouse", "config": {**CLICKHOUSE, "table": "other", **UPSERT}}
    found = said(tmp_path, {"type": type_, "config": config}, sink)
    assert says in "".join(at(f"spec.source.config.{key}", found))


@pytest.mark.parametrize(("type_", "more", "key", "says"), AT_SINK)
def test_a_key_of_a_sink_without_effect(
    type_: str, more: dict[str, Any], key: str, says: str, tmp_path: Path
) -> None:
    found = said(tmp_path, KAFKA, {"type": type_, "config": {**CONFIGS[type_], **more}})
    assert says in "".join(at(f"spec.sink.config.{key}", found))


@pytest.mark.parametrize("type_", ["postgresql", "clickhouse", "iceberg", "nessie"])
def test_keys_that_an_error_sink_does_not_use(type_: str, tmp_path: Path) -> None:
    errors = {"type": type_, "config": {**CONFIGS[type_], "table": "bad", **UPSERT}}
    found = said(tmp_path, KAFKA, {"type": "postgresql", "config": POSTGRESQL}, errors=errors)
    for key in UPSERT:
        assert f"spec.errors.config.{key}: has no effect in an error sink" in found


@pytest.mark.parametrize("value", ["yes", "True", "1"])
def test_a_reset_is_asked_for_by_true(value: str, tmp_path: Path) -> None:
    annotations = {"dataflow.dataflow.io/reset-checkpoint": value}
    sink = {"type": "postgresql", "config": POSTGRESQL}
    found = loaded(tmp_path, KAFKA, sink, metadata={"annotations": annotations})
    assert [one.message for one in found.findings] == ['must be "true", or "false" for no reset']


STEPS = [{"type": "debeziumUnwrap"}]
TOMBSTONES = {"type": "kafka", "config": {**TOPIC, "tombstones": "delete"}}
SENDERS = [
    pytest.param(CDC, (), "postgresql-cdc", id="postgresql-cdc"),
    pytest.param(KAFKA, STEPS, "debeziumUnwrap", id="debeziumUnwrap"),
    pytest.param(TOMBSTONES, (), "tombstones: delete", id="tombstones"),
]


@pytest.mark.parametrize("type_", ["postgresql", "clickhouse", "trino", "iceberg", "nessie"])
@pytest.mark.parametrize("upserts", [True, False])
@pytest.mark.parametrize(("source", "steps", "what"), SENDERS)
def test_deletes_into_a_sink_that_takes_none_are_noted(
    source: dict[str, Any], steps: Any, what: str, upserts: bool, type_: str, tmp_path: Path
) -> None:
    config = {**CONFIGS[type_], "table": "other", **(UPSERT if upserts else {})}
    found = said(tmp_path, source, {"type": type_, "config": config}, transformations=list(steps))
    noted = f"spec.sink.config: takes no deletes, and {what} sends them: the flow stops at" in found
    takes = upserts and type_ in ("iceberg", "nessie")  # which delete by the key in any case
    assert noted != takes


@pytest.mark.parametrize(
    "more",
    [{**UPSERT, "deleteMode": "hard"}, {**UPSERT, "softDeleteColumn": "gone"}, {"rawMode": True}],
)
def test_deletes_into_a_sink_that_takes_them_are_not_noted(
    more: dict[str, Any], tmp_path: Path
) -> None:
    sink = {"type": "postgresql", "config": {**POSTGRESQL, "table": "other", **more}}
    assert "deletes" not in said(tmp_path, CDC, sink)


def test_events_of_debeziums_are_rows_of_their_own(tmp_path: Path) -> None:
    source = {**CDC, "config": {**FOLLOWED, "envelopeFormat": "debezium"}}
    sink = {"type": "postgresql", "config": {**POSTGRESQL, "table": "other"}}
    assert "deletes" not in said(tmp_path, source, sink)


def test_what_happens_to_rejected_deletes_is_said(tmp_path: Path) -> None:
    sink = {"type": "postgresql", "config": {**POSTGRESQL, "table": "other"}}
    found = said(tmp_path, CDC, sink, onRejected="table", maxRejectedPercent=5)
    assert "each is a rejected record, and the flow stops above 5 %" in found


def test_the_objects_of_a_list_are_documents(tmp_path: Path) -> None:
    sink = {"type": "postgresql", "config": POSTGRESQL}
    one, two = (
        {
            "apiVersion": "dataflow.dataflow.io/v1",
            "kind": "DataFlow",
            "metadata": {"name": name},
            "spec": {"source": KAFKA, "sink": {**sink, **more}},
        }
        for name, more in (("one", {}), ("two", {"nonsense": 1}))
    )
    whole = {"apiVersion": "v1", "kind": "List", "items": [one, two]}
    (tmp_path / "a.yaml").write_text(yaml.dump(whole, Dumper=Plain, sort_keys=False))
    found = load(tmp_path)
    assert [flow.name for flow in found.flows] == ["one"]
    (wrong,) = found.findings
    assert wrong.path == "spec.sink.nonsense"
    lines = (tmp_path / "a.yaml").read_text().splitlines()
    assert "nonsense" in lines[wrong.line - 1]


class Plain(yaml.SafeDumper):
    """Without aliases."""

    def ignore_aliases(self, _: Any) -> bool:
        return True


@pytest.mark.parametrize("tail", ["/api/v2", "/iceberg", "/iceberg/v1", "/api"])
def test_an_address_of_nessie_with_the_path_of_an_interface(tail: str, tmp_path: Path) -> None:
    config = {**NESSIE, "baseURL": f"https://h{tail}"}
    found = said(tmp_path, KAFKA, {"type": "nessie", "config": config})
    assert f"spec.sink.config.baseURL: must be written without {tail}" in found


@pytest.mark.parametrize("type_", ["iceberg", "nessie"])
@pytest.mark.parametrize("rewrite", ["fail", "rescan"])
def test_a_table_that_is_read_once_into_a_sink_that_upserts(
    type_: str, rewrite: str, tmp_path: Path
) -> None:
    source = {"type": type_, "config": {**CONFIGS[type_], "onSourceRewrite": rewrite}}
    sink = {"type": "postgresql", "config": {**POSTGRESQL, **UPSERT}}
    noted = "Set onSourceRewrite: rescan in the source" in said(tmp_path, source, sink)
    assert noted == (rewrite == "fail")


def _routed(condition: str) -> list[dict[str, Any]]:
    route = {
        "condition": condition,
        "sink": {"type": "postgresql", "config": {**POSTGRESQL, "table": "z"}},
    }
    return [{"type": "router", "config": {"routes": [route]}}]


def _filtered(condition: str) -> list[dict[str, Any]]:
    return [{"type": "filter", "config": {"condition": condition}}]


ONE_COLUMN = {"type": "postgresql-cdc", "config": {**FOLLOWED, "includeColumns": ["id"]}}
CONDITIONS: list[tuple[dict[str, Any], list[dict[str, Any]], str]] = [
    (KAFKA, _filtered("metadata.operation == 'insert'"), "asks for metadata operation, which no"),
    (KAFKA, _filtered("metadata.headers.tenant == 'a'"), ""),
    (KAFKA, _routed("metadata.table == 'x'"), "asks for metadata table, which no record"),
    (CDC, _filtered("metadata.operation == 'insert'"), ""),
    (ONE_COLUMN, _filtered("$.region == 'eu'"), "asks for region, which the source leaves out"),
    (ONE_COLUMN, _routed("$.region == 'eu'"), "asks for region, which the source leaves out"),
    (ONE_COLUMN, _filtered("$.id == 1"), ""),
    (
        ONE_COLUMN,
        [{"type": "insertField", "config": {"fields": {"region": "eu"}}}, *_filtered("$.region")],
        "",
    ),
    (
        {"type": "postgresql", "config": {"connectionString": "postgresql://h/d", **QUERY}},
        _filtered("metadata.id == 1"),
        "asks for metadata id, which no record of this source has (it has operation)",
    ),
]


@pytest.mark.parametrize(("source", "steps", "message"), CONDITIONS)
def test_a_condition_about_what_no_record_has_is_noted(
    tmp_path: Path, source: dict[str, Any], steps: list[dict[str, Any]], message: str
) -> None:
    """All records would go one way, and nobody would be told."""
    sink = {"type": "postgresql", "config": {**POSTGRESQL, "table": "o"}}
    found = at(
        f"spec.transformations[{len(steps) - 1}].config",
        said(tmp_path, source, sink, transformations=steps),
    )
    assert [message in line for line in found] == ([True] if message else [])


@pytest.mark.parametrize("kind", ["postgresql", "clickhouse", "trino"])
def test_a_query_without_an_order_has_no_metadata_to_match_rows_by(
    tmp_path: Path, kind: str
) -> None:
    """Both fragments of Trino's section together: no record of the query has an id."""
    server = {"postgresql": POSTGRESQL, "clickhouse": CLICKHOUSE, "trino": TRINO}[kind]
    source = {"type": kind, "config": {**server, **QUERY}}
    raw = {"rawMode": True, **UPSERT}
    sink = {"type": "postgresql", "config": {**POSTGRESQL, "table": "o", **raw}}
    place = "spec.sink.config.conflictKey"
    (note,) = at(place, said(tmp_path, source, sink))
    assert "id is none that this source gives (it gives " in note
    tracked = {"changeTrackingColumn": "changed_at"}
    source = {"type": kind, "config": {**server, **QUERY, **tracked}}
    assert at(place, said(tmp_path, source, sink)) == []
