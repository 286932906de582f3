"""Reads how a sink connector's consumer reaches its brokers: worker file and overrides.

Connect hands the keys that begin with `consumer.` to the consumer, without that; in a connector's
own file they begin with `consumer.override.` and win. Keys of security are often written without
either, and count last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any

from dataflow_assets.errors.likely_names import likely, suggestion
from dataflow_assets.languages.common.client_security import ClientSetting, security
from dataflow_assets.languages.common.connect_keys import CONSUMER, WORKER
from dataflow_assets.languages.common.documents import Document
from dataflow_assets.languages.common.key_tables import Key, entry, names
from dataflow_assets.languages.common.notes import Notes, Where

BROKERS = "bootstrap.servers"
OVERRIDE, PREFIX = "consumer.override.", "consumer."
_SECURITY = ("security.", "sasl.", "ssl.")
_BROKER = re.compile(r"(?:[\w.-]*://)?(\[[\w:.%]+\]|[\w.%-]+):(\d{1,5})", re.ASCII)


@dataclass(frozen=True)
class Settings:
    """The fields of a source, and the keys that they come from."""

    values: Mapping[str, Any]
    places: Mapping[str, Where]


def settings(connector: Document, worker: Document, notes: Notes) -> Settings | None:
    """The consumer's settings; None where something is wrong, which `notes` has by then."""
    before = len(notes.findings)
    keys = dict(_consumer_keys(connector, worker))
    for key, one in keys.items():
        if key != BROKERS:
            judge(key, one.where, notes, CONSUMER)
    fields: dict[str, Any] = {"brokers": _brokers(keys, worker, notes)}
    fields |= security(keys, notes, (worker, BROKERS))
    _places_in_log(keys, notes, fields)
    if len(notes.findings) > before:
        return None
    keys_of = {
        "brokers": BROKERS,
        "security_protocol": "security.protocol",
        "sasl": "sasl.mechanism",
    }
    places = {name: keys[key].where for name, key in keys_of.items() if key in keys}
    return Settings(fields, places)


def judge(key: str, where: Where, notes: Notes, *tables: Sequence[Key]) -> None:
    """Notes what the tables say about a key: refusals, and what Connect ignores in silence."""
    matching = entry(key, *tables)
    if matching is None:
        advice = _suggest(where, tables)
        notes.note(where, f"is ignored, as Connect does it: no such key is known here{advice}")
    elif matching.verdict == "refused":
        notes.wrong(where, matching.says, key=True)
    elif matching.verdict == "ignored":
        notes.idle(where)


def _suggest(where: Where, tables: Sequence[Sequence[Key]]) -> str:
    document, key = where
    name = likely(key, names(*tables))
    if name is not None and document.value.get(name, "").strip():
        return f"; {name} is given too, and counts: remove this key"
    return suggestion(name)


def is_worker(document: Document) -> bool:
    """Returns whether it is the file of a Connect worker."""
    return "connector.class" not in document.value and any(
        key in document.value for key in (BROKERS, f"{PREFIX}{BROKERS}", "value.converter")
    )


def worker_beside(
    document: Document, workers: Iterable[Document], notes: Notes, absent: str = ""
) -> Document | None:
    """Finds the worker's file in the folder of a connector's.

    Args:
        document: the connector.
        workers: files of Connect workers, in any folder.
        notes: gets what is wrong where there are several, or none.
        absent: what is wrong where there is none; empty: nothing.
    """
    folder = File(document.file).resolve().parent
    near = [one for one in workers if File(one.file).resolve().parent == folder]
    if len(near) > 1:
        names = ", ".join(File(one.file).name for one in near)
        message = f"is in several files beside this one: {names}; keep one of them in this folder"
        notes.wrong((document, BROKERS), message)
    elif absent and not near:
        notes.wrong((document, BROKERS), absent)
    return near[0] if len(near) == 1 else None


def other_keys(worker: Document, notes: Notes) -> None:
    """Says what is to be said about keys of a worker's file that are not the consumer's."""
    for key in worker.value:
        if not key.startswith((PREFIX, *_SECURITY)):
            judge(key, (worker, key), notes, WORKER)


def _consumer_keys(connector: Document, worker: Document) -> Iterator[tuple[str, ClientSetting]]:
    """Each key of the consumer, the one that wins last."""
    for key, text in worker.value.items():
        if key == BROKERS or key.startswith(_SECURITY):
            yield key, ClientSetting(text, (worker, key))
    for document, prefix in ((worker, PREFIX), (connector, OVERRIDE)):
        for key, text in document.value.items():
            if key.startswith(prefix) and not (prefix == PREFIX and key.startswith(OVERRIDE)):
                yield key.removeprefix(prefix), ClientSetting(text, (document, key))


def _brokers(
    settings: Mapping[str, ClientSetting], worker: Document, notes: Notes
) -> tuple[str, ...]:
    one = settings.get(BROKERS)
    where = one.where if one else (worker, BROKERS)
    if not notes.require(where, one.text if one else None, "the brokers, like kafka-1:9092"):
        return ()
    parts = [part.strip() for part in (one.text if one else "").split(",") if part.strip()]
    matches = [_BROKER.fullmatch(part) for part in parts]
    if not all(matches):
        notes.wrong(where, "must be host:port, several separated by commas, like kafka-1:9092")
    return tuple(f"{match[1]}:{match[2]}" for match in matches if match)


def _places_in_log(
    settings: Mapping[str, ClientSetting], notes: Notes, fields: dict[str, Any]
) -> None:
    if group := settings.get("group.id"):
        fields["consumer_group"] = group.text.strip()
    reset = settings.get("auto.offset.reset")
    if reset and reset.text.strip().lower() != "earliest":
        notes.wrong(
            reset.where,
            "must be earliest: a flow begins where its consumer group is, else at the earliest "
            "record; to begin at the end, remove the key and run once with --from latest",
        )
    isolation = settings.get("isolation.level")
    if isolation and isolation.text.strip() != "read_committed":
        notes.note(isolation.where, "has no effect: only committed records are read")
