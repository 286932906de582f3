"""A schema registry as manifests declare it: who asks, and what a Secret must hold. No server."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.registry_client import RegistryClient
from dataflow_assets.formats.schema_registry import SchemaRegistry
from dataflow_assets.secrets import Secrets, resolve
from dataflow_assets.secrets.tls import IN_CLEAR
from dataflow_assets.spec import hints

URL = "http://127.0.0.1:9"


def secrets(value: str) -> Secrets:
    return Secrets("default", {("default", "r"): {"value": SecretStr(value)}})


@pytest.mark.parametrize("token", ["planted\ntwice", "planted twice", "plantéd", "\0planted"])
def test_a_token_that_cannot_be_sent_is_not_shown(token: str) -> None:
    """HTTP's own client shows the header that it refuses."""
    registry = SchemaRegistry(url=URL, bearer_token=SecretStr(token))
    with pytest.raises(PermanentError, match="bearerToken: a token is one word of ASCII") as caught:
        registry.client()
    assert "plant" not in str(caught.value)


def test_a_secret_with_a_token_may_end_with_a_line_break_and_not_be_empty() -> None:
    ref = {"name": "r", "key": "value"}
    declared = SchemaRegistry.model_validate({"url": URL, "bearerTokenSecretRef": ref})

    def client(value: str) -> RegistryClient:
        return resolve(declared, secrets(value)).client()

    assert client("abc\n").token == "abc"
    with pytest.raises(PermanentError, match="bearerToken: the token, or its Secret, is empty"):
        client("\n")


def test_credentials_that_go_over_the_network_as_they_are_are_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    declared = SchemaRegistry(url="HTTP://noted.example:81", bearer_token=SecretStr("abc"))
    assert dict(hints(declared)) == {"url": IN_CLEAR}
    declared.client()
    SchemaRegistry(url="HTTP://noted.example:81").client()
    said = [one.getMessage() for one in caplog.records]
    assert said == [f"schema registry HTTP://noted.example:81: {IN_CLEAR}"]


def test_an_empty_secret_is_not_a_schema() -> None:
    """Else each message would be rejected for lack of one."""
    ref = {"name": "r", "key": "value"}
    config = {"brokers": ["b:1"], "topic": "t", "format": "avro", "avroSchemaSecretRef": ref}
    found = resolve(KafkaSource.model_validate(config), secrets(" \n"))
    with pytest.raises(PermanentError, match=r"^avroSchemaSecretRef: the Secret is empty"):
        found.message_format()


@pytest.mark.parametrize("name", ["username", "password"])
def test_an_empty_secret_does_not_make_one_nobody(name: str) -> None:
    ref = {f"{name}SecretRef": {"name": "r", "key": "value"}}
    auth: dict[str, object] = {
        key: text for key, text in (("username", "ada"), ("password", "p")) if key != name
    }
    auth |= ref
    declared = SchemaRegistry.model_validate({"url": URL, "basicAuth": auth})
    with pytest.raises(PermanentError, match=f"schemaRegistry.basicAuth.{name}: its Secret is"):
        resolve(declared, secrets("")).client()
    found = resolve(declared, secrets("x")).client()
    assert (found.username, found.password) == (("x", "p") if name == "username" else ("ada", "x"))
