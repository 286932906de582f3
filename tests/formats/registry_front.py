"""A registry behind TLS, user and password or token: a front of Python's own server before it."""

from __future__ import annotations

import base64
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

import urllib3

from devservers.certificates import Certificate


@dataclass
class Front:
    """What it does, where it is, and what it was asked."""

    behind: str
    allowed: str | None
    """The header that it asks for; None: none."""
    status: int | None
    """What it answers to everything; None: it passes on."""
    port: int = 0
    asked: list[str] = field(default_factory=list)

    def url(self, scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}"

    def answer(self, request: BaseHTTPRequestHandler, body: bytes | None) -> tuple[int, bytes]:
        self.asked.append(request.path)
        if self.status is not None:
            return self.status, b"<html>\nbusy</html>"
        if self.allowed is not None and request.headers.get("Authorization") != self.allowed:
            return 401, b'{"error_code": 40101, "message": "Unauthorized"}'
        kind = {"Content-Type": request.headers.get("Content-Type") or "application/json"}
        found = urllib3.request(
            request.command, self.behind + request.path, body=body, headers=kind
        )
        return found.status, found.data


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, front: Front) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.front = front
        front.port = self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size) if size else None
        status, content = cast("_Server", self.server).front.answer(self, body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815 - the library asks for this name

    def log_message(self, *_: object) -> None:
        pass


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@contextmanager
def front(
    behind: str,
    allowed: str | None = None,
    certificate: Certificate | None = None,
    client_ca: str | None = None,
    status: int | None = None,
) -> Iterator[Front]:
    """Runs until the end of the block."""
    found = Front(behind, allowed, status)
    server = _Server(found)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.cert, certificate.key)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
