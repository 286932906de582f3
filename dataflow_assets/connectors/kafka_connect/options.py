"""Options of a connector of Kafka Connect."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import Discriminator, Field, SecretStr, Tag, WithJsonSchema, field_validator
from typing_extensions import override

from dataflow_assets.connectors.kafka_connect import providers
from dataflow_assets.connectors.kafka_connect.artifacts import Artifact
from dataflow_assets.connectors.kafka_connect.mask import is_long_enough
from dataflow_assets.connectors.kafka_connect.providers import is_declaration
from dataflow_assets.contracts import Address, SourceTraits
from dataflow_assets.contracts.source import NullMessages
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.source_options import MessageSource
from dataflow_assets.sdk.local_folders import outside, within_root
from dataflow_assets.secrets import Fills, SecretRef, is_secret
from dataflow_assets.spec import Needs

Ref = SecretRef | None
_Text = Annotated[str, WithJsonSchema({"type": ["string", "number", "boolean"]})]
_Plugin = Annotated[
    Annotated[str, Tag("folder")] | Annotated[Artifact, Tag("file")],
    Discriminator(lambda one: "folder" if isinstance(one, str) else "file"),
]
_CLASS = r"^[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*$"
_OURS = {"connector.class": "set class", "tasks.max": "set tasksMax"}
_NOT_ALLOWED = (
    "a reference in its value is not allowed: it must name the provider env, file or directory, or "
    "one of config.providers; a file must have an absolute path below the folder DATAFLOW_FILES or "
    "DATAFLOW_SECRETS"
)
_REFUSED = {
    "key.converter": "keys become JSON: leave it out",
    "value.converter": "values become JSON: leave it out",
    "header.converter": "headers are not read: leave it out",
    "topic.creation": "there is no topic: leave it out",
    "offsets.storage.topic": "offsets are stored with the rows: leave it out",
    "exactly.once.support": "offsets are stored with the rows: leave it out",
    "transaction.boundary": "offsets are stored with the rows: leave it out",
    "errors.": "rejected records are a matter of the flow: leave it out",
}


class KafkaConnectSourceOptions(MessageSource):
    """The keys of a source."""

    tombstones: Annotated[NullMessages, Needs("envelope", value=False)] = "reject"
    """What a record without a value means, with `envelope: false`: a rejected record, nothing, or
    the deletion of its key."""
    envelope: bool = True
    """`true`: a message is an object with `topic`, `id` and `record`. `false`: a message is the
    value of the record alone: text and bytes as they are, any other value as JSON."""

    schemas: bool = False
    """`true`: each value is an object of `schema` and `payload`, as Kafka Connect's JsonConverter
    writes it. The steps `debeziumUnwrap` and `extractField` read dates, times and decimals by it;
    without a schema they are numbers and base64. Records are larger by their schema while they wait
    in the spool."""

    connector_class: str = Field(alias="class", pattern=_CLASS)
    """Java class of the source connector, with or without its package."""
    config: Mapping[str, _Text] = {}
    """The connector's own configuration, unchanged, with its transforms and predicates. Secrets
    belong in `credentialsSecretRef`, or are referred to: `${env:NAME}`, `${file:/PATH:KEY}`,
    `${directory:/PATH:FILE}`, or another of Kafka's own config providers that `config.providers`
    declares."""
    credentials: SecretStr | None = None
    """The secret part of the configuration, as a JSON object of texts. It wins over `config`, and
    is never shown."""
    credentials_secret_ref: Annotated[Ref, Fills("credentials")] = None
    """Secret with that JSON object."""
    plugins: tuple[_Plugin, ...] = Field(json_schema_extra={"minItems": 1})
    """Where the connector's jars are. A text is a folder, as in `plugin.path`: it holds jars, or
    one folder for each plugin, and must be below the folder DATAFLOW_FILES. A block names a file of
    a Maven repository."""
    spool: str
    """A folder below the folder DATAFLOW_FILES, in which records wait until they are stored. Each
    flow needs a folder of its own, which every Spark worker sees under the same path. **The folder
    must not be lost**: once records are in it, the connector takes them for delivered."""
    tasks_max: int = Field(4, ge=1, le=64)
    """The most tasks that the connector may have."""
    heap: str = Field("256m", pattern=r"^[1-9]\d*[mg]$")
    """Memory of the connector's JVM, such as 512m or 2g; its process has up to 200 MB more."""

    @field_validator("plugins")
    @classmethod
    def _folders(cls, value: tuple[_Plugin, ...]) -> tuple[_Plugin, ...]:
        if not value:
            raise ValueError("must have at least one folder or file")
        return tuple(_below_root(one) if isinstance(one, str) else one for one in value)

    @field_validator("spool")
    @classmethod
    def _folder(cls, value: str) -> str:
        return _below_root(value)

    @field_validator("config", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        """Connect's configuration is text; numbers and booleans are written as in JSON."""
        if not isinstance(value, Mapping):
            return value
        return {
            key: json.dumps(one) if isinstance(one, bool | int | float) else one
            for key, one in value.items()
        }

    @field_validator("config")
    @classmethod
    def _possible(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        if reason := problem(value) or _unresolvable(value):
            raise ValueError(reason)
        return value

    @property
    def properties(self) -> dict[str, str]:
        """All of the configuration, with the credentials in place.

        Raises:
            PermanentError: the credentials are not a JSON object of texts, or name what is refused.
        """
        credentials = self._declared_secrets
        whole = {"name": self.spool_name, **self.config, **credentials}
        if reason := problem(credentials) or _unresolvable(whole, shown_nowhere=credentials):
            raise PermanentError(f"credentials: {reason}")
        return whole

    @property
    def _declared_secrets(self) -> dict[str, str]:
        return json_texts(self.credentials.get_secret_value()) if self.credentials else {}

    @property
    def hidden_values(self) -> frozenset[str]:
        """Values that must be shown nowhere; what references stand for is known in the host."""
        values = (
            *self._declared_secrets.values(),
            *(self.config[key] for key in self._secret_keys),
        )
        parts = (part for value in values for part in providers.literals(value))
        return frozenset(part for part in parts if is_long_enough(part))

    @property
    def hidden_keys(self) -> frozenset[str]:
        """Keys of the configuration whose values must be shown nowhere, whatever they become."""
        return frozenset((*self._declared_secrets, *self._secret_keys))

    @property
    def _secret_keys(self) -> list[str]:
        secret = (key for key in self.config if is_secret(key) and not is_declaration(key))
        return [key for key in secret if not providers.is_reference(self.config[key])]

    @property
    def spool_name(self) -> str:
        """The last part of the spool's path."""
        return PurePath(self.spool).name

    @property
    def folders(self) -> list[str]:
        return [one for one in self.plugins if isinstance(one, str)]

    @property
    def artifacts(self) -> list[Artifact]:
        return [one for one in self.plugins if isinstance(one, Artifact)]

    @property
    def title(self) -> str:
        return f"the connector {self.connector_class}"

    @property
    @override
    def traits(self) -> SourceTraits:
        return replace(super().traits, reserved=f"the spool {self.spool}")

    @override
    def address(self) -> Address:
        return Address(
            "kafkaConnect", self.connector_class.rpartition(".")[2], None, self.spool_name
        )

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        if keys := sorted(self._secret_keys):
            yield "config", f"{', '.join(keys)}: put secrets into credentialsSecretRef"

    @override
    def places_of_secrets(self) -> Iterator[tuple[str, str]]:
        yield from super().places_of_secrets()
        with suppress(PermanentError):
            for _, place in providers.places({**self.config, **self._declared_secrets}):
                yield "config", place


def problem(config: Mapping[str, str]) -> str:
    """The key of a connector's configuration that cannot be; empty where all of them can."""
    for key in config:
        for name, why in {**_OURS, **_REFUSED}.items():
            if key == name or key.startswith(name if name.endswith(".") else f"{name}."):
                return f"{key}: {why}"
    return ""


def _unresolvable(config: Mapping[str, str], shown_nowhere: Container[str] = ()) -> str:
    """The first reference that cannot be. `shown_nowhere`: keys of whose values nothing is said."""
    for key, reason in providers.problems(config):
        secret = key in shown_nowhere and not is_declaration(key)
        return f"{key}: {_NOT_ALLOWED if secret else reason}"
    return ""


def json_texts(text: str) -> dict[str, str]:
    """A JSON object of texts. PermanentError, which shows nothing of it, for anything else."""
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not all(isinstance(one, str) for one in document.values()):
        raise PermanentError("the secret of credentialsSecretRef must hold a JSON object of texts")
    return document


def _below_root(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"{path}: must be an absolute path")
    if not within_root(path):
        raise ValueError(outside(path))
    return path.rstrip("/")
