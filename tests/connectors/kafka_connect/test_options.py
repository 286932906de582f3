"""What can be declared, and what is refused with a sentence."""

from __future__ import annotations

import json
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from dataflow_assets.connectors.kafka_connect import KafkaConnectSource
from dataflow_assets.connectors.kafka_connect.host.plugins import jars_of
from dataflow_assets.errors import PermanentError
from dataflow_assets.secrets import Secrets, resolve
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
    assert source.traits.keeps_running, "a lane that ended would be started again at once"


def test_credentials_win_and_are_shown_nowhere(config: Config) -> None:
    secret = json.dumps({"database.password": "planted", "user": "me"})
    given = {"config": {"user": "you", "api.token": "t0ken"}, "credentials": SecretStr(secret)}
    source = KafkaConnectSource.model_validate({**config, **given})
    assert source.properties["user"] == "me"
    assert source.properties["database.password"] == "planted"
    assert source.hidden_values == {"planted", "t0ken"}
    assert source.hidden_keys == {"database.password", "user", "api.token"}
    assert "planted" not in repr(source)
    assert dict(hints(source)) == {"config": "api.token: put secrets into credentialsSecretRef"}


def test_references_to_config_providers_are_kept(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no secrets, and what is no reference of Connect's stays as it is."""
    monkeypatch.setenv("DATAFLOW_SECRETS", "/secrets")
    given = {
        "config.providers": "mine, dirs",
        "config.providers.mine.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.mine.param.allowed.paths": str(tmp_path),
        "config.providers.dirs.class": "DirectoryConfigProvider",
        "url": f"jdbc:x://${{env:HOST}}/${{mine:{tmp_path}/a.properties:name}}",
        "api.token": "${dirs:/secrets/shop/pg:token}",
        "prefix": "${topic}",
    }
    secret = json.dumps({"password": f"${{file:{tmp_path}/a.properties:password}}"})
    source = KafkaConnectSource.model_validate({**config, "config": given, "credentials": secret})
    assert source.properties == {"name": "s", **given, **json.loads(secret)}
    assert source.hidden_values == frozenset()
    assert dict(hints(source)) == {}
    named = sorted(place for _, place in source.places_of_secrets())
    assert named == sorted(
        ["/secrets/shop/pg/token", "HOST", *[str(tmp_path / "a.properties")] * 2]
    )


@pytest.mark.parametrize(
    ("reference", "refused"),
    [
        ("${env:DATAFLOW_SECRET__OTHER__PG__PASSWORD}", True),
        ("jdbc:x://${mine:DATAFLOW_SECRET__OTHER__PG__PASSWORD}/x", True),
        ("${env:DATAFLOW_SECRET__MY_SHOP__PG__PASSWORD}", False),
        ("${env:DATAFLOW_SECRET__TEAM_A__PG__PASSWORD}", False),
        ("${env:DATAFLOW_SECRET_NAMESPACES}", False),
    ],
)
def test_a_variable_of_a_secret_of_another_namespace(
    reference: str, refused: bool, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_SECRET_NAMESPACES", "x, team-a")
    declared = {"config.providers": "mine", "config.providers.mine.class": "EnvVarConfigProvider"}
    secret = json.dumps({**declared, "url": reference})
    source = KafkaConnectSource.model_validate({**config, "credentials": secret})
    sentence = (
        "the variable DATAFLOW_SECRET__OTHER__PG__PASSWORD must not be used: it is in namespace "
        "OTHER, the flow in my-shop"
    )
    with pytest.raises(PermanentError, match=sentence) if refused else nullcontext():
        resolve(source, Secrets("my-shop"))
    monkeypatch.setenv("DATAFLOW_SECRET_NAMESPACES", "*")
    resolve(source, Secrets("my-shop"))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("config.providers.env.param.allowed.paths", "/x", "allowed: class, param.allowlist.patt"),
        ("config.providers.env.parameter", "x", "is not a setting of this provider"),
    ],
)
def test_settings_that_a_config_provider_does_not_have(
    key: str, value: str, reason: str, config: Config
) -> None:
    declared = {"config.providers": "env", "config.providers.env.class": "EnvVarConfigProvider"}
    with pytest.raises(ValidationError, match=reason):
        KafkaConnectSource.model_validate({**config, "config": {**declared, key: value}})


