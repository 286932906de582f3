"""CONFIG and CREDENTIALS of a pipeline as the source of a flow."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from dataflow_assets.connectors.kafka_connect.mask import Mask, is_long_enough
from dataflow_assets.connectors.kafka_connect.providers import literals
from dataflow_assets.contracts import Source
from dataflow_assets.languages.common.client_security import field_or_reference
from dataflow_assets.languages.common.documents import Document, NodePlace
from dataflow_assets.languages.common.key_tables import entry
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.notes import Notes, Where
from dataflow_assets.languages.common.references import mentions
from dataflow_assets.languages.common.statements import lines
from dataflow_assets.languages.common.tokens import Place
from dataflow_assets.languages.pipelines.reader.connect_source import connect_source
from dataflow_assets.languages.pipelines.reader.options import CLASSES, KEYS, MASK, PLUGINS, SPOOL
from dataflow_assets.languages.pipelines.reader.syntax import Json, PipelineOptions
from dataflow_assets.languages.pipelines.rows.rows import Envelope
from dataflow_assets.languages.pipelines.sources import PipelineKinesisSource
from dataflow_assets.secrets import is_secret

_FIELDS = {
    "kinesis.stream": "stream",
    "kinesis.region": "region",
    "kinesis.endpoint": "endpoint",
    "kinesis.position": "starting_position",
    "aws.access.key.id": "access_key",
    "aws.secret.key.id": "secret_access_key",
}
_OF_ALL = frozenset(("connector.class", "tasks.max", PLUGINS, SPOOL))
_SHOWN = frozenset((*_FIELDS, "kafka.topic", *_OF_ALL))
"""Keys of which it is known whether they are secrets, by their names: of Kinesis, and of all."""
_POSITIONS = ("TRIM_HORIZON", "LATEST")
_ID = ("shardId", "sequenceNumber")
_LEAST_SECONDS = 1
_TASKS = re.compile(r"[1-9][0-9]{0,8}")
_LOGIN = re.compile(r"://[^/\s@]*@")
_NAMED = re.compile(r"""([\w.-]+\s*=\s*)("[^"]*"|'[^']*'|[^&;,\s]+)""")


@dataclass(frozen=True)
class Connected:
    """The source of a pipeline."""

    source: Source
    envelope: Envelope | None
    config_json: str
    """CONFIG and CREDENTIALS as people may see them."""


def connect(file: str, begin: Place, options: PipelineOptions, notes: Notes) -> Connected | None:
    """The source; None where `notes` has got the reason."""
    document = _document(file, begin, options)
    values: Mapping[str, str] = document.value
    _check_secrets(file, options.config, notes)
    where, found = (document, "connector.class"), values.get("connector.class")
    if not notes.require(where, found, "the class of the connector"):
        return None
    credentials = frozenset(options.credentials.values) if options.credentials else frozenset()
    shown = mask_secrets(values, credentials)
    if found not in CLASSES:
        source = connect_source(document, credentials, _seconds(options), notes)
        return Connected(source, None, shown) if source else None
    before = len(notes.findings)
    for key in values:
        _check_key(key, document, notes)
    if not _TASKS.fullmatch(values.get("tasks.max", "4").strip()):
        notes.wrong((document, "tasks.max"), "must be a number of tasks, at least 1")
    notes.require((document, "kinesis.stream"), values.get("kinesis.stream"), "the stream")
    topic = values.get("kafka.topic")
    notes.require((document, "kafka.topic"), topic, "the value of the column topic")
    fields = _settings(document, notes)
    if len(notes.findings) > before:
        return None
    source = _make({**fields, "poll_interval": _seconds(options)}, document, notes)
    if source is None:
        return None
    return Connected(source, Envelope(str(topic), _ID), shown)


def mask_secrets(values: Mapping[str, str], credentials: Collection[str] = ()) -> str:
    """Writes the settings as JSON, without secrets.

    Called when a file is read; databases show it to everybody who may read the views.

    Args:
        values: all settings by their keys.
        credentials: the keys of CREDENTIALS, whatever their names are.
    """
    harmless = _SHOWN if values.get("connector.class") in CLASSES else _OF_ALL
    secret = {key for key in values if is_secret(key)} | {*credentials} - harmless
    hide = Mask(part for key in secret for part in literals(values[key]) if is_long_enough(part))
    shown = {key: MASK if key in secret else hide(_open(value)) for key, value in values.items()}
    return json.dumps(shown, ensure_ascii=False)


def _open(value: str) -> str:
    """A value without a login, and without passwords that it names, as URLs do."""
    shown = _NAMED.sub(lambda one: one[1] + MASK if is_secret(one[1]) else one[0], value)
    return _LOGIN.sub(f"://{MASK}@", shown)


def _document(file: str, begin: Place, options: PipelineOptions) -> Document:
    """CREDENTIALS over CONFIG, each key in its own place."""
    values: dict[str, str] = {}
    places: dict[tuple[str | int, ...], NodePlace] = {(): lines(begin)}
    for given in (options.config, options.credentials):
        if given is not None:
            values |= given.values
            places |= {(key,): lines(place) for key, place in given.places.items()}
    return Document(file, values, places)


def _check_secrets(file: str, config: Json | None, notes: Notes) -> None:
    if config is None:
        return
    places: dict[tuple[str | int, ...], NodePlace] = {
        (key,): lines(place) for key, place in config.places.items()
    }
    document = Document(file, config.values, {(): lines(config.place), **places})
    for key, value in config.values.items():
        if is_secret(key) and value and not mentions(value):
            message = "is a secret in CONFIG: move it to CREDENTIALS, best as ${env:VARIABLE}"
            notes.note((document, key), message)


def _check_key(key: str, document: Document, notes: Notes) -> None:
    key_entry = entry(key, KEYS)
    if key_entry is None:
        likely_name = suggest(key, [one.name for one in KEYS if one.verdict == "used"])
        advice = f"; {likely_name}" if likely_name.startswith("did") else ""
        notes.note((document, key), f"has no effect: it is not known here{advice}")
    elif key_entry.verdict == "refused":
        notes.wrong((document, key), key_entry.says, key=True)
    elif key_entry.verdict == "note":
        notes.note((document, key), key_entry.says)
    elif key_entry.verdict == "ignored":
        notes.idle((document, key))


def _settings(document: Document, notes: Notes) -> dict[str, Any]:
    fields: dict[str, Any] = {"envelope": True}
    for key, name in _FIELDS.items():
        if key not in document.value:
            continue
        where: Where = (document, key)
        text = str(document.value[key])
        if is_secret(key):
            fields |= field_or_reference(name, text, where, notes)
        elif mentions(text):
            notes.wrong(where, "a reference is supported for secrets only")
        else:
            fields[name] = text
    position = fields.get("starting_position", _POSITIONS[0])
    if position not in _POSITIONS:
        notes.wrong((document, "kinesis.position"), suggest(position, _POSITIONS))
    return fields


def _seconds(options: PipelineOptions) -> int:
    millis = options.batch_interval or 0
    return max(_LEAST_SECONDS, -(-millis // 1000))


def _make(given: Mapping[str, Any], document: Document, notes: Notes) -> Source | None:
    places = {name: (document, key) for key, name in _FIELDS.items()}
    places |= {"accessKey": (document, "aws.access.key.id")}
    try:
        return PipelineKinesisSource(**given)
    except ValidationError as error:
        notes.refuse(error, places, (document, "connector.class"))
        return None
