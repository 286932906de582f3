"""Reads the security of Java clients: TLS and logins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr, ValidationError

from dataflow_assets.languages.common.key_tables import is_placeholder, placeholder
from dataflow_assets.languages.common.notes import Notes, Where
from dataflow_assets.languages.common.references import is_shell_variable, reference
from dataflow_assets.secrets import SecretRef
from dataflow_assets.secrets.tls import NO_FORM, names_one

_JAAS = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\')')
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True)
class ClientSetting:
    """One setting of the consumer, and where it is written."""

    text: str
    where: Where


def security(settings: Mapping[str, ClientSetting], notes: Notes, nowhere: Where) -> dict[str, Any]:
    """Returns how brokers are reached, as fields of a source or sink; `notes` gets what is wrong.

    What is missing is told at `nowhere`.
    """
    protocol = settings.get("security.protocol")
    name = protocol.text.strip().upper() if protocol else "PLAINTEXT"
    if name not in _PROTOCOLS:
        notes.wrong(protocol.where if protocol else nowhere, f"allowed: {', '.join(_PROTOCOLS)}")
        return {}
    fields: dict[str, Any] = {"security_protocol": name}
    where = protocol.where if protocol else nowhere
    if "SASL" in name:
        fields["sasl"] = _sasl(settings, notes, where)
    if "SSL" in name:
        fields["tls"] = _tls(settings, notes)
    return fields


def _sasl(settings: Mapping[str, ClientSetting], notes: Notes, where: Where) -> dict[str, Any]:
    mechanism, jaas = settings.get("sasl.mechanism"), settings.get("sasl.jaas.config")
    fields: dict[str, Any] = {}
    allowed = f"allowed: {', '.join(_MECHANISMS)}"
    if mechanism is None:
        notes.wrong(where, f"needs sasl.mechanism; {allowed}")
    elif mechanism.text.strip() not in _MECHANISMS:
        notes.wrong(mechanism.where, f"not supported; {allowed}")
    else:
        fields["mechanism"] = mechanism.text.strip()
    if jaas is None:
        notes.wrong(where, "needs sasl.jaas.config, with username and password")
        return fields
    words = {key: double or single for key, double, single in _JAAS.findall(jaas.text)}
    for key in ("username", "password"):
        if not words.get(key):
            notes.wrong(jaas.where, f'needs {key}="..."')
        else:
            fields |= field_or_reference(
                key, re.sub(r"\\(.)", r"\1", words[key]), jaas.where, notes
            )
    return fields


def field_or_reference(name: str, text: str, where: Where, notes: Notes) -> dict[str, Any]:
    """One field, by its value or by the reference to it."""
    if unwritten := placeholder(text):
        notes.wrong(where, f"{unwritten}: write the value, or remove the key")
        return {}
    if is_shell_variable(text):
        notes.note(where, "is taken as it is written: a variable is written ${env:VARIABLE}")
    try:
        ref: SecretRef | None = reference(text)
    except ValidationError:
        notes.wrong(where, "a Secret is named as ${secrets:NAMESPACE/NAME:KEY}")
        return {}
    except ValueError as error:
        notes.wrong(where, str(error))
        return {}
    return {f"{name}_secret_ref": ref} if ref else {name: text}


def _tls(settings: Mapping[str, ClientSetting], notes: Notes) -> dict[str, Any]:
    """PEM, as text or by absolute path; Java's own stores cannot be read."""
    names = settings.get("ssl.endpoint.identification.algorithm")
    if names and names.text.strip().lower() != "https":
        notes.wrong(
            names.where,
            "not supported: the brokers' names are checked; give their certificates the names by "
            "which bootstrap.servers reaches them",
        )
    fields: dict[str, Any] = {}
    for store, text_keys in (
        ("truststore", {"certificates": "ca_file"}),
        ("keystore", {"certificate.chain": "cert_file", "key": "key_file"}),
    ):
        _check_kind(store, settings, notes)
        path = settings.get(f"ssl.{store}.location")
        for key, name in text_keys.items():
            one = settings.get(f"ssl.{store}.{key}") or path
            if one and one.text.strip():
                if not (names_one(one.text) or is_placeholder(one.text)):
                    notes.wrong(one.where, NO_FORM)
                fields[name] = one.text if name != "key_file" else SecretStr(one.text)
    return fields


def _check_kind(store: str, settings: Mapping[str, ClientSetting], notes: Notes) -> None:
    kinds = [settings[key] for key in settings if key.startswith(f"ssl.{store}.")]
    kind = settings.get(f"ssl.{store}.type")
    needed = [one for one in kinds if not one.where[1].endswith((".password", ".type"))]
    if needed and (kind is None or kind.text.strip().upper() != "PEM"):
        where = kind.where if kind else needed[0].where
        notes.wrong(
            where,
            f"only PEM is read, with ssl.{store}.type=PEM: export the certificates of a Java store "
            "by keytool -exportcert -rfc, and keys by openssl pkcs12",
        )
    for one in kinds:
        if unwritten := placeholder(one.text):
            notes.wrong(one.where, f"{unwritten}: write the value")
