"""A catalog whose answers get lost, come late, are wrong, or never come: rows stay exact."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ServerError

from dataflow_assets.connectors.iceberg import client
from dataflow_assets.connectors.iceberg.errors import translate_errors
from dataflow_assets.connectors.iceberg.table.commit import LOST_ANSWERS
from dataflow_assets.contracts import Run
from dataflow_assets.errors import PermanentError, TakenOver, TransientError
from devservers import SeaweedFS
from tests.connectors.iceberg.driver import (
    SOURCE,
    TARGET,
    MakeSink,
    expected,
    ids,
    make_sink,
    opened,
    pump,
    snapshots,
    span_of,
    stage,
)

Answer = tuple[int, bytes]
Forward = Callable[[], Answer]
Fault = Callable[[Forward], Answer | None]


class Proxy(ThreadingHTTPServer):
    """Forwards to the catalog; the next `times` commits are handed to `fault` instead."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.commits = 0
        self.down = False
        self._faults: list[Fault] = []

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def fail(self, fault: Fault, times: int = 1) -> None:
        """From now on; the count of commits begins anew."""
        self.commits, self._faults = 0, [fault] * times

    def answer(self, path: str, forward: Forward) -> Answer | None:
        if self.down:
            return None
        if "/tables/" not in path:
            return forward()
        self.commits += 1
        return self._faults.pop(0)(forward) if self._faults else forward()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is part of the game."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def do_GET(self) -> None:
        self._reply(None if self.server.down else self._forward(None))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._reply(self.server.answer(self.path, partial(self._forward, body)))

    def _forward(self, body: bytes | None) -> Answer:
        kept = ("authorization", "content-type", "x-iceberg-access-delegation")
        headers = {k: v for k, v in self.headers.items() if k.lower() in kept}
        request = urllib.request.Request(self.server.upstream + self.path, body, headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def _reply(self, answer: Answer | None) -> None:
        if answer is None:
            self.close_connection = True
            return
        self.send_response(answer[0])
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer[1])))
        self.end_headers()
        self.wfile.write(answer[1])

    def log_message(self, *args: object) -> None:
        """Keeps the test's output clean."""


def cut_before(_: Forward) -> Answer | None:
    """The request never arrives."""
    return None


def cut_after(forward: Forward) -> Answer | None:
    """The commit lands, nobody hears of it."""
    forward()
    return None


def sent_twice(forward: Forward) -> Answer | None:
    """Something on the way repeats the request: the second answer is a conflict."""
    forward()
    return forward()


def gateway_timeout_after(forward: Forward) -> Answer | None:
    """The commit lands, the gateway gives up on it."""
    forward()
    return 504, b""


def unavailable(_: Forward) -> Answer | None:
    return 503, b""


def server_error_after(forward: Forward) -> Answer | None:
    forward()
    return 500, b'{"error": {"message": "boom", "type": "InternalServerError", "code": 500}}'


def nonsense_after(forward: Forward) -> Answer | None:
    """The commit lands, the answer is somebody else's page."""
    forward()
    return 200, b"<html>welcome</html>"


def landing_late(forward: Forward) -> Answer | None:
    """The client is told of a failure; the request still arrives, half a second later."""
    threading.Timer(0.5, forward).start()
    return 504, b""


def conflict(_: Forward) -> Answer | None:
    return 409, b'{"error": {"message": "moved", "type": "CommitFailedException", "code": 409}}'


FAULTS = [
    cut_before,
    cut_after,
    sent_twice,
    gateway_timeout_after,
    server_error_after,
    nonsense_after,
    unavailable,
    landing_late,
    conflict,
]


@pytest.fixture
def proxy(seaweedfs: SeaweedFS) -> Iterator[Proxy]:
    with Proxy(seaweedfs.uri) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def make(seaweedfs: SeaweedFS, namespace: str, proxy: Proxy) -> MakeSink:
    return partial(make_sink, seaweedfs, namespace, catalogURI=proxy.uri)


