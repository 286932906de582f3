"""Connectors' files and the workers' beside them -> flows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

from typing_extensions import override

from dataflow_assets.errors import Finding, unexpected
from dataflow_assets.flow import Flow
from dataflow_assets.languages.common.connect_consumer import (
    BROKERS,
    beside,
    is_worker,
    other_keys,
)
from dataflow_assets.languages.common.documents import Document, Path, Place
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.justone.reader.connector import flows
from dataflow_assets.languages.justone.reader.keys import CLASSES

_MANIFEST: tuple[tuple[Path, Path], ...] = (
    (("metadata", "name"), ("name",)),
    (("spec", "source", "config"), ("topics",)),
    (("db.table", "passwordSecretRef"), ("db.password",)),
)
"""Where rules between flows say that something is, and the key that says it here."""
_NO_WORKER = (
    "is in no *.properties file of this folder: put the Connect worker's file beside this one, "
    "with the brokers, like bootstrap.servers=kafka-1:9092"
)


class ConnectorDocument(Document):
    """A connector's file, whose findings name its own keys."""

    @override
    def finding(self, path: Path, message: str, *, key: bool = False) -> Finding:
        found = next((own for theirs, own in _MANIFEST if path[: len(theirs)] == theirs), path)
        return super().finding(found, message, key=key)


@dataclass(frozen=True)
class Read:
    """What one connector's file came to; its flows share the document."""

    document: Document
    flows: tuple[Flow, ...]
    findings: tuple[Finding, ...]
    hints: tuple[Finding, ...]


def is_connector(document: Document) -> bool:
    """Whether it is a connector of JustOne's, or tries to be one."""
    value = document.value
    if not isinstance(value, dict):
        return False
    kind = value.get("connector.class")
    return str(kind).strip() in CLASSES or (kind is None and "db.json.parse" in value)


def from_json(document: Document) -> Document | None:
    """A connector as Connect's REST API takes it: an object, or its `config` beside a name.

    None for any other document. Values become text, as there.
    """
    config = document.get("config")
    base: Path = ("config",) if isinstance(config, dict) else ()
    inner = config if base else document.value
    if not isinstance(inner, dict) or str(inner.get("connector.class")).strip() not in CLASSES:
        return None
    value = {key: _text(one) for key, one in inner.items()}
    places: dict[Path, Place] = {(key,): document.places[*base, key] for key in value}
    if "name" not in value and isinstance(document.get("name"), str):
        value["name"], places["name",] = document.get("name"), document.places["name",]
    places[()] = document.places[()]
    return Document(document.file, value, places, sound=document.sound)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read(own: Iterable[Document], near: Iterable[Document]) -> Iterator[Read]:
    """The connectors of the files that were named; `near` are those that lie beside them."""
    mine = list(own)
    workers = [one for one in [*mine, *near] if is_worker(one)]
    for document in mine:
        if is_connector(document):
            try:
                yield _one(document, beside(document, workers))
            except Exception as error:  # noqa: BLE001 - whatever it is, the other files go on
                said = f"cannot be read: {unexpected(error)}"
                yield Read(document, (), (document.finding((), said),), ())


def check_worker(document: Document) -> tuple[Finding, ...]:
    """Notes about the keys of a worker's file; none for another one."""
    notes = Notes()
    if is_worker(document):
        other_keys(document, notes)
    return tuple(notes.hints)


def _one(document: Document, workers: Sequence[Document]) -> Read:
    notes = Notes()
    if not workers:
        notes.wrong((document, BROKERS), _NO_WORKER)
    elif len(workers) > 1:
        names = ", ".join(File(one.file).name for one in workers)
        message = f"is in several files beside this one: {names}; keep one of them in this folder"
        notes.wrong((document, BROKERS), message)
    named = ConnectorDocument(document.file, document.value, document.places, sound=document.sound)
    found = flows(named, workers[0] if len(workers) == 1 else None, notes)
    if not document.sound:
        found = []
    return Read(named, tuple(found), tuple(notes.findings), tuple(notes.hints))
