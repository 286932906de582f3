"""Who asks a catalog, and how: tokens, clients, users; what of it is wrong, and that none leaks."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from pydantic import SecretStr
from pyiceberg.catalog import Catalog

import devservers
from dataflow_assets.connectors.iceberg import IcebergSink, IcebergSource
from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from dataflow_assets.secrets import Secrets, resolve
from dataflow_assets.secrets.tls import IN_CLEAR
from dataflow_assets.spec import hints
from tests.connectors.iceberg.catalog_front import CatalogFront
from tests.connectors.iceberg.driver import connection, expected, ids, opened, pump
from tests.connectors.iceberg.source_driver import ids as found_ids
from tests.connectors.iceberg.source_driver import read

NAMED = {"namespace": "shop", "table": "orders"}
TOKEN = "planted-t0ken"
CLIENT = {"oauth2ClientID": "me", "oauth2ClientSecret": "planted-s3cret"}


def by_secrets(uri: str, values: dict[str, str], **changes: Any) -> IcebergSink:
    """Each option with its value in a Secret, under a key of the option's name."""
    refs = {f"{name}SecretRef": {"name": "lake", "key": name} for name in values}
    place = {} if "catalogURI" in values else {"catalogURI": uri}
    declared = IcebergSink.model_validate(NAMED | place | refs | changes)
    held = {name: SecretStr(value) for name, value in values.items()}
    return resolve(declared, Secrets("default", {("default", "lake"): held}))


def raised(sink: IcebergSink) -> DataflowError:
    with pytest.raises(DataflowError) as caught:
        connect(sink)
    assert "planted" not in str(caught.value)
    return caught.value


def test_a_line_break_behind_a_token_is_no_part_of_it(seaweedfs: devservers.SeaweedFS) -> None:
    with CatalogFront(seaweedfs).running() as front:
        connect(by_secrets(front.uri, {"token": f"{TOKEN}\n"}))  # whoever asks gets an answer
        assert set(front.heard) == {TOKEN}


@pytest.mark.parametrize("text", [f"{TOKEN}\nother", f"{TOKEN} x", f"ü{TOKEN}"])
def test_a_token_that_cannot_be_sent_is_not_shown(text: str) -> None:
    """HTTP's own client shows the header that it refuses."""
    found = raised(by_secrets("http://127.0.0.1:9", {"token": text}))
    assert isinstance(found, PermanentError)
    assert str(found).startswith("bearerToken: a token is one word of ASCII characters")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"token": "\n"}, "bearerToken: the token, or its Secret, is empty"),
        ({"oauth2ClientID": "", "oauth2ClientSecret": "s"}, "oauth2ClientID: its Secret is empty"),
        ({"oauth2ClientID": "i", "oauth2ClientSecret": ""}, "oauth2ClientSecret: its Secret is"),
        ({"accessKey": "", "secretAccessKey": "s"}, "accessKey: its Secret is empty"),
        ({"accessKey": "k", "secretAccessKey": ""}, "secretAccessKey: its Secret is empty"),
    ],
)
def test_a_secret_that_is_empty_does_not_make_one_nobody(
    values: dict[str, str], named: str
) -> None:
    """The catalog may let strangers read, and the store may know this machine by another name."""
    found = raised(by_secrets("http://127.0.0.1:9", values))
    assert isinstance(found, PermanentError)
    assert str(found).startswith(named)


def test_a_client_with_a_colon_would_be_split_in_the_wrong_place() -> None:
    config = {"oauth2ClientID": "urn:me", "oauth2ClientSecret": "planted"}
    found = raised(IcebergSink.model_validate(NAMED | {"catalogURI": "http://h:1"} | config))
    assert str(found).startswith("oauth2ClientID: an id with a colon in it is not supported")


@pytest.mark.parametrize(
    ("config", "noted"),
    [
        ({"bearerToken": "t"}, {"catalogURI": IN_CLEAR}),
        (CLIENT | {"catalogURI": "https://c"}, {}),
        (
            CLIENT | {"catalogURI": "HTTPS://c", "oauth2ServerURI": "HTTP://idp/token"},
            {"oauth2ServerURI": IN_CLEAR},
        ),
        (
            {"basicAuth": {"username": "u"}},
            {"basicAuth": "not sent: username and password belong together"},
        ),
        ({"basicAuth": {"username": "u", "password": "p"}}, {"catalogURI": IN_CLEAR}),
        (
            {"bearerToken": "t", "authenticationType": "NONE"},
            {"bearerToken": "is not sent: authenticationType is NONE"},
        ),
        ({}, {}),
    ],
)
def test_what_goes_over_the_network_as_it_is_is_noted(
    config: dict[str, Any], noted: dict[str, str]
) -> None:
    declared = IcebergSink.model_validate(NAMED | {"catalogURI": "http://catalog"} | config)
    assert dict(hints(declared)) == noted


