"""CONFIG and CREDENTIALS of any class of Kafka Connect as the source `kafkaConnect`."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from pydantic import SecretStr, ValidationError

from dataflow_assets.connectors.kafka_connect import providers
from dataflow_assets.contracts import Source
from dataflow_assets.languages.common.documents import Document
from dataflow_assets.languages.common.key_tables import entry
from dataflow_assets.languages.common.notes import Notes, Where
from dataflow_assets.languages.pipelines.reader.options import CONNECT_KEYS, PLUGINS, SPOOL
from dataflow_assets.languages.pipelines.sources import PipelineConnectSource
from dataflow_assets.secrets import is_secret

_OURS = ("connector.class", "tasks.max", "name", PLUGINS, SPOOL)
_MOST_TASKS = 64
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


def connect_source(
    document: Document, credentials: Collection[str], seconds: int, notes: Notes
) -> Source | None:
    """The source; None where `notes` has got the reason.

    `document`: all settings by their keys, CREDENTIALS over CONFIG.
    `credentials`: the keys of CREDENTIALS.
    `seconds`: between two looks at the source.
    """
    before = len(notes.findings)
    values: dict[str, str] = document.value
    notes.require((document, PLUGINS), values.get(PLUGINS), "folders with the connector's jars")
    notes.require((document, SPOOL), values.get(SPOOL), "a folder of its own for what waits")
    tasks = values.get("tasks.max", "4")
    if not _NUMBER.fullmatch(tasks) or int(tasks) > _MOST_TASKS:
        notes.wrong((document, "tasks.max"), f"must be a number of tasks, 1 to {_MOST_TASKS}")
    own = {key: value for key, value in values.items() if _is_used(key, document, notes)}
    for key, reason in providers.problems(own):
        notes.wrong((document, key), reason)
    if len(notes.findings) > before:
        return None
    secret = {
        key: value for key, value in own.items() if _is_secret(key, value, key in credentials)
    }
    fields: dict[str, Any] = {
        "class": values["connector.class"],
        "config": {key: value for key, value in own.items() if key not in secret},
        "plugins": [one.strip() for one in values[PLUGINS].split(",") if one.strip()],
        "spool": values[SPOOL],
        "tasksMax": int(tasks),
        "poll_interval": seconds,
    }
    if secret:
        fields["credentials"] = SecretStr(json.dumps(secret))
    return _make(fields, document, notes)


def _is_used(key: str, document: Document, notes: Notes) -> bool:
    key_entry = entry(key, CONNECT_KEYS)
    if key_entry is not None and key_entry.verdict == "note":
        notes.note((document, key), key_entry.says)
    elif key_entry is not None and key_entry.verdict == "ignored":
        notes.idle((document, key))
    return key not in _OURS and key_entry is not None and key_entry.verdict == "used"


def _is_secret(key: str, value: str, is_credential: bool) -> bool:
    """Names of providers and references may be shown."""
    may_be_shown = providers.is_declaration(key) or providers.is_reference(value)
    return (is_credential or is_secret(key)) and not may_be_shown


def _make(given: dict[str, Any], document: Document, notes: Notes) -> Source | None:
    places: dict[str, Where] = {
        "plugins": (document, PLUGINS),
        "spool": (document, SPOOL),
        "class": (document, "connector.class"),
    }
    try:
        return PipelineConnectSource(**given)
    except ValidationError as error:
        notes.refuse(error, places, (document, "connector.class"))
        return None
