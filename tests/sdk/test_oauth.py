"""Tokens while the server that gives them is away: the last one counts for as long as it lives."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests

from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import Statement
from dataflow_assets.connectors.trino.errors import Coordinator, TrinoFailure
from dataflow_assets.connectors.trino.table.checkpoint_upkeep import keep_small
from dataflow_assets.connectors.trino.table.table import TrinoPlace
from dataflow_assets.errors import TransientError
from dataflow_assets.sdk import oauth
from dataflow_assets.sdk.oauth import RETRIED_AFTER, Grant, Tokens
from tests.clock import Clock

LIFE = 100


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(oauth, "time", found)
    return found


@contextmanager
def served(port: int = 0) -> Iterator[tuple[int, list[str]]]:
    """A token endpoint that numbers its tokens: its port, and what it has given."""
    given = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            given.append(f"token-{len(given) + 1}")
            body = {"access_token": given[-1], "expires_in": LIFE, "token_type": "Bearer"}
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port, given
        server.shutdown()
        thread.join(10)


def test_a_token_that_cannot_be_renewed_counts_until_it_expires(clock: Clock) -> None:
    with served() as (port, given):
        known = Tokens(Grant(f"http://127.0.0.1:{port}/token", "client", "secret"))
        assert known.current() == "token-1"
        clock.now += LIFE * 0.79
        assert known.current() == "token-1"
    clock.now += LIFE * 0.1
    assert known.current() == "token-1"
    with served(port) as (_, later):
        assert known.current() == "token-1", "it is not asked for with each request"
        clock.now += RETRIED_AFTER
        assert known.current() == "token-1"
        assert len(later) == 1
    clock.now += LIFE
    with pytest.raises(TransientError, match="no token for client client from"):
        known.current()
    assert given == ["token-1"]


def test_only_one_thread_waits_for_a_server_that_does_not_answer(clock: Clock) -> None:
    """Which takes the connection and says nothing, as one does that drops packets."""
    with served() as (port, _):
        known = Tokens(Grant(f"http://127.0.0.1:{port}/token", "client", "secret"))
        known.current()
    clock.now += LIFE * 0.85
    with socket.create_server(("127.0.0.1", port)) as silent, ThreadPoolExecutor() as pool:
        first = pool.submit(known.current)
        taken, _address = silent.accept()
        try:
            assert pool.submit(known.current).result(1) == "token-1"
            assert not first.done()
        finally:
            taken.close()
        assert first.result(10) == "token-1"


def test_a_thread_with_a_valid_token_does_not_wait_long(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth, "EARLY_TIMEOUT", 0.1)
    with served() as (port, _):
        known = Tokens(Grant(f"http://127.0.0.1:{port}/token", "client", "secret"))
        known.current()
    clock.now += LIFE * 0.85
    with socket.create_server(("127.0.0.1", port)), ThreadPoolExecutor() as pool:
        assert pool.submit(known.current).result(10) == "token-1"


def test_a_late_refusal_of_the_last_token_does_not_take_the_new_one_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread hears of it when another one has just fetched the next token."""
    renew = Tokens._renew

    def refused_late(self: Tokens) -> None:
        renew(self)
        self.forget()

    monkeypatch.setattr(Tokens, "_renew", refused_late)
    with served() as (port, _):
        known = Tokens(Grant(f"http://127.0.0.1:{port}/token", "client", "secret"))
        assert known.current() == "token-1"


def test_a_token_that_was_refused_does_not_count(clock: Clock) -> None:
    with served() as (port, _):
        known = Tokens(Grant(f"http://127.0.0.1:{port}/token", "client", "secret"))
        known.current()
    clock.now += LIFE * 0.85
    assert known.current() == "token-1"
    known.forget()
    with pytest.raises(TransientError):
        known.current()


def test_a_statement_without_a_token_to_cancel_it_with_says_why_it_failed() -> None:
    def away(_: str) -> None:
        raise requests.ConnectionError("gone")

    def without_token(_: str) -> None:
        raise TransientError("no token")

    request = cast("Any", SimpleNamespace(get=away, delete=without_token, process=None))
    status = cast("Any", SimpleNamespace(id="q", next_uri="http://t/q", columns=None, rows=[]))
    statement = Statement(request, Coordinator("t", 80), status, encrypted=False)
    with pytest.raises(TrinoFailure, match="no answer from t:80"):
        statement.run()


def test_what_nothing_depends_on_ends_no_run_for_lack_of_a_token() -> None:
    away = {"serverURL": "http://127.0.0.1:1", "realm": "r", "clientID": "c", "clientSecret": "s"}
    given = {"serverURL": "http://127.0.0.1:1", "catalog": "c", "schema": "s", "table": "t"}
    sink = TrinoSink.model_validate(given | {"keycloak": away})
    keep_small(sink, TrinoPlace("c", "s", "t"), "b")