def test_an_address_that_a_secret_has_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    sink = by_secrets("https://c", {"catalogURI": "http://noted.example", "token": TOKEN})
    with caplog.at_level(logging.WARNING, "dataflow_assets.secrets.tls"):
        sink.catalog_properties()
        sink.catalog_properties()
    assert [one.getMessage() for one in caplog.records] == [f"catalog noted-example: {IN_CLEAR}"]


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (
            (404, b'{"error":"Realm does not exist"}'),
            PermanentError,
            "no token from {uri}/realm: HTTP status 404; check oauth2ServerURI",
        ),
        ((503, b"overloaded"), TransientError, "no token from {uri}/realm: HTTP status 503"),
        ((429, b""), TransientError, "no token from {uri}/realm: HTTP status 429"),
        (
            (200, b"<html>log in, please</html>"),
            PermanentError,
            "the answer of {uri}/realm is not a token; check oauth2ServerURI",
        ),
        (
            (200, json.dumps({"access_token": TOKEN}).encode()),
            PermanentError,
            "the answer of {uri}/realm is not a token; check oauth2ServerURI",
        ),
        (
            (401, b'{"error":"invalid_client","error_description":"who?"}'),
            PermanentError,
            "OAuthError: invalid_client: who?; check the credentials and what they may do",
        ),
    ],
)
def test_a_token_server_that_gives_none_is_named(
    answer: tuple[int, bytes], kind: type, said: str, seaweedfs: devservers.SeaweedFS
) -> None:
    path = "/realm/v1/oauth/tokens"
    with CatalogFront(seaweedfs, tokens_answer=answer).running() as front:
        config = CLIENT | {"catalogURI": front.uri, "oauth2ServerURI": front.uri + path}
        found = raised(IcebergSink.model_validate(NAMED | config))
        expected_text = said.format(uri=front.uri).replace("/realm", path)
        assert isinstance(found, kind)
        assert str(found).endswith(expected_text)


def test_a_page_instead_of_a_catalog(seaweedfs: devservers.SeaweedFS) -> None:
    with CatalogFront(seaweedfs, page=b"<html>log in, please</html>").running() as front:
        found = raised(IcebergSink.model_validate(NAMED | {"catalogURI": front.uri}))
        assert isinstance(found, PermanentError)
        assert "the answer may be of another server; check catalogURI, warehouse" in str(found)


def test_tokens_of_the_catalog_with_a_scope_and_a_prefix(
    seaweedfs: devservers.SeaweedFS, catalog: Catalog, namespace: str
) -> None:
    """Each token is good for a few requests: others are fetched in the middle."""
    form = {"grant_type": "client_credentials", "client_id": "me", "client_secret": "s"}
    front = CatalogFront(seaweedfs, credentials=form | {"scope": "lake"}, lasts=4, prefix="own")
    with front.running():
        config = connection(seaweedfs, namespace, "orders") | {
            "catalogURI": front.uri,
            "oauth2ClientID": "me",
            "oauth2ClientSecret": "s",
            "oauth2Scope": "lake",
            "prefix": "own",
        }
        sink = IcebergSink.model_validate({**config, "autoCreateTable": True})
        session = opened(sink)
        for first in (0, 10, 20):
            pump(sink, session, first, 10)
        assert ids(catalog, namespace) == expected(30)
        found, _ = read(IcebergSource.model_validate(config))
        assert sorted(found_ids(found)) == expected(30)
        assert front.given > 3
        foreign = IcebergSource.model_validate(config | {"oauth2Scope": "catalog"})
        with pytest.raises(PermanentError, match="invalid_scope; check the credentials"):
            connect(foreign)
        elsewhere = IcebergSource.model_validate(config | {"prefix": "other"})
        with pytest.raises(
            PermanentError, match="check catalogURI, warehouse, namespace and prefix"
        ):
            read(elsewhere)
