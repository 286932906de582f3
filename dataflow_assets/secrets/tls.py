"""TLS for any client: certificates and keys as PEM text, wherever a manifest has them from.

A value is PEM text, the absolute path of a PEM file, or the name of one below DATAFLOW_SECRETS
(`namespace/name/key`). Clients that take text get text. Those that take files only get a private
file of this process, in memory where the system has such files, so that nothing is left behind
however the process ends. No error shows what a value or a file holds.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import SecretStr
from typing_extensions import override

from dataflow_assets.errors import PermanentError
from dataflow_assets.secrets import (
    FOLDER,
    Fills,
    SecretRef,
    is_place,
    mounted_file,
    replaced_meanwhile,
)
from dataflow_assets.secrets.private_files import private_file
from dataflow_assets.spec import Spec

LONGEST = 1024 * 1024  # bytes of a PEM file; a bundle of all public CAs has a quarter of it
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)
_BEGIN = "-----BEGIN"
_PATH = re.compile(r"/[\w. @/-]{1,1000}")  # what may be shown: no base64 looks like it
UNCHECKED = (
    "the server's certificate is not checked: whoever is between this machine and the server can "
    "read and change everything, passwords included; set caFile or caSecretRef instead"
)
EVERYWHERE = "the file must be on every machine where the flow runs, or its text in a Secret"
NO_FORM = f"must be an absolute path, PEM text, or namespace/name/key below {FOLDER}"
IN_CLEAR = "the credentials go over the network as they are: use https"

log = logging.getLogger(__name__)


@cache
def warn_unchecked(server: str) -> None:
    """Says in the log that a server's certificate is not checked.

    Called whenever a client is made that does not check it. Once in a process for each server: it
    is no error, but nobody should learn of it from a theft.

    Args:
        server: for people, with its address.
    """
    log.warning("%s: %s", server, UNCHECKED)


def is_plain(address: str) -> bool:
    """True where data is sent without encryption; a scheme may have capital letters."""
    return address.strip().lower().startswith("http:")


@cache
def warn_in_clear(server: str) -> None:
    """Says in the log that credentials are sent to a server without encryption.

    Called whenever a client is made that does so: `dataflow check` does not see an address that a
    Secret has. Once in a process for each server.

    Args:
        server: for people, with its address.
    """
    log.warning("%s: %s", server, IN_CLEAR)


@dataclass(frozen=True)
class Material:
    """A client's TLS material, as PEM text; empty for what is not given."""

    ca: str = field(default="", repr=False)
    """Those that may have signed the server's certificate; empty: the system's own."""
    cert: str = field(default="", repr=False)
    """The client's certificate, and those that lead to its CA."""
    key: str = field(default="", repr=False)
    """The client's private key."""
    verify: bool = True
    """Whether the server's certificate is checked."""
    names: bool = True
    """Whether it must be for the name by which the server is reached."""


class Tls(Spec):
    """Encryption. Without a CA the system's own are trusted."""

    insecure_skip_verify: bool = False
    """Do not check the server's certificate; ignored when a CA is given."""
    ca_file: str | None = None
    """The CA certificates (PEM) by which the server's certificate is checked: an absolute path, or
    `namespace/name/key` below `DATAFLOW_SECRETS`; a Secret holds the PEM text or such a path."""
    ca_secret_ref: Annotated[SecretRef | None, Fills("ca_file")] = None
    """Secret with the CA certificates, as PEM or as a path."""
    cert_file: str | None = None
    """The client's certificate for mTLS, with those that lead to its CA behind it; given as the CA
    is. Needs the key."""
    cert_secret_ref: Annotated[SecretRef | None, Fills("cert_file")] = None
    """Secret with the client's certificate, as PEM or as a path."""
    key_file: SecretStr | None = None
    """The key of the client's certificate, without a password; given as the CA is."""
    key_secret_ref: Annotated[SecretRef | None, Fills("key_file")] = None
    """Secret with the client's key, as PEM or as a path."""

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if bool(self.cert_file or self.cert_secret_ref) != bool(
            self.key_file or self.key_secret_ref
        ):
            yield "certFile and keyFile belong together: set both or none"
        for name, value in self.places_of_secrets():
            if not names_one(value):
                yield f"{type(self).model_fields[name].alias} {NO_FORM}"

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        if self.insecure_skip_verify and (self.ca_file or self.ca_secret_ref):
            yield "insecure_skip_verify", "ignored: a CA is given, by which the server is checked"
        elif self.insecure_skip_verify:
            yield "insecure_skip_verify", UNCHECKED

    @override
    def places_of_secrets(self) -> Iterator[tuple[str, str]]:
        key = None if self.key_file is None else self.key_file.get_secret_value()
        fields = {"ca_file": self.ca_file, "cert_file": self.cert_file, "key_file": key}
        return ((name, value) for name, value in fields.items() if value is not None)

    def material(self, where: str = "tls") -> Material:
        """The block's values as PEM text.

        Called with all secrets in place, on the driver and in tasks, whenever a client is made.

        Args:
            where: the block's key, for messages.

        Returns:
            The text of what is given, each checked to be what it must be.

        Raises:
            PermanentError: a file is missing, or a value is not what the option needs.
        """
        key = None if self.key_file is None else self.key_file.get_secret_value()
        values = {"ca_file": self.ca_file, "cert_file": self.cert_file, "key_file": key}
        for name, value in values.items():
            if value is not None and not value.strip():
                alias = type(self).model_fields[name].alias
                raise PermanentError(f"{where}.{alias}: the value, or its secret, is empty")
        loaded = Material(
            pem(self.ca_file, f"{where}.caFile"),
            pem(self.cert_file, f"{where}.certFile"),
            pem(key, f"{where}.keyFile"),
            verify=bool(self.ca_file) or not self.insecure_skip_verify,
        )
        context(loaded, where)
        return loaded


