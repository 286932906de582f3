"""Certificates for servers of tests and their clients, made by openssl in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dataflow_assets.spark.process import LOOPBACK
from devservers.programs import run

DAYS = 3_650  # a demo whose data is kept goes on with them
EXPIRED = -1
HERE = ("DNS:localhost", f"IP:{LOOPBACK}")
_CONFIG = """
[req]
distinguished_name = dn
prompt = no
[dn]
CN = {name}
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = CA:FALSE
keyUsage = digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = {hosts}
"""


@dataclass(frozen=True)
class Certificate:
    """A certificate, its key (PKCS#8, without password), and both with the CA in one file."""

    cert: Path
    key: Path
    bundle: Path


def key_pair(private: Path, public: Path) -> None:
    """Makes a key that tokens are signed with, and what they are checked by, unless they exist."""
    if not public.exists():
        _openssl("genpkey", "-algorithm", "RSA", "-out", str(private))
        _openssl("pkey", "-in", str(private), "-pubout", "-out", str(public))


@dataclass(frozen=True)
class Authority:
    """A CA of the name `name`, made in `folder` when it is first used."""

    folder: Path
    name: str

    @cached_property
    def ca(self) -> Path:
        """The CA's own certificate."""
        path = self.folder / f"{self.name}.crt"
        if not path.exists():
            config = self._config(self.name, HERE)
            made = ["req", "-x509", "-config", config, "-extensions", "ca", "-days", str(DAYS)]
            _openssl(*made, *_new_key(self._key), "-out", str(path))
        return path

    def issue(self, name: str, hosts: Sequence[str] = HERE, days: int = DAYS) -> Certificate:
        """A certificate for a server at `hosts` and a client of this name, signed by the CA."""
        base = self.folder / f"{self.name}-{name}-{days}"
        found = Certificate(*(base.with_suffix(end) for end in (".crt", ".key", ".pem")))
        if not found.bundle.exists():
            request, config = base.with_suffix(".csr"), self._config(name, hosts)
            _openssl("req", "-new", "-config", config, *_new_key(found.key), "-out", str(request))
            signed = ["x509", "-req", "-in", str(request), "-CA", str(self.ca)]
            signed += ["-CAkey", str(self._key), "-CAcreateserial", "-days", str(days)]
            _openssl(*signed, "-extfile", config, "-extensions", "leaf", "-out", str(found.cert))
            parts = (found.key, found.cert, self.ca)
            found.bundle.write_text("".join(part.read_text() for part in parts))
        return found

    @property
    def _key(self) -> Path:
        return self.folder / f"{self.name}.key"

    def _config(self, name: str, hosts: Sequence[str]) -> str:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.name}-{name}.cnf"
        path.write_text(_CONFIG.format(name=name, hosts=", ".join(hosts)))
        return str(path)


def _new_key(path: Path) -> list[str]:
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    return [*curve, "-nodes", "-keyout", str(path)]


def _openssl(*arguments: str) -> None:
    run(["openssl", *arguments], f"openssl {arguments[0]}")
