"""Addresses as other connectors write them, in files of a connector that has keys for the parts.

Connect would ignore such a key, and miss the parts. A password is never repeated, nor what cannot
be told from one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import parse_qsl, unquote

from dataflow_assets.languages.common.connect_keys import ADDITIONS
from dataflow_assets.languages.common.documents import Document
from dataflow_assets.languages.common.key_tables import entry
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.justone.reader.keys import CONNECTOR

_BEGIN = re.compile(r"\s*(?:jdbc:)?postgres(?:ql)?:", re.IGNORECASE)
_ADDRESS = re.compile(
    r"\s*(?:jdbc:)?postgres(?:ql)?://"
    r"(?:(?P<user>[^:@/?\s]+)(?P<password>:[^@/?\s]*)?@)?"
    r"(?P<host>[\w.,:\[\]-]+)/(?P<database>[\w.%-]+)(?:\?(?P<rest>\S*))?\s*",
    re.ASCII | re.IGNORECASE,
)
_PARTS = ("db.host", "db.database", "db.username")
_WRITABLE = re.compile(r"[\w.-]+", re.ASCII)
_GENERAL = "write its parts in db.host (host or host:port), db.database, db.username, db.password"


def is_address(key: str, text: str) -> bool:
    """Returns whether a key that should not have one has a whole address."""
    takes_one = entry(key, CONNECTOR, ADDITIONS) is not None and key not in _PARTS
    return not takes_one and _BEGIN.match(text) is not None


def split(document: Document, notes: Notes) -> Document:
    """The file with the parts of an address in the keys that the connector has for them.

    Where something had to be moved there is a finding, which says what to write; so nothing is said
    about the keys that are missing.
    """
    values = dict(document.value)
    for key, text in document.value.items():
        if not is_address(key, text):
            continue
        parts = dict(_parts(text))
        if key in _PARTS:
            notes.wrong((document, key), f"is a whole address: {_advice(parts, document.value)}")
        elif all(document.value.get(name, "").strip() for name in _PARTS[1:]):
            message = "is ignored, as Connect does it: db.host, db.database and db.username count"
            notes.note((document, key), message)
            continue
        else:
            message = f"is not a key of this connector: {_advice(parts, document.value)}"
            notes.wrong((document, key), message, key=True)
        filled = {name: parts.get(name, "-") for name in _PARTS}
        values = {**filled, **values, **({key: filled[key]} if key in _PARTS else {})}
    return replace(document, value=values)


def _parts(text: str) -> Iterator[tuple[str, str]]:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return
    yield "db.host", match["host"]
    yield "db.database", unquote(match["database"])
    user = match["user"] or dict(parse_qsl(match["rest"] or "")).get("user", "")
    if _WRITABLE.fullmatch(unquote(user)):
        yield "db.username", unquote(user)


def _advice(parts: Mapping[str, str], given: Mapping[str, str]) -> str:
    if not parts:
        return _GENERAL
    written = [f"{key}={text}" for key, text in parts.items()]
    for key, what in (("db.username", "the user"), ("db.password", "the password, if any")):
        if key not in parts and not given.get(key, "").strip():
            written.append(f"{key} ({what})")
    return f"write {', '.join(written)}"
