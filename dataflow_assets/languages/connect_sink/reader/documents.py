"""The spellings of a connector's file -> one document: its keys with their texts and places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path as File
from typing import Any

from typing_extensions import override

from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow
from dataflow_assets.languages.common.connect_consumer import BROKERS, OVERRIDE, beside
from dataflow_assets.languages.common.documents import Document, Path, Place
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.connect_sink.reader.connector import flows
from dataflow_assets.languages.connect_sink.reader.keys import CONNECTORS

_MANIFEST: tuple[tuple[Path, Path], ...] = (
    (("metadata", "name"), ("name",)),
    (("spec", "source", "config"), ("topics",)),
)
"""Where rules between flows say that something is, and the key that says it here."""
_NO_BROKERS = (
    "is in no *.properties file of this folder: put the Connect worker's file beside this one, or "
    "write consumer.override.bootstrap.servers, like kafka-1:9092, into this one"
)


class ConnectorDocument(Document):
    """A connector's file, whose findings name its own keys."""

    @override
    def finding(self, path: Path, message: str, *, key: bool = False) -> Finding:
        found = next((own for theirs, own in _MANIFEST if path[: len(theirs)] == theirs), path)
        return super().finding(found, message, key=key)


def connector(document: Document) -> ConnectorDocument | None:
    """A sink connector, as properties or as Connect's REST interface takes it, with its values.

    An object is the `config` beside a name, or the `config` alone. None for any other document.
    """
    config = document.get("config")
    base: Path = ("config",) if isinstance(config, dict) else ()
    inner = config if base else document.value
    if not isinstance(inner, dict) or str(inner.get("connector.class")).strip() not in CONNECTORS:
        return None
    value = {key: _text(one) for key, one in inner.items()}
    places: dict[Path, Place] = {(key,): document.places[*base, key] for key in value}
    if "name" not in value and isinstance(document.get("name"), str):
        value["name"], places["name",] = document.get("name"), document.places["name",]
    places[()] = document.places[()]
    return ConnectorDocument(document.file, value, places, sound=document.sound)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read(document: ConnectorDocument, workers: Iterable[Document]) -> Iterator[Reading]:
    """Reads a connector's file with the Connect worker's beside it.

    Args:
        document: the connector.
        workers: files of Connect workers, of which the one in the same folder counts.

    Returns:
        A reading for each flow, and one of everything that is wrong or worth a note.
    """
    notes, made = Notes(), list[Flow]()
    near = beside(document, workers)
    if len(near) > 1:
        names = ", ".join(File(one.file).name for one in near)
        message = f"is in several files beside this one: {names}; keep one of them in this folder"
        notes.wrong((document, BROKERS), message)
    elif not near and not document.value.get(f"{OVERRIDE}{BROKERS}", "").strip():
        notes.wrong((document, BROKERS), _NO_BROKERS)
    else:
        made = flows(document, near[0] if near else None, notes)
    findings = tuple(dict.fromkeys(notes.findings))  # each topic has come to the same ones
    yield Reading(document, findings, tuple(notes.hints))
    if document.sound:
        yield from (Reading(document, flow=flow) for flow in made)
