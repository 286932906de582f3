"""What can be declared, and what is refused with a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from dataflow_assets.connectors.kafka_connect import KafkaConnectSource
from dataflow_assets.connectors.kafka_connect.host.plugins import jars_of
from dataflow_assets.errors import PermanentError
from dataflow_assets.spec import hints
from tests.connectors.kafka_connect.driver import Config, plugins

CLASS = "org.apache.kafka.connect.file.FileStreamSourceConnector"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    return {"class": CLASS, "plugins": [str(tmp_path / "p")], "spool": str(tmp_path / "s")}


def test_a_configuration_is_text(config: Config) -> None:
    given = {"file": "/x", "batch.size": 10, "ok": True, "ratio": 0.5}
    source = KafkaConnectSource.model_validate({**config, "config": given})
    wanted = {"file": "/x", "batch.size": "10", "ok": "true", "ratio": "0.5", "name": "s"}
    assert source.properties == wanted


def test_credentials_win_and_are_shown_nowhere(config: Config) -> None:
    secret = json.dumps({"database.password": "planted", "user": "me"})
    given = {"config": {"user": "you", "api.token": "t0ken"}, "credentials": SecretStr(secret)}
    source = KafkaConnectSource.model_validate({**config, **given})
    assert source.properties["user"] == "me"
    assert source.properties["database.password"] == "planted"
    assert source.hidden == {"planted", "me", "t0ken"}
    assert "planted" not in repr(source)
    assert dict(hints(source)) == {"config": "api.token: put secrets into credentialsSecretRef"}


@pytest.mark.parametrize("secret", ["planted", "[]", '{"a": 1}'])
def test_credentials_that_are_no_object_of_texts(secret: str, config: Config) -> None:
    source = KafkaConnectSource.model_validate({**config, "credentials": secret})
    with pytest.raises(PermanentError, match="must hold a JSON object of texts") as caught:
        _ = source.properties
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("connector.class", "X", "set class"),
        ("tasks.max", "3", "set tasksMax"),
        ("config.providers", "env", "config providers do not work yet"),
        ("password", "${env:X}", "config providers do not work yet"),
        ("value.converter", "X", "values become JSON"),
        ("key.converter.schemas.enable", "false", "keys become JSON"),
        ("errors.tolerance", "all", "rejected records are a matter of the flow"),
        ("topic.creation.default.partitions", "1", "there is no topic"),
        ("exactly.once.support", "required", "offsets are stored with the rows"),
    ],
)
def test_what_does_not_work_is_refused(key: str, value: str, reason: str, config: Config) -> None:
    with pytest.raises(ValidationError, match=reason):
        KafkaConnectSource.model_validate({**config, "config": {key: value}})
    hidden = KafkaConnectSource.model_validate({**config, "credentials": json.dumps({key: value})})
    with pytest.raises(PermanentError, match=reason):
        _ = hidden.properties


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"spool": "spool"}, "must be an absolute path"),
        ({"spool": "/etc/spool"}, "is not below the folder DATAFLOW_FILES"),
        ({"plugins": ["/opt/plugins"]}, "is not below the folder DATAFLOW_FILES"),
        ({"plugins": []}, "at least 1 item"),
        ({"class": "no class"}, "should match pattern"),
        ({"heap": "1"}, "should match pattern"),
        ({"tasksMax": 0}, "greater than or equal to 1"),
    ],
)
def test_what_cannot_be(change: dict[str, Any], reason: str, config: Config) -> None:
    with pytest.raises(ValidationError, match=reason):
        KafkaConnectSource.model_validate(config | change)


def test_a_plugin_is_found_by_its_class(tmp_path: Path) -> None:
    folder = plugins(tmp_path)
    for name in (CLASS, "FileStreamSourceConnector"):
        found, jars = jars_of(name, [folder])
        assert found == CLASS
        assert {jar.parent.name for jar in jars} == {"kafka"}
    with pytest.raises(
        PermanentError, match=r"no jar in plugins .+ has the class NoConnector: put"
    ):
        jars_of("NoConnector", [folder])
    with pytest.raises(PermanentError, match="the folder /nowhere of plugins does not exist"):
        jars_of(CLASS, ["/nowhere"])
