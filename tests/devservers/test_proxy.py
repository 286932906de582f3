"""The proxy of the fault tests does to a connection what it says, and nothing to the others."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

import devservers
from devservers import Proxy

PAYLOAD = bytes(range(256)) * 8_000


class Echo(socketserver.ThreadingTCPServer):
    """Answers each line with itself, and keeps what it has read."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), EchoHandler)
        self.read: list[bytes] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is part of the game."""


class EchoHandler(socketserver.BaseRequestHandler):
    server: Echo

    def handle(self) -> None:
        while chunk := self.request.recv(65_536):
            self.server.read.append(chunk)
            self.request.sendall(chunk)


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.port) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


def ask(client: socket.socket, sent: bytes) -> bytes:
    """What comes back of what was sent; less where the connection broke."""
    answer = b""
    try:
        client.sendall(sent)
        while len(answer) < len(sent) and (chunk := client.recv(65_536)):
            answer += chunk
    except ConnectionError:
        pass
    return answer


def test_everything_passes_both_ways_and_ends_as_it_would(echo: Echo, proxy: Proxy) -> None:
    with connect(proxy) as client:
        threading.Thread(target=client.sendall, args=(PAYLOAD,)).start()
        answer = b""
        while len(answer) < len(PAYLOAD):
            answer += client.recv(65_536)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    assert answer == PAYLOAD
    assert b"".join(echo.read) == PAYLOAD


def test_a_server_that_is_down_refuses_and_comes_back(proxy: Proxy) -> None:
    with connect(proxy) as live:
        assert ask(live, b"one") == b"one"
        proxy.refuse()
        assert ask(live, b"two") == b""
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.restore()
    with connect(proxy) as client:
        assert ask(client, b"three") == b"three"


def test_a_server_behind_it_that_is_down_breaks_new_connections() -> None:
    with Proxy(9) as proxy, connect(proxy) as client:
        assert ask(client, b"one") == b""


def test_cut_breaks_what_is_live_and_takes_new_connections(proxy: Proxy) -> None:
    with connect(proxy) as live:
        assert ask(live, b"one") == b"one"
        proxy.cut()
        assert ask(live, b"two") == b""
    with connect(proxy) as client:
        assert ask(client, b"three") == b"three"


def test_cut_in_the_middle_of_a_request(echo: Echo, proxy: Proxy) -> None:
    proxy.cut(after=lambda sent: b"commit" in sent)
    with connect(proxy) as client:
        assert ask(client, b"begin") == b"begin"
        assert ask(client, b"commit") == b""
    assert proxy.hits == 1
    with connect(proxy) as client:
        assert ask(client, b"commit") == b"commit"
    assert echo.read == [b"begin", b"com", b"commit"]


def test_an_answer_is_lost_after_the_server_has_given_it(echo: Echo, proxy: Proxy) -> None:
    proxy.lose_answer(after=lambda sent: b"commit" in sent, times=2)
    for expected in (b"", b"", b"commit"):
        with connect(proxy) as client:
            assert ask(client, b"begin") == b"begin"
            assert ask(client, b"commit") == expected
    assert proxy.hits == 2
    assert echo.read.count(b"commit") == 3


def test_the_third_request_from_now_on_over_all_connections(echo: Echo, proxy: Proxy) -> None:
    with connect(proxy) as client, connect(proxy) as other:
        assert ask(client, b"before") == b"before"
        proxy.lose_answer(after=3)
        answers = [ask(one, b"x") for one in (client, other, client, other)]
    assert answers == [b"x", b"x", b"", b"x"]
    assert proxy.hits == 1


def test_slow_delays_each_chunk_until_restored(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.slow(0.2)
        began = time.monotonic()
        assert ask(client, b"one") == b"one"
        assert time.monotonic() - began >= 0.4
        proxy.slow(3_600)
        proxy.restore()
        assert ask(client, b"two") == b"two"


@pytest.fixture
def database(postgresql: devservers.PostgreSQL, schema: str) -> Iterator[Proxy]:
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"create table {schema}.t (i int)")
    with Proxy(postgresql.port) as proxy:
        yield proxy


def through(postgresql: devservers.PostgreSQL, proxy: Proxy) -> str:
    return postgresql.dsn().replace(f":{postgresql.port}/", f":{proxy.port}/")


def rows(postgresql: devservers.PostgreSQL, schema: str) -> list[int]:
    with psycopg.connect(postgresql.dsn()) as connection:
        return [int(i) for (i,) in connection.execute(f"select i from {schema}.t order by 1")]


def test_a_transaction_whose_answer_is_lost_stands(
    postgresql: devservers.PostgreSQL, schema: str, database: Proxy
) -> None:
    with psycopg.connect(through(postgresql, database)) as connection:
        connection.execute(f"insert into {schema}.t values (1)")
        database.lose_answer(after=lambda sent: b"COMMIT" in sent)
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
    assert database.hits == 1
    assert rows(postgresql, schema) == [1]


def copy_numbers(dsn: str, table: str) -> None:
    with (
        psycopg.connect(dsn) as connection,
        connection.cursor() as cursor,
        cursor.copy(f"copy {table} from stdin") as copy,
    ):
        for number in range(50_000):
            copy.write_row((number,))


def test_a_copy_cut_in_the_middle_leaves_nothing(
    postgresql: devservers.PostgreSQL, schema: str, database: Proxy
) -> None:
    database.cut(after=lambda sent: b"7777" in sent)
    with pytest.raises(psycopg.OperationalError):
        copy_numbers(through(postgresql, database), f"{schema}.t")
    assert database.hits == 1
    assert rows(postgresql, schema) == []


def brokers(bootstrap: str, timeout: float = 20) -> list[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    found = admin.list_topics(timeout=timeout).brokers.values()
    return [f"{broker.host}:{broker.port}" for broker in found]


def test_a_broker_is_reached_through_the_proxy_alone(
    proxied_kafka: devservers.ProxiedKafka,
) -> None:
    bootstrap, proxied = proxied_kafka.bootstrap, proxied_kafka.proxied
    assert brokers(proxied) == [proxied]
    proxied_kafka.proxy.refuse()
    try:
        with pytest.raises(KafkaException):
            brokers(proxied, timeout=1)
        assert brokers(bootstrap) == [bootstrap]
    finally:
        proxied_kafka.proxy.restore()
    assert brokers(proxied) == [proxied]