def pem(value: str | None, option: str) -> str:
    """The PEM text that an option's value is, or names.

    Args:
        value: PEM text, an absolute path, or `namespace/name/key`; None and blank: nothing.
        option: the option's name, for messages.

    Returns:
        The blocks of the text, without what is around them; empty where there is no value.

    Raises:
        PermanentError: there is no such file, or no PEM in it.
    """
    text = (value or "").strip()
    if not text:
        return ""
    if _BEGIN in text:
        return _blocks(text, f"{option}: the value")
    path, content = _read(text, option)
    return _blocks(content, f"{option}: {path}")


def context(material: Material, where: str = "tls") -> ssl.SSLContext:
    """A client's context of Python's own TLS, at least version 1.2.

    For clients in Python, and to look at what a server does that another client cannot explain.

    Args:
        material: what it trusts, and who it is.
        where: the key of the block, for messages.

    Raises:
        PermanentError: a certificate or key is broken, or they do not belong together.
    """
    return _context(material, where)


@lru_cache(maxsize=64)
def _context(material: Material, where: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if material.ca:  # and none else
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _trust(context, material.ca, f"{where}.caFile")
    context.check_hostname = material.verify and material.names
    context.verify_mode = ssl.CERT_REQUIRED if material.verify else ssl.CERT_NONE
    if material.cert:
        _identify(context, material, where)
    return context


def _trust(found: ssl.SSLContext, ca: str, option: str) -> None:
    try:
        found.load_verify_locations(cadata=ca)
    except (ssl.SSLError, ValueError):
        raise PermanentError(
            f"{option}: its PEM blocks must be CERTIFICATE, and whole: at least one is not"
        ) from None


def _identify(found: ssl.SSLContext, material: Material, where: str) -> None:
    if "ENCRYPTED" in material.key:
        raise PermanentError(
            f"{where}.keyFile: the key is protected by a password, which is not supported here; "
            "store it without: openssl pkey -in client.key -out plain.key"
        )
    try:
        found.load_cert_chain(
            private_file(material.cert), private_file(material.key), lambda: b"none"
        )
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = "do not belong together: the key is another certificate's"
        else:
            reason = "must be a certificate and a private key in PEM: one of them is broken"
        raise PermanentError(f"{where}: certFile and keyFile {reason}") from None


def names_one(value: str) -> bool:
    """True where an option's value has one of the three forms, whatever is in its file."""
    text = value.strip()
    return _BEGIN in text or text.startswith("/") or is_place(text)


def _path_of(text: str, option: str) -> Path:
    if text.startswith("/") and "\n" not in text:
        return Path(text)
    if is_place(text):
        path = mounted_file(text)
        if path is None:
            raise PermanentError(f"{option}: {FOLDER} has no file {text}")
        return path
    raise PermanentError(
        f"{option}: the value is neither PEM text ({_BEGIN} ...) nor a file's name; allowed are an "
        f"absolute path and namespace/name/key below {FOLDER}"
    )


def _read(text: str, option: str) -> tuple[str, str]:
    """The path of the file that a value names, and what the file holds."""
    try:
        with replaced_meanwhile(lambda: _path_of(text, option).open("rb")) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > LONGEST:
                raise PermanentError(f"{option}: {show(str(file.name))} is not a PEM file")
            return str(file.name), file.read(LONGEST).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        path, reason = text, None
        if isinstance(error, OSError):
            path, reason = str(error.filename or text), error.strerror
        raise PermanentError(
            f"{option}: {show(path)}: {reason or 'cannot be read'}; {EVERYWHERE}"
        ) from None


def show(path: str) -> str:
    """A path as messages may have it: what may be a secret itself is not repeated."""
    return path if _PATH.fullmatch(path) else "the file that it names"


def _blocks(text: str, what: str) -> str:
    blocks = [match[0] for match in _BLOCK.finditer(text)]
    if not blocks:
        raise PermanentError(
            f"{what} holds no whole PEM block ({_BEGIN} ...----- to -----END ...-----)"
        )
    return "\n".join(blocks) + "\n"
