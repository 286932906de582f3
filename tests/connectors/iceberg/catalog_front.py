"""A catalog in front of that of the test server: with keys, tokens and a prefix of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

import requests

import devservers

TABLE, TOKENS, CONFIG = "/tables/", "/v1/oauth/tokens", "/v1/config"
Answer = tuple[int, bytes]


@dataclass
class CatalogFront:
    """Passes on what it is asked; tables come with `keys`, as a catalog that hands them out."""

    upstream: devservers.SeaweedFS
    keys: dict[str, str] = field(default_factory=dict)
    apart: bool = False
    """Whether the keys come as `storage-credentials`, as newer catalogs hand them out."""
    credentials: Mapping[str, str] | None = None
    """The form that a client must send for a token of the front's own; None: none is needed."""
    lasts: int = 1000
    """How many requests a token of its own is good for."""
    prefix: str = ""
    """In front of the paths of tables; it does not name it."""
    page: bytes | None = None
    """What is answered to everything, as by the login of a proxy."""
    tokens_answer: Answer | None = None
    """What is answered to whoever asks for a token, instead of one."""
    asked: list[str] = field(default_factory=list)
    """What tables were asked for with, header by header."""
    heard: list[str] = field(default_factory=list)
    """The tokens that came, one for each request."""
    given: int = 0
    """How many tokens it has given."""

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[CatalogFront]:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

    def respond(self, method: str, path: str, body: bytes, headers: Any) -> Answer:
        if self.page is not None:
            return 200, self.page
        if path.endswith(TOKENS) and (self.credentials is not None or self.tokens_answer):
            return self._token(dict(parse_qsl(body.decode())))
        self.heard.append(headers.get("Authorization", "").removeprefix("Bearer "))
        if TABLE in path:
            self.asked.append(headers.get("X-Iceberg-Access-Delegation", ""))
        if self.credentials is not None and not self._lets_in():
            return 401, _error(401, "NotAuthorizedException", "the token has expired")
        return self._forward(method, path, body, headers)

    def _token(self, form: Mapping[str, str]) -> Answer:
        if self.tokens_answer:
            return self.tokens_answer
        wrong = [key for key, value in (self.credentials or {}).items() if form.get(key) != value]
        if wrong:
            return 400, json.dumps({"error": "invalid_scope"}).encode()
        self.given += 1
        self._uses = 0
        answer = {"access_token": f"token-{self.given}", "token_type": "bearer"}
        return 200, json.dumps(answer).encode()

    def _lets_in(self) -> bool:
        self._uses = getattr(self, "_uses", 0) + 1
        return self.heard[-1] == f"token-{self.given}" and self._uses <= self.lasts

    def _forward(self, method: str, path: str, body: bytes, headers: Any) -> Answer:
        names = ("Content-Type", "X-Iceberg-Access-Delegation", "Authorization")
        sent = {name: headers[name] for name in names if name in headers}
        if self.credentials is not None:
            sent["Authorization"] = f"Bearer {self._own_token()}"
        if self.prefix and not path.startswith(CONFIG):
            if not path.startswith(f"/v1/{self.prefix}/"):
                return 404, _error(404, "NotFoundException", "no such prefix")
            inner = f"/v1/{self._upstream_prefix()}/".replace("//", "/")
            path = path.replace(f"/v1/{self.prefix}/", inner, 1)
        found = requests.request(
            method, self.upstream.uri + path, data=body or None, headers=sent, timeout=30
        )
        return found.status_code, self._changed(path, found)

    def _changed(self, path: str, found: requests.Response) -> bytes:
        if not found.ok or not found.content.startswith(b"{"):
            return found.content
        answer = found.json()
        if path.startswith(CONFIG) and self.prefix:
            for part in ("defaults", "overrides"):
                answer.get(part, {}).pop("prefix", None)
        if "metadata" in answer and (TABLE in path or path.endswith("/tables")):
            if self.apart:
                answer["storage-credentials"] = [{"prefix": "s3://", "config": self.keys}]
            else:
                answer["config"] = answer.get("config", {}) | self.keys
        return json.dumps(answer).encode()

    def _own_token(self) -> str:
        id_, _, secret = self.upstream.credential.partition(":")
        form = {"grant_type": "client_credentials", "client_id": id_, "client_secret": secret}
        answer = requests.post(self.upstream.uri + TOKENS, data=form, timeout=30)
        return str(answer.json()["access_token"])

    def _upstream_prefix(self) -> str:
        answer = requests.get(
            self.upstream.uri + CONFIG,
            params={"warehouse": self.upstream.warehouse},
            headers={"Authorization": f"Bearer {self._own_token()}"},
            timeout=30,
        ).json()
        return str((answer["defaults"] | answer["overrides"]).get("prefix", ""))


def _error(code: int, kind: str, message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode()


def _handler(front: CatalogFront) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size) if size else b""
            status, found = front.respond(self.command, self.path, body, self.headers)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else found)

        def log_message(self, *_: object) -> None: ...

    for method in ("GET", "POST", "DELETE", "HEAD"):
        setattr(Handler, f"do_{method}", Handler.respond)
    return Handler
