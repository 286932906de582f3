"""Who Nessie lets in: tokens of Keycloak, as they are or fetched by the client's credentials."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

import devservers
from dataflow_assets.connectors.iceberg import NessieSink
from dataflow_assets.errors import PermanentError
from devservers.nessie import missing
from tests.connectors.iceberg.driver import expected, opened, pump
from tests.connectors.iceberg.source_driver import ids, read
from tests.connectors.nessie.driver import connection, make_source

pytestmark = [pytest.mark.full]


@pytest.fixture(scope="module")
def keycloak(tmp_path_factory: pytest.TempPathFactory) -> Iterator[devservers.Keycloak]:
    folder = tmp_path_factory.mktemp("keycloak")
    key = folder / "tokens.key"
    from devservers.programs import run

    run(["openssl", "genpkey", "-algorithm", "RSA", "-out", str(key)], "openssl genpkey")
    with devservers.Keycloak(folder / "server", key=key) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(
    keycloak: devservers.Keycloak,
    seaweedfs: devservers.SeaweedFS,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[devservers.Nessie]:
    """A server that asks for tokens of the realm."""
    if reason := missing():
        pytest.skip(reason)
    issuer = f"{keycloak.uri}/realms/{keycloak.realm}"
    folder: Path = tmp_path_factory.mktemp("nessie")
    with devservers.Nessie(folder, store=seaweedfs, issuer=issuer) as server:
        # With the first token it fetches the keys of the realm, which takes seconds.
        headers = {"Authorization": f"Bearer {_token(keycloak, keycloak.client)}"}
        requests.get(f"{server.uri}/api/v2/config", headers=headers, timeout=60).raise_for_status()
        yield server


def _sink(guarded: devservers.Nessie, **changes: Any) -> NessieSink:
    config = connection(guarded, "secured", "orders") | {"autoCreateTable": True}
    return NessieSink.model_validate(config | changes)


def _credentials(keycloak: devservers.Keycloak, client: str) -> dict[str, str]:
    return {
        "oauth2ClientID": client,
        "oauth2ClientSecret": keycloak.secret,
        "oauth2ServerURI": keycloak.token_endpoint,
    }


def _token(keycloak: devservers.Keycloak, client: str) -> str:
    form = {"grant_type": "client_credentials", "client_id": client}
    form["client_secret"] = keycloak.secret
    answer = requests.post(keycloak.token_endpoint, data=form, timeout=10)
    return str(answer.json()["access_token"])


def test_rows_are_written_and_read_with_client_credentials(
    guarded: devservers.Nessie, keycloak: devservers.Keycloak
) -> None:
    """Tokens of this client live for three seconds: they are fetched again in the middle."""
    with_token = _credentials(keycloak, keycloak.brief)
    sink = _sink(guarded, table="brief", **with_token)
    session = opened(sink)
    for first in (0, 5):
        pump(sink, session, first, 5)
        time.sleep(4)
    pump(sink, session, 10, 5)
    source = make_source(guarded, "secured", table="brief", **with_token)
    found, after = read(source)
    assert sorted(ids(found)) == expected(15)
    pump(sink, session, 15, 5)
    time.sleep(4)
    assert len(read(source, after)[0]) == 10


def test_a_bearer_token_is_sent_as_it_is(
    guarded: devservers.Nessie, keycloak: devservers.Keycloak
) -> None:
    sink = _sink(guarded, table="bearer", bearerToken=_token(keycloak, keycloak.client))
    pump(sink, opened(sink), 0, 5)


@pytest.mark.parametrize("kind", ["none", "tampered", "wrong audience", "wrong secret", "basic"])
def test_who_is_refused_reads_one_sentence(
    kind: str, guarded: devservers.Nessie, keycloak: devservers.Keycloak
) -> None:
    token = _token(keycloak, keycloak.client)
    changes: dict[str, dict[str, Any]] = {
        "none": {},
        "tampered": {"bearerToken": f"{token[:-8]}AAAAAAAA"},
        "wrong audience": {"bearerToken": _token(keycloak, keycloak.stranger)},
        "wrong secret": _credentials(keycloak, keycloak.client)
        | {"oauth2ClientSecret": "planted-s3cret"},
        "basic": {"basicAuth": {"username": "ada", "password": "planted-s3cret"}},
    }
    sink = _sink(guarded, **changes[kind])
    with pytest.raises(PermanentError, match="check the credentials and what they may do") as found:
        opened(sink)
    assert "planted" not in str(found.value)
    assert token[:40] not in str(found.value)