@pytest.mark.parametrize("fault", FAULTS)
def test_rows_are_exact_whatever_becomes_of_the_commit(
    fault: Fault, make: MakeSink, proxy: Proxy, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    pump(sink, session, 0, 10)
    span = session.begin(span_of(10, 10))
    receipts = stage(sink, session, span)
    proxy.fail(fault, 2)
    done = session.finish(span, receipts, SOURCE)
    assert done.positions == {"p0": 20, "p1": 20}
    time.sleep(0.6 if fault is landing_late else 0)
    assert ids(catalog, namespace) == expected(20)
    pump(sink, session, 20, 10)
    assert ids(catalog, namespace) == expected(30)
    assert sink.peek(TARGET) == session.checkpoint
    assert session.checkpoint.totals.rows == 60


@pytest.mark.parametrize(
    "fault", [cut_after, sent_twice, gateway_timeout_after, server_error_after, nonsense_after]
)
def test_a_commit_whose_answer_was_lost_is_found_not_repeated(
    fault: Fault, make: MakeSink, proxy: Proxy, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    count = snapshots(catalog, namespace)
    proxy.fail(fault)
    pump(sink, session, 0, 10)
    assert proxy.commits == 1
    assert snapshots(catalog, namespace) == count + 1


def test_many_lost_requests_give_up_and_the_next_driver_goes_on(
    make: MakeSink, proxy: Proxy, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = opened(sink)
    proxy.fail(cut_before, 100)
    with pytest.raises(TransientError, match="no commit"):
        pump(sink, session, 0, 10)
    assert proxy.commits == LOST_ANSWERS + 1
    proxy.fail(conflict, 0)
    pump(sink, opened(sink), 0, 10)
    assert ids(catalog, namespace) == expected(10)


def test_a_takeover_after_the_commit_has_landed_keeps_its_files(
    make: MakeSink, proxy: Proxy, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    older = opened(sink)
    span = older.begin(span_of(0, 10))
    receipts = stage(sink, older, span)

    def land_then_take_over(forward: Forward) -> Answer | None:
        forward()
        opened(sink)
        return None

    proxy.fail(land_then_take_over)
    with pytest.raises(TakenOver):
        older.finish(span, receipts, SOURCE)
    assert ids(catalog, namespace) == expected(10)
    session = opened(sink)
    assert session.checkpoint.positions == {"p0": 10, "p1": 10}


def test_a_request_in_flight_cannot_land_on_the_new_owner(
    make: MakeSink, proxy: Proxy, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    older = opened(sink)
    span = older.begin(span_of(0, 10))
    receipts = stage(sink, older, span)
    late: list[Forward] = []

    def hold(forward: Forward) -> Answer | None:
        late.append(forward)
        pump(sink, opened(sink), 0, 10)
        return None

    proxy.fail(hold)
    with pytest.raises(TakenOver):
        older.finish(span, receipts, SOURCE)
    assert late[0]()[0] == 409
    assert ids(catalog, namespace) == expected(10)


def test_the_epoch_is_taken_through_lost_answers(make: MakeSink, proxy: Proxy) -> None:
    sink = make()
    opened(sink)
    proxy.fail(cut_after)
    session = sink.open(TARGET, Run())
    assert session.checkpoint.epoch == 2
    assert sink.peek(TARGET) == session.checkpoint


@pytest.mark.parametrize(
    ("shared_seconds", "failed"), [(0.0, "cannot reach the catalog"), (60.0, "cannot (load|read) ")]
)
def test_a_catalog_that_is_down_is_transient(
    make: MakeSink,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    shared_seconds: float,
    failed: str,
) -> None:
    """Where sessions share the catalog's client, the first question fails and not the connect."""
    monkeypatch.setattr(client, "SHARED_SECONDS", shared_seconds)
    sink = make()
    session = opened(sink)
    span = session.begin(span_of(0, 10))
    proxy.down = True
    for call in (partial(sink.open, TARGET, Run()), partial(sink.peek, TARGET)):
        with pytest.raises(TransientError, match=failed):
            call()
    with pytest.raises(TransientError):
        session.begin(span)


def test_the_sentence_of_a_catalog_that_is_down(namespace: str, seaweedfs: SeaweedFS) -> None:
    """What was asked for, who was asked, why there is no answer, and what to check."""
    sink = make_sink(seaweedfs, namespace, catalogURI="http://127.0.0.1:1")
    with pytest.raises(TransientError) as caught:
        sink.open(TARGET, Run())
    assert str(caught.value) == (
        f"cannot reach the catalog of {namespace}.orders at 127-0-0-1-1-s3-lake: no answer from "
        "127.0.0.1:1: Connection refused; check that a server runs there, and that the manifest "
        "has the address of the catalog"
    )


@pytest.mark.parametrize(
    "error",
    [
        OSError("in bucket 'raw': AWS Error NO_SUCH_BUCKET during PutObject operation: gone"),
        ServerError("NoSuchBucketException: The specified bucket does not exist"),
    ],
)
def test_a_bucket_that_is_not_there(seaweedfs: SeaweedFS, error: Exception) -> None:
    with (
        pytest.raises(PermanentError, match=r"create the bucket, or check s3Endpoint and catalogU"),
        translate_errors(make_sink(seaweedfs, "n"), "commit to"),
    ):
        raise error


def test_a_catalog_that_hangs_is_transient(
    make: MakeSink, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "TIMEOUT", (1.0, 0.5))
    sink = make()
    session = opened(sink)
    proxy.fail(lambda _: time.sleep(2), 100)
    with pytest.raises(TransientError, match="Timeout"):
        pump(sink, session, 0, 10)


def test_a_store_that_is_down_is_transient(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    opened(make())
    with pytest.raises(TransientError):
        opened(make(s3Endpoint="http://127.0.0.1:9"))


def test_wrong_credentials_are_permanent_and_not_told(make: MakeSink) -> None:
    with pytest.raises(PermanentError, match="check the credentials") as caught:
        make(oauth2ClientSecret="planted-secret").open(TARGET, Run())
    assert "planted-secret" not in str(caught.value)
    with pytest.raises(PermanentError, match="check the credentials") as caught:
        opened(make(secretAccessKey="planted-secret"))
    assert "planted-secret" not in str(caught.value)


def test_an_unknown_warehouse_is_permanent(make: MakeSink) -> None:
    with pytest.raises(PermanentError, match="check catalogURI, warehouse, namespace"):
        opened(make(warehouse="s3://nowhere"))