def test_what_lies_between_references_is_hidden(config: Config) -> None:
    secret = json.dumps({"url": "jdbc:x?password=LITERAL&o=${env:HOME}/${env:USER}"})
    source = KafkaConnectSource.model_validate({**config, "credentials": secret})
    assert source.hidden_values == {"jdbc:x?password=LITERAL&o="}


@pytest.mark.parametrize("secret", ["p${planted:x}", "${file:/planted/x:k}", "${env:planted:k}"])
def test_no_part_of_a_credential_is_in_an_error(secret: str, config: Config) -> None:
    given = json.dumps({"password": secret})
    source = KafkaConnectSource.model_validate({**config, "credentials": given})
    with pytest.raises(PermanentError, match="credentials: password: a reference in ") as caught:
        _ = source.properties
    assert "planted" not in str(caught.value)


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
        ("config.providers", "v", r"config.providers.v.class: must be one of EnvVarConfigProvider"),
        ("config.providers.v.class", "X", "config.providers does not list the provider v"),
        ("password", "${vault:X}", "password: config.providers does not list the provider vault"),
        ("password", "a${env:/x:X}", r"password: a reference must be \$\{env:NAME\}"),
        ("password", "${file:x:X}", r"must be \$\{file:/PATH:KEY\}, with an absolute path"),
        ("password", "${file:/etc/x:X}", "/etc/x is not below the folder DATAFLOW_FILES"),
        (
            "password",
            "${directory:/etc:x}",
            "/etc/x is not below .+ below the folder DATAFLOW_SECR",
        ),
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
    in_value = value.find("${") >= 0
    with pytest.raises(PermanentError, match="is not allowed" if in_value else reason):
        _ = hidden.properties


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"spool": "spool"}, "must be an absolute path"),
        ({"spool": "/etc/spool"}, "is not below the folder DATAFLOW_FILES"),
        ({"plugins": ["/opt/plugins"]}, "is not below the folder DATAFLOW_FILES"),
        ({"plugins": []}, "must have at least one folder or file"),
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
        PermanentError, match=r"no jar in plugins .+ has the class NoConnector: name the"
    ):
        jars_of("NoConnector", [folder])
    with pytest.raises(PermanentError, match="the folder /nowhere of plugins does not exist"):
        jars_of(CLASS, ["/nowhere"])


def jar(path: Path, *classes: str) -> None:
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name in classes:
            archive.writestr(f"{name.replace('.', '/')}.class", b"")


def test_one_class_in_two_plugins_is_not_chosen_from(tmp_path: Path) -> None:
    """They may be of other versions: the name of a folder must not say which of them runs."""
    jar(tmp_path / "shop-1.0" / "shop.jar", "a.Shop")
    jar(tmp_path / "shop-2.0" / "shop.jar", "a.Shop")
    jar(tmp_path / "other" / "other.jar", "b.Shop", "b.Other")
    folders = [str(tmp_path), str(tmp_path / "shop-1.0")]
    with pytest.raises(
        PermanentError,
        match=r"several plugins have the class a\.Shop.+/shop-1\.0, \S+/shop-2\.0 in",
    ):
        jars_of("a.Shop", folders)
    with pytest.raises(PermanentError, match=r"several connectors .+ name one of a\.Shop, b\.Shop"):
        jars_of("Shop", folders)
    assert jars_of("a.Shop", folders[1:])[1] == [tmp_path / "shop-1.0" / "shop.jar"]
    assert jars_of("Other", folders)[0] == "b.Other"
