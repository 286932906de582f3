"""ClickHouse behind TLS: what a connection string or a block `tls` can ask of it, and refusals."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import ValidationError

import devservers
from dataflow_assets.connectors.clickhouse import ClickhouseSink
from dataflow_assets.contracts import Rejects, Run, Target
from dataflow_assets.errors import PermanentError
from dataflow_assets.spec import hints
from devservers.certificates import EXPIRED, Authority, Certificate

TARGET = Target("default/f", "b", "h", "src", "id", Rejects("skip"))


class Front:
    """Speaks TLS to clients and HTTP to the server behind it."""

    def __init__(self, behind: int, shown: Certificate, ca: Path | None = None) -> None:
        self._behind = behind
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(shown.cert, shown.key)
        if ca is not None:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(ca)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._one, args=(client,), daemon=True).start()

    def _one(self, client: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            self._context.wrap_socket(client, server_side=True) as wrapped,
            socket.create_connection(("127.0.0.1", self._behind)) as server,
        ):
            back = threading.Thread(target=_pump, args=(server, wrapped), daemon=True)
            back.start()
            _pump(wrapped, server)
            back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


class Tls:
    """Fronts of one server: with a certificate, with one that has expired, with one of a client."""

    def __init__(self, folder: Path, server: devservers.ClickHouse) -> None:
        self._who, behind = f"{server.user}:{server.password}", server.port
        self.trusted = Authority(folder, "trusted")
        self.foreign = Authority(folder, "foreign")
        shown = self.trusted.issue("clickhouse")
        self.fronts = {
            "tls": Front(behind, shown),
            "mtls": Front(behind, shown, self.trusted.ca),
            "expired": Front(behind, self.trusted.issue("old", days=EXPIRED)),
            "elsewhere": Front(behind, self.trusted.issue("far", hosts=("DNS:far.example",))),
        }

    def dsn(self, database: str, front: str = "tls", **options: str) -> str:
        query = "&".join(f"{key}={quote(value)}" for key, value in options.items())
        return f"https://{self._who}@127.0.0.1:{self.fronts[front].port}/{database}?{query}"

    @property
    def mine(self) -> dict[str, str]:
        found = self.trusted.issue("flow")
        return {"client_cert": str(found.cert), "client_cert_key": str(found.key)}


@pytest.fixture(scope="module")
def tls(
    tmp_path_factory: pytest.TempPathFactory, clickhouse: devservers.ClickHouse
) -> Iterator[Tls]:
    made = Tls(tmp_path_factory.mktemp("tls"), clickhouse)
    yield made
    for front in made.fronts.values():
        front.close()


def opened(dsn: str, **more: Any) -> None:
    declared = {"connectionString": dsn, "table": "t", "autoCreateTable": True, **more}
    ClickhouseSink.model_validate(declared).open(TARGET, Run()).close()


ACCEPTED: dict[str, Callable[[Tls, str], tuple[str, dict[str, Any]]]] = {
    "CA by path": lambda tls, db: (tls.dsn(db, ca_cert=str(tls.trusted.ca)), {}),
    "CA as text": lambda tls, db: (tls.dsn(db, ca_cert=tls.trusted.ca.read_text()), {}),
    "unchecked": lambda tls, db: (tls.dsn(db, "expired", skip_verify="true"), {}),
    "block": lambda tls, db: (tls.dsn(db), {"tls": {"caFile": str(tls.trusted.ca)}}),
    "block, unchecked": lambda tls, db: (
        tls.dsn(db, "elsewhere"),
        {"tls": {"insecureSkipVerify": True}},
    ),
    "client certificate": lambda tls, db: (
        tls.dsn(db, "mtls", ca_cert=str(tls.trusted.ca), **tls.mine),
        {},
    ),
}


@pytest.mark.parametrize("way", ACCEPTED)
def test_what_is_right_is_accepted(tls: Tls, database: str, way: str) -> None:
    dsn, more = ACCEPTED[way](tls, database)
    opened(dsn, **more)


REFUSED: dict[str, tuple[Callable[[Tls, str], str], str]] = {
    "wrong CA": (
        lambda tls, db: tls.dsn(db, ca_cert=str(tls.foreign.ca)),
        r"another CA than that of tls\.caFile, or ca_cert has signed its certificate",
    ),
    "no CA": (lambda tls, db: tls.dsn(db), "no CA that this machine trusts has signed"),
    "expired": (
        lambda tls, db: tls.dsn(db, "expired", ca_cert=str(tls.trusted.ca)),
        "its certificate has expired",
    ),
    "wrong host": (
        lambda tls, db: tls.dsn(db, "elsewhere", ca_cert=str(tls.trusted.ca)),
        r"its certificate is not for 127\.0\.0\.1",
    ),
    "no client certificate": (
        lambda tls, db: tls.dsn(db, "mtls", ca_cert=str(tls.trusted.ca)),
        r"it asks for a client's certificate; set tls\.certFile, or client_cert",
    ),
    "no file": (
        lambda tls, db: tls.dsn(db, ca_cert="/nowhere/ca.crt"),
        r"connectionString: ca_cert: /nowhere/ca\.crt: No such file",
    ),
}


@pytest.mark.parametrize("refusal", REFUSED)
def test_a_refusal_is_one_sentence(tls: Tls, database: str, refusal: str) -> None:
    dsn, sentence = REFUSED[refusal]
    with pytest.raises(PermanentError, match=sentence) as caught:
        opened(dsn(tls, database))
    assert "\n" not in str(caught.value)
    assert "BEGIN" not in str(caught.value)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("http://h/d?ca_cert=/c", "ca_cert without encryption; write https:// or secure=true"),
        ("https://h/d?ca_cert=c.pem", "ca_cert must be an absolute path, PEM text, or the name"),
        ("https://h/d?client_cert=/c", "client_cert and client_cert_key belong together"),
    ],
)
def test_what_cannot_be_meant_is_found_when_a_manifest_is_read(query: str, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        ClickhouseSink.model_validate({"connectionString": query, "table": "t"})


def test_a_block_needs_an_encrypted_connection() -> None:
    sink = ClickhouseSink.model_validate(
        {"connectionString": "http://h:1/d", "table": "t", "tls": {}}
    )
    with pytest.raises(PermanentError, match="there is a block tls, but the connection is not"):
        sink.dsn()


def test_what_is_not_checked_is_noted() -> None:
    declared = {"connectionString": "https://h:1/d?skip_verify=true", "table": "t"}
    ((path, note),) = hints(ClickhouseSink.model_validate(declared))
    assert path == "connectionString"
    assert "is not checked" in note
