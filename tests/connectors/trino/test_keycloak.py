"""Tokens of Keycloak for Trino: each grant, renewal, and each way in which they are refused."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.trino import TrinoSink, TrinoSource, client
from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.manifests.load import load
from dataflow_assets.sdk.server_failure import translate_errors
from dataflow_assets.spec import hints
from dataflow_assets.testing import choose
from tests.connectors.trino.driver import execute
from tests.flows import manifest
from tests.matrix.test_matrix import run

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

Config = dict[str, Any]


@pytest.fixture
def config(trino: devservers.Trino) -> Config:
    ca = trino.authority.ca.read_text()
    where = {"serverURL": trino.secure_uri, "catalog": "memory", "schema": "information_schema"}
    return {**where, "table": "t", "ca": ca}


@pytest.fixture
def realm(keycloak: devservers.Keycloak) -> Config:
    return {"serverURL": keycloak.uri, "realm": keycloak.realm, "clientID": keycloak.client}


def user(config: Config) -> str:
    """Who Trino takes the flow for."""
    sink = TrinoSink.model_validate(config)
    with translate_errors("asking"), closing(TrinoClient(sink, "tests")) as asking:
        return str(asking.value("SELECT current_user"))


def refused(config: Config) -> str:
    with pytest.raises(PermanentError) as caught:
        user(config)
    assert "\n" not in str(caught.value)
    for secret in ("flows-s3cret", "ada-s3cret", "eyJ"):
        assert secret not in str(caught.value)
    return str(caught.value)


def ask_for(seconds: float, asking: TrinoClient) -> None:
    """Again and again."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert asking.value("SELECT current_user") == "service-account-brief"
        time.sleep(0.5)


def token(keycloak: devservers.Keycloak, name: str) -> str:
    form = {"grant_type": "client_credentials", "client_id": name}
    form["client_secret"] = keycloak.secret
    return str(requests.post(keycloak.token_endpoint, form, timeout=30).json()["access_token"])


def test_each_grant(config: Config, realm: Config, keycloak: devservers.Keycloak) -> None:
    secret = {"clientSecret": keycloak.secret}
    assert user(config | {"keycloak": realm | secret}) == "service-account-flows"
    person = {"username": keycloak.user, "password": keycloak.password}
    assert user(config | {"keycloak": realm | secret | person}) == keycloak.user
    given = {"token": token(keycloak, keycloak.client)}
    assert user(config | {"keycloak": given}) == "service-account-flows"


def test_tokens_are_renewed_before_they_expire(
    config: Config, realm: Config, keycloak: devservers.Keycloak
) -> None:
    """They live for eight seconds, and one connection asks for longer than that."""
    grant = realm | {"clientID": keycloak.brief, "clientSecret": keycloak.secret}
    sink = TrinoSink.model_validate(config | {"keycloak": grant})
    given = config | {"keycloak": {"token": token(keycloak, keycloak.brief)}}
    with closing(TrinoClient(sink, "tests")) as asking:
        ask_for(12, asking)
    assert "Trino refuses the token: check that it has not expired" in refused(given)


@pytest.mark.full
def test_driver_and_tasks_of_a_flow_renew_their_tokens(
    config: Config,
    realm: Config,
    keycloak: devservers.Keycloak,
    trino: devservers.Trino,
    trino_schema: str,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """Spark's processes are those of the first run: what they have fetched then has expired."""
    grant = realm | {"clientID": keycloak.brief, "clientSecret": keycloak.secret}
    lake = config | {"catalog": "lake", "schema": trino_schema, "keycloak": grant}
    for table in ("source", "target"):
        execute(trino, f"CREATE TABLE lake.{trino_schema}.{table} (id bigint, name varchar)")
    read, written = lake | {"table": "source", "pollInterval": 0}, lake | {"table": "target"}
    flow = choose(load(manifest(tmp_path, ("trino", read), ("trino", written))), None)
    for number in range(2):
        execute(trino, f"INSERT INTO lake.{trino_schema}.source VALUES ({number}, 'n')")
        assert run(flow, spark) == 1
        time.sleep(9)  # a token lives for eight
    found = execute(trino, f"SELECT id FROM lake.{trino_schema}.target ORDER BY id")
    assert found == [[0], [1]]


def test_a_token_for_others(config: Config, keycloak: devservers.Keycloak) -> None:
    given = {"token": token(keycloak, keycloak.stranger)}
    assert "is for Trino's audience" in refused(config | {"keycloak": given})


def test_credentials_that_keycloak_refuses(
    config: Config, realm: Config, keycloak: devservers.Keycloak
) -> None:
    found = refused(config | {"keycloak": realm | {"clientSecret": "flows-s3cret-not"}})
    assert f"no token for client flows from {keycloak.token_endpoint}" in found
    assert "check the client's id and secret" in found
    person = {"username": keycloak.user, "password": "ada-s3cret-not"}
    secret = {"clientSecret": keycloak.secret}
    found = refused(config | {"keycloak": realm | secret | person})
    assert f"no token for user ada from {keycloak.token_endpoint}: invalid_grant" in found


def test_a_client_that_is_disabled_while_a_flow_runs(
    config: Config, realm: Config, keycloak: devservers.Keycloak
) -> None:
    """What it has still works until it is renewed; then a person must act."""
    grant = realm | {"clientID": keycloak.brief, "clientSecret": keycloak.secret}
    sink = TrinoSink.model_validate(config | {"keycloak": grant, "user": "service-account-brief"})
    with closing(TrinoClient(sink, "tests")) as asking:
        asking.value("SELECT 1")
        keycloak.enable(keycloak.brief, on=False)
        try:
            with pytest.raises(PermanentError, match="no token for client brief from"):
                ask_for(10, asking)
        finally:
            keycloak.enable(keycloak.brief, on=True)


def test_keycloak_is_away(config: Config, realm: Config) -> None:
    grant = realm | {"serverURL": "http://127.0.0.1:1", "clientSecret": "away"}
    with pytest.raises(
        TransientError, match=r"no token for client flows from http://127\.0\.0\.1:1/"
    ):
        user(config | {"keycloak": grant})


def test_a_token_in_clear_is_warned_about(
    config: Config, trino: devservers.Trino, caplog: pytest.LogCaptureFixture
) -> None:
    plain = config | {"serverURL": trino.uri, "keycloak": {"token": "t"}}
    said = dict(hints(TrinoSource.model_validate(plain)))
    assert said["serverURL"].startswith("the token is sent without encryption")
    client._warn.cache_clear()
    with caplog.at_level(logging.WARNING):
        user(plain)
    assert "the token is sent without encryption" in caplog.text


def test_a_keycloak_that_is_asked_in_clear_is_warned_about(
    config: Config, realm: Config, keycloak: devservers.Keycloak, caplog: pytest.LogCaptureFixture
) -> None:
    """Its address may come from a Secret: then only the run knows."""
    given = config | {"keycloak": realm | {"clientSecret": keycloak.secret}}
    said = dict(hints(TrinoSource.model_validate(given)))
    assert said["keycloak.serverURL"].startswith("passwords and tokens are sent to Keycloak")
    client._warn.cache_clear()
    with caplog.at_level(logging.WARNING):
        user(given)
    assert "passwords and tokens are sent to Keycloak without encryption" in caplog.text
    assert "the token is sent without encryption" not in caplog.text
