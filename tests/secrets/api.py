"""A server that answers as the Kubernetes API does when it is asked for a Secret.

Real are TLS, the bearer token, the paths, and the documents and codes of the answers.
"""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

USER = "system:serviceaccount:flows:dataflow"


@dataclass
class Api:
    """Secrets by (namespace, name); the service account may read those of `readable`."""

    folder: Path
    secrets: dict[tuple[str, str], Mapping[str, bytes]] = field(default_factory=dict)
    readable: set[str] = field(default_factory=lambda: {"default", "shop"})
    token: str = "token-1"
    answers: list[int] = field(default_factory=list)
    """The codes of all answers so far."""
    broken: int = 0
    """A code that it answers instead, as a server that is overloaded."""

    def start(self) -> None:
        certificate, key = self.folder / "ca.crt", self.folder / "tls.key"
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"]
        made += ["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=api"]
        made += ["-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run(
            [*made, "-out", str(certificate), "-keyout", str(key)], check=True, capture_output=True
        )
        self.rotate(self.token)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def rotate(self, token: str) -> None:
        """The kubelet replaces the token in the file, and the old one ends."""
        self.token = token
        (self.folder / "token").write_text(token)

    def put(self, namespace: str, name: str, **values: str) -> None:
        self.secrets[namespace, name] = {key: text.encode() for key, text in values.items()}

    def answer(self, path: str, token: str) -> tuple[int, dict[str, Any]]:
        if self.broken:
            return self.broken, _status(self.broken, "the server is currently unable to handle it")
        if token != f"Bearer {self.token}":
            return 401, _status(401, "Unauthorized")
        match path.split("/"):
            case ["", "api", "v1", "namespaces", namespace, "secrets", name]:
                return self._secret(namespace, name)
        return 404, _status(404, "the server could not find the requested resource")

    def _secret(self, namespace: str, name: str) -> tuple[int, dict[str, Any]]:
        if namespace not in self.readable:
            what = f'secrets "{name}" is forbidden: User "{USER}" cannot get resource "secrets"'
            where = f'in API group "" in the namespace "{namespace}"'
            return 403, _status(403, f"{what} {where}")
        values = self.secrets.get((namespace, name))
        if values is None:
            return 404, _status(404, f'secrets "{name}" not found')
        data = {key: base64.b64encode(value).decode() for key, value in values.items()}
        metadata = {"name": name, "namespace": namespace}
        return 200, {"kind": "Secret", "apiVersion": "v1", "metadata": metadata, "data": data}


def _status(code: int, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "code": code,
    }


def _handler(api: Api) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, document = api.answer(self.path, self.headers.get("Authorization", ""))
            api.answers.append(code)
            body = json.dumps(document).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    return Handler
