"""A catalog that hands out the keys of the object store: the manifest has none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests
from pyiceberg.catalog import Catalog

import devservers
from dataflow_assets.connectors.iceberg import IcebergSink, IcebergSource
from dataflow_assets.errors import PermanentError
from tests.connectors.iceberg.driver import connection, expected, ids, opened, pump
from tests.connectors.iceberg.source_driver import ids as found_ids
from tests.connectors.iceberg.source_driver import read

TABLE = "/tables/"


@dataclass
class Vending:
    """The catalog of the test server, with keys in each answer about a table."""

    upstream: str
    keys: dict[str, str]
    asked: list[str] = field(default_factory=list)
    """What tables were asked for with, header by header."""

    def start(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, path: str, body: bytes) -> bytes:
        if TABLE in path or path.endswith("/tables"):
            found = json.loads(body or b"{}")
            if "metadata" in found:
                return json.dumps(found | {"config": found.get("config", {}) | self.keys}).encode()
        return body


def _handler(vending: Vending) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def forward(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size) if size else None
            kept = ("Authorization", "Content-Type", "X-Iceberg-Access-Delegation")
            headers = {name: self.headers[name] for name in kept if name in self.headers}
            if TABLE in self.path:
                vending.asked.append(self.headers.get("X-Iceberg-Access-Delegation", ""))
            url = vending.upstream + self.path
            answer = requests.request(self.command, url, data=body, headers=headers, timeout=30)
            found = vending.answer(self.path, answer.content) if answer.ok else answer.content
            self.send_response(answer.status_code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else found)

        def log_message(self, *_: object) -> None: ...

    for method in ("GET", "POST", "DELETE", "HEAD"):
        setattr(Handler, f"do_{method}", Handler.forward)
    return Handler


@pytest.fixture
def vending(seaweedfs: devservers.SeaweedFS) -> Iterator[Vending]:
    keys = {
        "s3.access-key-id": seaweedfs.access_key,
        "s3.secret-access-key": seaweedfs.secret_key,
    }
    found = Vending(seaweedfs.uri, keys)
    found.start()
    yield found
    found.stop()


def _without_keys(
    vending: Vending, seaweedfs: devservers.SeaweedFS, namespace: str
) -> dict[str, object]:
    config = connection(seaweedfs, namespace, "orders") | {"catalogURI": vending.uri}
    return {name: value for name, value in config.items() if "ccessKey" not in name}


def test_a_table_is_written_and_read_by_the_keys_of_the_catalog(
    vending: Vending, seaweedfs: devservers.SeaweedFS, catalog: Catalog, namespace: str
) -> None:
    config = _without_keys(vending, seaweedfs, namespace)
    sink = IcebergSink.model_validate({**config, "autoCreateTable": True})
    session = opened(sink)
    pump(sink, session, 0, 10)
    assert ids(catalog, namespace) == expected(10)
    found, _ = read(IcebergSource.model_validate(config))
    assert sorted(found_ids(found)) == expected(10)
    assert set(vending.asked) == {"vended-credentials"}


def test_keys_that_the_catalog_replaces_are_used_from_the_next_micro_batch_on(
    vending: Vending, seaweedfs: devservers.SeaweedFS, catalog: Catalog, namespace: str
) -> None:
    """Those of a session are good for an hour or so; a run is open for longer."""
    config = _without_keys(vending, seaweedfs, namespace)
    sink = IcebergSink.model_validate({**config, "autoCreateTable": True})
    session = opened(sink)
    pump(sink, session, 0, 5)
    good = dict(vending.keys)
    vending.keys["s3.secret-access-key"] = "expired"
    with pytest.raises(PermanentError, match="check the credentials and what they may do"):
        pump(sink, session, 5, 5)
    vending.keys.update(good)
    pump(sink, session, 5, 5)
    assert ids(catalog, namespace) == expected(10)
