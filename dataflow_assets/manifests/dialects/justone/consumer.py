"""How the connector's consumer reaches its brokers: the worker's file, and what overrides it.

Connect hands the keys that begin with `consumer.` to the consumer, without that; in a connector's
own file they begin with `consumer.override.` and win. Keys of security are often written without
either, and count last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr, ValidationError

from dataflow_assets.manifests.dialects.documents import Document
from dataflow_assets.manifests.dialects.justone.keys import (
    CONSUMER,
    PLACEHOLDER,
    WORKER,
    is_placeholder,
)
from dataflow_assets.manifests.dialects.justone.notes import Notes, Where
from dataflow_assets.manifests.dialects.justone.references import reference
from dataflow_assets.secrets import SecretRef

BROKERS = "bootstrap.servers"
OVERRIDE, PREFIX = "consumer.override.", "consumer."
_SECURITY = ("security.", "sasl.", "ssl.")
_BROKER = re.compile(r"(?:[\w.-]*://)?(\[[\w:.%]+\]|[\w.%-]+):(\d{1,5})", re.ASCII)
_JAAS = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\')')
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True)
class Told:
    """What the consumer is told by one key."""

    text: str
    where: Where


@dataclass(frozen=True)
class Settings:
    """What a source is made of, and from which keys."""

    values: Mapping[str, Any]
    places: Mapping[str, Where]


def settings(connector: Document, worker: Document, notes: Notes) -> Settings | None:
    """The consumer's settings; None where something is wrong, which `notes` has by then."""
    before = len(notes.findings)
    told = dict(_told(connector, worker))
    for key, one in told.items():
        if key != BROKERS:
            notes.by_tables(one.where, key, CONSUMER)
    found: dict[str, Any] = {"brokers": _brokers(told, worker, notes)}
    found |= security(told, notes, (worker, BROKERS))
    _places_in_log(told, notes, found)
    if len(notes.findings) > before:
        return None
    named = {"brokers": BROKERS, "security_protocol": "security.protocol", "sasl": "sasl.mechanism"}
    places = {name: told[key].where for name, key in named.items() if key in told}
    return Settings(found, places)


def other_keys(worker: Document, notes: Notes) -> None:
    """What is to be said about the keys of a worker's file that are not the consumer's."""
    for key in worker.value:
        if not key.startswith((PREFIX, *_SECURITY)):
            notes.by_tables((worker, key), key, WORKER)


def _told(connector: Document, worker: Document) -> Iterator[tuple[str, Told]]:
    """Each key of the consumer, the one that wins last."""
    for key, text in worker.value.items():
        if key == BROKERS or key.startswith(_SECURITY):
            yield key, Told(text, (worker, key))
    for document, prefix in ((worker, PREFIX), (connector, OVERRIDE)):
        for key, text in document.value.items():
            if key.startswith(prefix) and not (prefix == PREFIX and key.startswith(OVERRIDE)):
                yield key.removeprefix(prefix), Told(text, (document, key))


def _brokers(told: Mapping[str, Told], worker: Document, notes: Notes) -> tuple[str, ...]:
    one = told.get(BROKERS)
    where = one.where if one else (worker, BROKERS)
    if not notes.required(where, one.text if one else None, "the brokers, like kafka-1:9092"):
        return ()
    parts = [part.strip() for part in (one.text if one else "").split(",") if part.strip()]
    found = [_BROKER.fullmatch(part) for part in parts]
    if not all(found):
        notes.wrong(where, "must be host:port, several separated by commas, like kafka-1:9092")
    return tuple(f"{match[1]}:{match[2]}" for match in found if match)


def _places_in_log(told: Mapping[str, Told], notes: Notes, found: dict[str, Any]) -> None:
    if group := told.get("group.id"):
        found["consumer_group"] = group.text.strip()
    reset = told.get("auto.offset.reset")
    if reset and reset.text.strip().lower() != "earliest":
        notes.wrong(
            reset.where,
            "must be earliest: a flow begins where its consumer group is, else at the earliest "
            "record; to begin at the end, remove the key and run once with --from latest",
        )
    isolation = told.get("isolation.level")
    if isolation and isolation.text.strip() != "read_committed":
        notes.note(isolation.where, "has no effect: only committed records are read")


