"""Converters of keys and values -> fields of the source, and the first steps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataflow_assets.languages.common.client_security import field_or_reference
from dataflow_assets.languages.common.documents import Document
from dataflow_assets.languages.common.notes import Notes, Where
from dataflow_assets.languages.connect.reader.steps import step
from dataflow_assets.languages.connect.record_key import RecordKey
from dataflow_assets.records.chain import Transformation

JSON = "org.apache.kafka.connect.json.JsonConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"
AVRO = "io.confluent.connect.avro.AvroConverter"
_VALUES = f"allowed: {JSON}, {AVRO}"
_KEYS = f"{_VALUES}, {STRING}"
_PAIR = re.compile(r"(\$\{[^}]*\}|[^:]+):(.+)")
_NO_AUTH = (
    "needs basic.auth.credentials.source=USER_INFO and basic.auth.user.info=user:password; with no "
    "login remove both"
)
_IDLE = ("auto.register.schemas", "use.latest.version", "enhanced.avro.schema.support")


@dataclass(frozen=True)
class Converter:
    """One of the two: its class, and its own settings with the place of each."""

    kind: str
    where: Where
    settings: Mapping[str, tuple[str, Where]]

    @property
    def has_schema(self) -> bool:
        """True where a JSON value stands beside its schema."""
        text, _ = self.settings.get("schemas.enable", ("true", self.where))
        return self.kind == JSON and text.strip().lower() == "true"


def converter(
    end: str, connector: Document, worker: Document | None, notes: Notes
) -> Converter | None:
    """That of `key` or `value`: the connector's own, else the worker's, with its settings."""
    name = f"{end}.converter"
    for document in filter(None, (connector, worker)):
        settings = {
            key.removeprefix(f"{name}."): (text, (document, key))
            for key, text in document.value.items()
            if key.startswith(f"{name}.")
        }
        if kind := document.value.get(name, "").strip():
            return Converter(kind, (document, name), settings)
        for _, where in settings.values():
            notes.note(where, f"has no effect, as in Connect: {name} is not in this file")
    return None


def value_fields(chosen: Converter | None, connector: Document, notes: Notes) -> dict[str, Any]:
    """Fields of a source whose values are so converted; `notes` gets what is wrong."""
    if chosen is None:
        message = f"is required, here or in the worker's file; {_VALUES}"
        notes.wrong((connector, "value.converter"), message, key=True)
    elif chosen.kind == AVRO:
        return {"format": "avro", "schema_registry": _registry(chosen, notes)}
    elif chosen.kind != JSON:
        notes.wrong(chosen.where, f"is not supported; {_VALUES}")
    else:
        for key, (_, where) in chosen.settings.items():
            if key != "schemas.enable":
                notes.idle(where)
    return {}


def value_steps(chosen: Converter | None) -> list[Transformation]:
    """Takes the value out of the object that holds its schema, too; any other is rejected."""
    if chosen is None or not chosen.has_schema:
        return []
    both = {"type": "object", "required": ["schema", "payload"]}
    check = step("validate", "!$.schema || !$.payload", schema=both)
    return [check, step("extractField", field="payload")]


def key_fields(key: Converter | None, value: Converter | None, notes: Notes, where: Where) -> Any:
    """Fields of a source whose keys are needed; `where` is what needs them."""
    if key is None:
        message = f"needs key.converter, here or in the worker's file; {_KEYS}"
        notes.wrong(where, message)
    elif key.kind == AVRO:
        if value is not None and value.kind == AVRO:
            return {"key_format": "avro"}
        notes.wrong(key.where, "keys of Avro are read with values of Avro only")
    elif key.kind not in (JSON, STRING):
        notes.wrong(key.where, f"is not supported; {_KEYS}")
    return {}


def key_step(key: Converter, fields: Sequence[str]) -> Transformation:
    """Writes the fields of a record's key, or the one value that it is, into its body."""
    form = {STRING: "text", JSON: "json with schema" if key.has_schema else "json"}
    record_key = RecordKey(fields=tuple(fields), form=form.get(key.kind, "json"))  # type: ignore[arg-type]
    return Transformation(record_key)


def _registry(chosen: Converter, notes: Notes) -> Mapping[str, Any] | None:
    settings = dict(chosen.settings)
    url, _ = settings.pop("schema.registry.url", ("", chosen.where))
    if not url.strip():
        notes.wrong(chosen.where, "needs schema.registry.url beside it")
        return None
    auth = _authentication(settings, chosen.where, notes)
    for key, (_, where) in settings.items():
        if key in _IDLE:
            notes.idle(where)
        elif not key.startswith("basic.auth."):
            notes.wrong(where, "is not supported for values of Avro: remove it", key=True)
    first, *others = [part.strip() for part in url.split(",")]
    if others:
        notes.note(chosen.settings["schema.registry.url"][1], "only the first address is asked")
    return {"url": first, **({"basic_auth": auth} if auth else {})}


def login(
    text: str, names: tuple[str, str], where: Where, notes: Notes, wrong: str
) -> dict[str, Any]:
    """Two fields from two texts with a colon between them, each of which may be a reference."""
    match = _PAIR.fullmatch(text.strip())
    if match is None:
        notes.wrong(where, wrong)
        return {}
    (first, second), (one, other) = names, match.groups()
    return {
        **field_or_reference(first, one, where, notes),
        **field_or_reference(second, other, where, notes),
    }


def _authentication(
    settings: Mapping[str, tuple[str, Where]], nowhere: Where, notes: Notes
) -> dict[str, Any]:
    source, where = settings.get("basic.auth.credentials.source", ("", nowhere))
    if source.strip() in ("", "URL"):
        return {}
    info, at = settings.get("basic.auth.user.info", ("", where))
    info, at = (info, at) if source.strip() == "USER_INFO" else ("", where)
    return login(info, ("username", "password"), at, notes, _NO_AUTH)
