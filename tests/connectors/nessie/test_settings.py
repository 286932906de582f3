"""The declaration of Nessie's ends: keys, rules between them, addresses. No server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType

from dataflow_assets.connectors.iceberg import NessieSink, NessieSource
from dataflow_assets.connectors.iceberg.client import connect, with_last_column
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch
from dataflow_assets.manifests.load import load
from dataflow_assets.secrets import Secrets, resolve

LEAST = {"baseURL": "https://nessie:19120/", "namespace": "shop", "table": "orders"}
OAUTH = {"oauth2ClientID": "me", "oauth2ClientSecret": "s", "oauth2ServerURI": "https://idp/token"}
TOKENS = "oauth2-server-uri"
REF = {"name": "lake", "key": "value"}
FLOW = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: a}}
spec:
  source: {{type: memory-offsets, config: {{store: s, topic: t}}}}
  sink: {{type: nessie, config: {{baseURL: "http://n:1", namespace: shop, table: orders{more}}}}}
"""


def sink(**changes: Any) -> NessieSink:
    return NessieSink.model_validate(LEAST | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"baseURL": ""}, "baseURL is required: set baseURL or baseURLSecretRef"),
        ({"baseURL": "nessie:19120"}, "scheme and a host, like https://nessie:19120"),
        ({"namespace": ""}, "namespace is required"),
        ({"table": ""}, "table is required"),
        ({"table": "orders@dev"}, "must not have `@`: Nessie would take what follows for a branch"),
        ({"table": "orders#2026"}, "must not have `#`"),
        ({"branch": ""}, "must be the name of a branch or tag"),
        ({"branch": "main@abc"}, "must be the name of a branch or tag"),
        ({"branch": "../x"}, "must be the name of a branch or tag"),
        ({"authenticationType": "bearer"}, "needs bearerToken"),
        ({"authenticationType": "BASIC"}, "needs basicAuth"),
        ({"authenticationType": "oauth2"}, "OAUTH2 needs oauth2ClientID"),
        ({"oauth2ClientID": "me", "oauth2ClientSecret": "s"}, "needs oauth2ServerURI: Nessie has"),
        ({"bearerToken": "t", **OAUTH}, "exclude each other"),
        ({"accessKey": "k"}, "belong together"),
        ({"catalogURI": "http://x"}, "Extra inputs"),
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
        (OAUTH, {"credential": "me:s", "scope": "profile"}),
        ({**OAUTH, "authenticationType": "OAuth2"}, {"credential": "me:s", "scope": "profile"}),
        (
            {"basicAuth": {"username": "u", "password": "p"}},
            {"auth": {"type": "basic", "basic": {"username": "u", "password": "p"}}},
        ),
    ],
)
def test_authentication(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    found = sink(**changes).catalog_properties()
    names = {"token", "credential", "auth", *expected}
    assert {name: found[name] for name in names if name in found} == expected


@pytest.mark.parametrize(
    ("changes", "uri"),
    [
        ({}, "https://nessie:19120/iceberg/main"),
        ({"branch": "dev/a"}, "https://nessie:19120/iceberg/dev%2Fa"),
        ({"warehouse": "raw"}, "https://nessie:19120/iceberg/main%7Craw"),
    ],
)
def test_the_catalog_of_a_branch(changes: dict[str, Any], uri: str) -> None:
    assert sink(**changes).catalog_properties()["uri"] == uri


@pytest.mark.parametrize("option", ["baseURL", "oauth2ServerURI"])
def test_a_secret_that_holds_no_address_ends_the_run_and_is_named(option: str) -> None:
    """As if no server ran there, it would be tried again for hours."""
    given = {key: value for key, value in (LEAST | OAUTH).items() if key != option}
    declared = NessieSink.model_validate(given | {f"{option}SecretRef": REF})

    def resolved(address: str) -> NessieSink:
        values = {"value": SecretStr(address)}
        return resolve(declared, Secrets("default", {("default", "lake"): values}))

    with pytest.raises(PermanentError, match=f"^the secret of {option}SecretRef: the address must"):
        connect(resolved("nessie:19120\n"))
    found = resolved("https://nessie:19120/x\n").catalog_properties()
    assert "https://nessie:19120/x" in (found["uri"][: -len("/iceberg/main")], found[TOKENS])


def test_a_table_on_another_branch_is_another_table() -> None:
    parts = ("nessie", "nessie-19120-raw", "shop")
    assert sink(warehouse="raw").address().parts == (*parts, "orders")
    assert sink(warehouse="raw", branch="dev").address().parts == (*parts, "orders@dev")
    assert Branch(sink()).id != Branch(sink(branch="dev")).id
    by_ref = NessieSource.model_validate(
        {"baseURLSecretRef": REF, "namespace": "shop", "tableSecretRef": REF, "branch": "dev"}
    )
    assert by_ref.address().parts == ("nessie", "lake", "shop", f"lake/{REF['key']}@dev")


def test_a_name_that_a_secret_has_leads_to_no_other_branch() -> None:
    """Nessie would take `orders@prod` for a table of another branch, and write there."""
    declared = NessieSink.model_validate(
        {"baseURL": "http://nessie:1", "namespace": "shop", "tableSecretRef": REF, "branch": "dev"}
    )
    values = {"value": SecretStr("orders@prod")}
    found = resolve(declared, Secrets("default", {("default", "lake"): values}))
    with pytest.raises(
        PermanentError, match="the secret of tableSecretRef: the name must not have"
    ):
        assert found.identifier


def test_frames_are_of_a_table_and_its_branch() -> None:
    for name, branch in (("orders", "main"), ("orders@dev", "dev")):
        frames = sink(branch="other").frames("shop", name)
        declared = frames.read.args[0]  # type: ignore[attr-defined]
        assert (declared.identifier, declared.branch) == (("shop", "orders"), branch)


def test_a_manifest(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(FLOW.format(more=", branch: 7up"))
    (finding,) = load(tmp_path).findings
    assert finding.path == "spec.sink.config.branch"
    (tmp_path / "a.yaml").write_text(FLOW.format(more=""))
    (flow,) = load(tmp_path).flows
    assert str(flow.branches[0].address) == "nessie/n-1/shop/orders"


def test_a_schema_that_is_added_says_how_far_the_ids_of_its_columns_go() -> None:
    """Nessie requires it, and PyIceberg leaves it out; what is no schema stays as it is."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "tags", ListType(5, StringType(), element_required=False)),
    )
    updates: list[dict[str, Any]] = [
        {"action": "add-schema", "schema": schema.model_dump(mode="json", by_alias=True)},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    sent = json.loads(with_last_column(json.dumps({"updates": updates}).encode()))
    assert sent == {"updates": [{**updates[0], "last-column-id": 5}, updates[1]]}