def security(told: Mapping[str, Told], notes: Notes, nowhere: Where) -> dict[str, Any]:
    """How brokers are reached, as fields of a source or sink; `notes` gets what is wrong.

    What is missing is told at `nowhere`.
    """
    protocol = told.get("security.protocol")
    name = protocol.text.strip().upper() if protocol else "PLAINTEXT"
    if name not in _PROTOCOLS:
        notes.wrong(protocol.where if protocol else nowhere, f"allowed: {', '.join(_PROTOCOLS)}")
        return {}
    found: dict[str, Any] = {"security_protocol": name}
    where = protocol.where if protocol else nowhere
    if "SASL" in name:
        found["sasl"] = _sasl(told, notes, where)
    if "SSL" in name:
        found["tls"] = _tls(told, notes)
    return found


def _sasl(told: Mapping[str, Told], notes: Notes, where: Where) -> dict[str, Any]:
    mechanism, jaas = told.get("sasl.mechanism"), told.get("sasl.jaas.config")
    found: dict[str, Any] = {}
    allowed = f"allowed: {', '.join(_MECHANISMS)}"
    if mechanism is None:
        notes.wrong(where, f"needs sasl.mechanism; {allowed}")
    elif mechanism.text.strip() not in _MECHANISMS:
        notes.wrong(mechanism.where, f"not supported; {allowed}")
    else:
        found["mechanism"] = mechanism.text.strip()
    if jaas is None:
        notes.wrong(where, "needs sasl.jaas.config, with username and password")
        return found
    given = {key: double or single for key, double, single in _JAAS.findall(jaas.text)}
    for key in ("username", "password"):
        if not given.get(key):
            notes.wrong(jaas.where, f'needs {key}="..."')
        else:
            found |= referred(key, re.sub(r"\\(.)", r"\1", given[key]), jaas.where, notes)
    return found


def referred(name: str, text: str, where: Where, notes: Notes) -> dict[str, Any]:
    """One field, by its value or by the reference to it."""
    if is_placeholder(text):
        notes.wrong(where, f"still has {PLACEHOLDER}: write the value, or remove the key")
        return {}
    try:
        ref: SecretRef | None = reference(text)
    except ValidationError:
        notes.wrong(where, "a Secret is named as ${secrets:NAMESPACE/NAME:KEY}")
        return {}
    except ValueError as error:
        notes.wrong(where, str(error))
        return {}
    return {f"{name}_secret_ref": ref} if ref else {name: text}


def _tls(told: Mapping[str, Told], notes: Notes) -> dict[str, Any]:
    """PEM, as text or by absolute path; Java's own stores cannot be read."""
    names = told.get("ssl.endpoint.identification.algorithm")
    if names and names.text.strip().lower() != "https":
        notes.wrong(
            names.where,
            "not supported: the brokers' names are checked; give their certificates the names by "
            "which bootstrap.servers reaches them",
        )
    found: dict[str, Any] = {}
    for store, text_keys in (
        ("truststore", {"certificates": "ca_file"}),
        ("keystore", {"certificate.chain": "cert_file", "key": "key_file"}),
    ):
        _check_kind(store, told, notes)
        path = told.get(f"ssl.{store}.location")
        for key, name in text_keys.items():
            one = told.get(f"ssl.{store}.{key}") or path
            if one and one.text.strip():
                found[name] = one.text if name != "key_file" else SecretStr(one.text)
    return found


def _check_kind(store: str, told: Mapping[str, Told], notes: Notes) -> None:
    given = [told[key] for key in told if key.startswith(f"ssl.{store}.")]
    kind = told.get(f"ssl.{store}.type")
    needed = [one for one in given if not one.where[1].endswith((".password", ".type"))]
    if needed and (kind is None or kind.text.strip().upper() != "PEM"):
        where = kind.where if kind else needed[0].where
        notes.wrong(
            where,
            f"only PEM is read, with ssl.{store}.type=PEM: export the certificates of a Java store "
            "by keytool -exportcert -rfc, and keys by openssl pkcs12",
        )
    for one in given:
        if is_placeholder(one.text):
            notes.wrong(one.where, f"still has {PLACEHOLDER}")
