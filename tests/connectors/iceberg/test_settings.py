"""The Iceberg sink's declaration: keys, rules between them, column types. No server."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from pydantic import SecretStr, ValidationError

from dataflow_assets.connectors.iceberg import IcebergSink, IcebergSource
from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.connectors.iceberg.column_types import parse_field
from dataflow_assets.connectors.iceberg.table.checkpoint import (
    StoredCheckpoint,
    parse,
    property_key,
)
from dataflow_assets.connectors.iceberg.types import row_schema, table_schema
from dataflow_assets.contracts import Note, PartSlice, Target, Totals
from dataflow_assets.errors import PermanentError
from dataflow_assets.registry import sinks
from dataflow_assets.secrets import SecretRef, Secrets, resolve

LEAST = {"catalogURI": "http://catalog:8181/", "namespace": "shop", "table": "orders"}
REF = {"name": "lake", "key": "value"}


def sink(**changes: Any) -> IcebergSink:
    return IcebergSink.model_validate(LEAST | changes)


def test_the_catalogue_finds_it() -> None:
    assert sinks()["iceberg"] is IcebergSink


def test_address_is_known_without_network_or_secrets() -> None:
    assert sink(warehouse="s3://lake").address().parts == (
        "iceberg",
        "catalog-8181-s3-lake",
        "shop",
        "orders",
    )
    by_ref = IcebergSink.model_validate(
        {"catalogURISecretRef": REF, "namespace": "shop", "tableSecretRef": REF}
    )
    assert by_ref.address().parts == ("iceberg", "lake", "shop", f"lake/{REF['key']}")


def test_user_and_password_in_an_address_would_be_sent_to_nobody() -> None:
    message = "must have no user and password, which errors would show: set basicAuth"
    for option in ("catalogURI", "oauth2ServerURI"):
        with pytest.raises(ValidationError, match=message) as caught:
            sink(**{option: "http://u:planted@host/x"})
        assert "planted" not in str(caught.value)
    found = by_secret("http://u:planted@host/x")
    assert "planted" not in str(found.address())
    with pytest.raises(PermanentError, match=message) as refused:
        connect(found)
    assert "planted" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"catalogURI": ""}, "catalogURI is required"),
        ({"catalogURI": "catalog:8181"}, "scheme and a host"),
        ({"namespace": ""}, "namespace is required"),
        ({"table": ""}, "table is required"),
        ({"oauth2ClientID": "me"}, "oauth2ClientID and oauth2ClientSecret belong together"),
        ({"oauth2ClientSecretSecretRef": REF}, "belong together"),
        ({"accessKeySecretRef": REF}, "accessKey and secretAccessKey belong together"),
        ({"oauth2ServerURI": "idp/token"}, "scheme and a host, like https://keycloak/realms"),
        ({"authenticationType": "bearer"}, "needs bearerToken"),
        ({"authenticationType": "BASIC"}, "needs basicAuth"),
        ({"authenticationType": "BASIC", "basicAuth": {"username": "u"}}, "needs basicAuth"),
        ({"authenticationType": "digest"}, "AUTO"),
        (
            {"bearerToken": "t", "oauth2ClientID": "me", "oauth2ClientSecret": "s"},
            "exclude each other",
        ),
        ({"columns": {"id": "bigint"}}, "unknown type 'bigint'"),
        ({"catalogURL": "http://x"}, "Extra inputs"),
    ],
)
def test_rules(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        sink(**changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"auth": {"type": "noop"}}),
        ({"bearerToken": "t"}, {"token": "t"}),
        ({"bearerToken": "t", "authenticationType": "none"}, {"auth": {"type": "noop"}}),
        ({"oauth2ClientID": "me", "oauth2ClientSecret": "s"}, {"credential": "me:s"}),
        (
            {"basicAuth": {"username": "u", "password": "p"}},
            {"auth": {"type": "basic", "basic": {"username": "u", "password": "p"}}},
        ),
    ],
)
def test_authentication(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    found = sink(**changes).catalog_properties()
    names = ("token", "credential", "auth")
    assert {name: found[name] for name in names if name in found} == expected


def test_the_token_server_is_the_catalogs_own_by_default() -> None:
    oauth = {"oauth2ClientID": "me", "oauth2ClientSecret": "s"}
    found = sink(**oauth).catalog_properties()
    assert found["oauth2-server-uri"] == "http://catalog:8181/v1/oauth/tokens"
    assert found["scope"] == "catalog"
    other = sink(**oauth, oauth2ServerURI="http://idp/token", oauth2Scope="x").catalog_properties()
    assert (other["oauth2-server-uri"], other["scope"]) == ("http://idp/token", "x")


def test_secret_refs_fill_their_fields() -> None:
    values = {"id": "me", "secret": "planted", "uri": "http://c:1", "table": "t", "pw": "p"}
    secrets = Secrets(
        "default", {("default", "lake"): {k: SecretStr(v) for k, v in values.items()}}
    )
    declared = IcebergSink.model_validate(
        {
            "catalogURISecretRef": REF | {"key": "uri"},
            "namespace": "shop",
            "tableSecretRef": REF | {"key": "table"},
            "oauth2ClientIDSecretRef": REF | {"key": "id"},
            "oauth2ClientSecretSecretRef": REF | {"key": "secret"},
            "accessKeySecretRef": REF | {"key": "id"},
            "secretAccessKeySecretRef": REF | {"key": "secret"},
            "basicAuth": {"username": "u", "passwordSecretRef": REF | {"key": "pw"}},
        }
    )
    found = resolve(declared, secrets)
    assert found.identifier == ("shop", "t")
    properties = found.catalog_properties()
    assert properties["credential"] == "me:planted"
    assert (properties["s3.access-key-id"], properties["s3.secret-access-key"]) == ("me", "planted")
    assert "planted" not in repr(found)
    assert isinstance(declared.table_secret_ref, SecretRef)


def by_secret(address: str) -> IcebergSink:
    declared = {"catalogURISecretRef": REF, "namespace": "shop", "table": "orders"}
    secrets = Secrets("default", {("default", "lake"): {"value": SecretStr(address)}})
    return resolve(IcebergSink.model_validate(declared), secrets)


@pytest.mark.parametrize(
    "address",
    ["", "catalog:8181\n", "ftp://catalog", "http://cata\nlog", "http://catalog:p", "http://[c"],
)
def test_a_secret_that_holds_no_address_ends_the_run_and_is_named(address: str) -> None:
    """As if no server ran there, it would be tried again for hours."""
    found = by_secret(address)
    assert found.address().system == "iceberg"
    with pytest.raises(
        PermanentError, match=r"^the secret of catalogURISecretRef: the address must"
    ):
        connect(found)


def test_an_address_in_a_secret_may_end_with_a_slash_and_a_newline() -> None:
    assert by_secret(" http://catalog:8181/\n").catalog == "http://catalog:8181"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("long", pa.int64()),
        ("decimal(10, 2)", pa.decimal128(10, 2)),
        ("timestamptz", pa.timestamp("us", "UTC")),
        ("list<string>", pa.list_(pa.field("element", pa.string()))),
        ("map<string, long>", pa.map_(pa.string(), pa.int64())),
        ("fixed[16]", pa.binary(16)),
        (
            "struct<a: long, `b c`: list<struct<x: double>>>",
            pa.struct(
                [
                    ("a", pa.int64()),
                    ("b c", pa.list_(pa.field("element", pa.struct([("x", pa.float64())])))),
                ]
            ),
        ),
    ],
)
def test_column_types(text: str, kind: pa.DataType) -> None:
    assert parse_field("c", text) == pa.field("c", kind)
    assert parse_field("c", f"{text} not null") == pa.field("c", kind, nullable=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown type ''"),
        ("list<long", "its end"),
        ("decimal(x,2)", "a number"),
        ("struct<a long>", "'long' where ':'"),
        ("long long", "goes on behind its end"),
        ("long;", "cannot read"),
    ],
)
def test_column_types_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_field("c", text)


def test_json_text_is_remembered_wherever_it_stands() -> None:
    sample = pa.schema(
        [
            ("a", pa.json_()),
            ("empty", pa.struct([])),
            ("list", pa.list_(pa.json_())),
            ("deep", pa.struct([("b", pa.list_(pa.list_(pa.struct([])))), ("c", pa.null())])),
        ]
    )
    schema = row_schema(table_schema(sample))
    for name in ("a", "empty", "list"):
        assert (schema.field(name).type, schema.field(name).metadata) == (
            pa.string(),
            {Note.KIND: b"json"},
        )
    deep = schema.field("deep").type
    assert deep.field("b").metadata == {Note.KIND: b"json"}
    assert deep.field("c").metadata is None


def test_the_checkpoint_is_what_was_put_in() -> None:
    stored = StoredCheckpoint(
        flow="default/a",
        branch="iceberg:t",
        epoch=3,
        run="r",
        host="h",
        pid=7,
        positions={"p": 5, "part": "done"},
        totals=Totals(1, 2, 3),
        intent=(PartSlice("a", None, "z", "0-9"), PartSlice("b", "y", "z")),
    ).stamp("c1")
    assert parse(stored.text()) == stored
    assert parse(None) is None
    assert parse(stored.text()[:-1] + ',"later":1}') == stored


def test_property_keys_tell_flows_and_branches_apart() -> None:
    targets = [Target(f, b, "", "") for f in ("n/a-b", "n/a_b") for b in ("x", "y")]
    keys = {property_key(target) for target in targets}
    assert len(keys) == 4
    assert all(key.startswith("dataflow.checkpoint.n-a-b.") for key in keys)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": "select 1"}, "accepts a query and reads the whole table all the same"),
        ({"startSnapshotID": "12"}, "is used only with incrementalBySnapshot: true"),
        ({"startSnapshotID": "-1", "incrementalBySnapshot": True}, "digits of a snapshot id"),
        ({"startSnapshotID": str(2**63), "incrementalBySnapshot": True}, "digits of a snapshot id"),
        ({"pollInterval": 0}, "greater than or equal to 1"),
        ({"maxRowsPerPoll": -1}, "greater than or equal to 0"),
        ({"onSourceRewrite": "skip"}, "'fail', 'rescan' or 'ignore'"),
    ],
)
def test_a_source_has_no_query(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        IcebergSource.model_validate(LEAST | changes)


def test_a_snapshot_id_is_text_however_it_is_written() -> None:
    given = {"incrementalBySnapshot": True, "startSnapshotID": 2**63 - 1}
    assert IcebergSource.model_validate(LEAST | given).start_snapshot_id == str(2**63 - 1)
    assert IcebergSource.model_validate(LEAST).traits.rereads == ""
    assert IcebergSource.model_validate(LEAST | {"pollInterval": 3}).traits.poll_seconds == 3


def test_tasks_find_the_store_that_the_driver_s_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_S3_ENDPOINT", "http://store:9000")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    sent = pickle.dumps(IcebergSource.model_validate(LEAST))
    monkeypatch.setenv("AWS_S3_ENDPOINT", "http://elsewhere")
    monkeypatch.delenv("AWS_REGION")
    found = pickle.loads(sent).catalog_properties()  # noqa: S301 - our own
    assert (found["s3.endpoint"], found["s3.region"]) == ("http://store:9000", "eu-central-1")
