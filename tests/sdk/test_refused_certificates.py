"""A certificate that is not accepted stays so: the run ends with one sentence, without retries."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from dataflow_assets.connectors.iceberg import NessieSource
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.keycloak import Keycloak
from dataflow_assets.errors import DataflowError, PermanentError
from dataflow_assets.sdk.oauth import Grant, tokens
from dataflow_assets.sdk.server_failure import translate_errors
from devservers.certificates import Authority, Certificate


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("own"), "own")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> str:
    return Authority(tmp_path_factory.mktemp("foreign"), "foreign").ca.read_text()


@contextmanager
def served(certificate: Certificate) -> Iterator[str]:
    """An address over https; nobody gets as far as asking for anything there."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert, certificate.key)
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(10)


def asked(address: str, ca: str | None) -> None:
    where = {"serverURL": address, "catalog": "c", "schema": "s", "table": "t"}
    sink = TrinoSink.model_validate(where | ({"ca": ca} if ca else {}))
    with translate_errors("opening t"), closing(TrinoClient(sink, "tests")) as client:
        client.run("SELECT 1")


def fetched(address: str, ca: str | None) -> None:
    tokens(Grant(f"{address}/token", "client", "secret", ca=ca)).current()


@pytest.mark.parametrize("ask", [asked, fetched])
def test_a_certificate_of_another_ca(ask: object, authority: Authority, foreign: str) -> None:
    assert callable(ask)
    with served(authority.issue("server")) as address:
        with pytest.raises(PermanentError, match=r"another CA than that of .* has signed its"):
            ask(address, foreign)
        with pytest.raises(PermanentError, match=r"no CA that this machine trusts has signed"):
            ask(address, None)


@pytest.mark.parametrize("ask", [asked, fetched])
def test_a_certificate_for_another_name(ask: object, authority: Authority) -> None:
    assert callable(ask)
    with (
        served(authority.issue("elsewhere", ["DNS:elsewhere.example"])) as address,
        pytest.raises(PermanentError, match=r"its certificate is not for 127\.0\.0\.1; use a name"),
    ):
        ask(address, authority.ca.read_text())


def test_a_catalog_whose_certificate_nobody_trusts(authority: Authority) -> None:
    with served(authority.issue("server")) as address:
        source = NessieSource.model_validate(
            {"baseURL": address, "namespace": "n", "table": "t", "s3Region": "r"}
        )
        with pytest.raises(PermanentError, match=r"no CA that this machine trusts.*REQUESTS_CA"):
            source.open("default/f")


def test_a_catalog_is_trusted_by_the_bundle_of_the_environment(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.ca))
    with served(authority.issue("server")) as address:
        source = NessieSource.model_validate(
            {"baseURL": address, "namespace": "n", "table": "t", "s3Region": "r"}
        )
        with pytest.raises(DataflowError, match="501"):  # an answer, for it can do nothing else
            source.open("default/f")


def test_a_server_without_tls() -> None:
    """An address with https, of a server that answers to http alone."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"https://127.0.0.1:{server.server_port}"
        with pytest.raises(PermanentError, match="does not speak TLS; use http:// in serverURL"):
            asked(address, None)
        source = NessieSource.model_validate({"baseURL": address, "namespace": "n", "table": "t"})
        with pytest.raises(PermanentError, match="does not speak TLS; use http:// in the address"):
            source.open("default/f")
        server.shutdown()
        thread.join(10)


@pytest.mark.parametrize("address", ["keycloak:8080", "https://", "https://h:port"])
def test_a_token_server_that_is_no_address(address: str) -> None:
    with pytest.raises(PermanentError, match=r"from .*: the answer is not a token; check"):
        fetched(address, None)


def test_a_coordinator_that_is_no_address() -> None:
    """A Secret may have anything; a password in it is not shown."""
    sink = TrinoSink.model_validate(
        {"serverURL": "https://t", "catalog": "c", "schema": "s", "table": "t"}
    )
    for value in ("trino:8443", "https://me:hush@trino:8443", "https://trino:8443/ui?x=hush"):
        with pytest.raises(PermanentError, match=r"serverURLSecretRef: the address must") as caught:
            TrinoClient(sink.model_copy(update={"server_url": value}), "tests")
        assert "hush" not in str(caught.value)


NO_ADDRESSES = ["keycloak:8080\n", "https://key\ncloak", "https://me:hush@k", ""]


@pytest.mark.parametrize("address", NO_ADDRESSES)
def test_a_keycloak_that_is_no_address(address: str) -> None:
    realm = {"serverURL": "https://k", "realm": "r", "clientID": "c", "clientSecret": "s"}
    declared = Keycloak.model_validate(realm)
    said = r"^the secret of keycloak\.serverURLSecretRef: the address must"
    with pytest.raises(PermanentError, match=said) as caught:
        declared.model_copy(update={"server_url": address}).grant(None)
    assert "hush" not in str(caught.value)
    found = declared.model_copy(update={"server_url": " https://k/\n"}).grant(None)
    assert found is not None
    assert found.url.startswith("https://k/realms/r/")


@pytest.mark.parametrize("address", ["https://me:hush@trino:8443", "https://trino:8443/ui"])
def test_an_address_with_more_than_a_host_is_refused(address: str) -> None:
    """A password would be in the asset's key, and nobody would be sent it."""
    with pytest.raises(ValueError, match=r"must (have no user|be scheme, host and port)") as caught:
        TrinoSink.model_validate(
            {"serverURL": address, "catalog": "c", "schema": "s", "table": "t"}
        )
    assert "hush" not in str(caught.value)
