"""A TCP proxy in front of one server: what a dying server or network does to a client, on demand.

It knows no protocol. A *request* is what a client sends on one connection until the server says
something; a fault strikes the requests that meet its condition, `times` in all, and `hits` counts
how often it did: a test that does not look at `hits` may have tested nothing.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Self

from dataflow_assets.spark import system
from dataflow_assets.spark.process import LOOPBACK

CHUNK = 16 * 1024
TAIL = 64 * 1024  # bytes of a request that a condition is shown, the newest ones
QUIET_SECONDS = 0.05  # a server silent for so long has finished its answer

When = int | Callable[[bytes], bool]
"""The how-maniest request from now on, counted from 1; or whether it is this one, by its bytes."""


@dataclass
class _Fault:
    kind: Literal["cut", "lose"]
    when: When
    times: int
    requests: int = 0

    def meets(self, request: bytes, *, begins: bool) -> bool:
        self.requests += begins
        if isinstance(self.when, int):
            return begins and self.requests >= self.when
        return self.when(request)


class Proxy:
    """Forwards `port` on the loopback address to `upstream`, a port there; close it after use.

    Faults replace each other; all of them may be called while connections are at work.
    """

    def __init__(self, upstream: int, *, port: int | None = None) -> None:
        self.upstream = upstream
        self.port = port or system.free_ports(1)[0]
        self.hits = 0
        self._delay = 0.0
        self._fault: _Fault | None = None
        self._lock = threading.RLock()
        self._connections: set[_Connection] = set()
        self._listener: socket.socket | None = None
        self._listen()

    def refuse(self) -> None:
        """The server is down: live connections break, new ones are refused."""
        self._deafen()
        self._cut_all()

    def cut(self, after: When | None = None, *, times: int = 1) -> None:
        """Breaks live connections now, or each request that meets `after` in its middle."""
        if after is None:
            self._cut_all()
        else:
            self._arm(_Fault("cut", after, times))

    def lose_answer(self, after: When = 1, *, times: int = 1) -> None:
        """A request that meets `after` reaches the server, its answer does not reach the client.

        The connection breaks once the server has answered: whatever it committed is committed.
        """
        self._arm(_Fault("lose", after, times))

    def slow(self, seconds: float) -> None:
        """Every chunk (16 KiB at most) takes so much longer, either way."""
        self._delay = seconds

    def restore(self) -> None:
        """The end of all faults: listens again, at full speed; `hits` begin anew."""
        with self._lock:
            self._fault, self._delay, self.hits = None, 0.0, 0
            if self._listener is None:
                self._listen()

    def close(self) -> None:
        """Breaks what is live and frees the port; safe twice."""
        self.refuse()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _arm(self, fault: _Fault) -> None:
        with self._lock:
            self._fault, self.hits = fault, 0

    def struck(self, request: bytes, *, begins: bool) -> str | None:
        """The fault that this request meets, once for each time it is to strike."""
        with self._lock:
            fault = self._fault
            if fault is None or not fault.times or not fault.meets(request, begins=begins):
                return None
            fault.times -= 1
            return fault.kind

    def _listen(self) -> None:
        self._listener = socket.create_server((LOOPBACK, self.port), backlog=64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _deafen(self) -> None:
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):  # a blocked accept wakes up only by this
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                self._connect(client, listener)

    def _connect(self, client: socket.socket, listener: socket.socket) -> None:
        try:
            server = socket.create_connection((LOOPBACK, self.upstream))
        except OSError:
            client.close()
            return
        connection = _Connection(self, client, server)
        with self._lock:
            self._connections.add(connection)
            alive = self._listener is listener
        connection.start() if alive else connection.cut()

    def _cut_all(self) -> None:
        with self._lock:
            live = list(self._connections)
        for connection in live:
            connection.cut()

    def pause(self) -> None:
        """What a chunk waits for on its way."""
        if self._delay:
            time.sleep(self._delay)

    def forget(self, connection: _Connection) -> None:
        """A connection that has ended."""
        with self._lock:
            self._connections.discard(connection)


class _Connection:
    """One client's connection and ours to the server, with a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._request = b""
        self._answered = True
        self._losing = self._halved = False
        self._lock = threading.Lock()
        self._open = 2  # directions

    def start(self) -> None:
        for target in (self._forth, self._back):
            threading.Thread(target=self._pump, args=(target,), daemon=True).start()

    def cut(self) -> None:
        """Resets both ends, without what is on the way."""
        _break(self._client)
        _break(self._server)
        self._proxy.forget(self)

    def _end(self) -> None:
        self._client.close()
        self._server.close()
        self._proxy.forget(self)

    def _pump(self, target: Callable[[], None]) -> None:
        try:
            target()
        except OSError:
            self.cut()
        with self._lock:
            self._open -= 1
            last = not self._open
        if last:
            self._end()

    def _forth(self) -> None:
        while chunk := self._client.recv(CHUNK):
            begins, self._answered = self._answered, False
            self._request = ((b"" if begins else self._request) + chunk)[-TAIL:]
            struck = self._proxy.struck(self._request, begins=begins)
            self._proxy.pause()
            if struck == "cut":
                self._halve(chunk)
                return
            self._losing = self._losing or struck == "lose"
            self._server.sendall(chunk)
        self._server.shutdown(socket.SHUT_WR)

    def _back(self) -> None:
        while chunk := self._server.recv(CHUNK):
            self._answered = True
            if self._losing:
                self._swallow()
                self._hit()
                return
            self._proxy.pause()
            if not self._halved:
                self._client.sendall(chunk)
        self._client.shutdown(socket.SHUT_WR)

    def _halve(self, chunk: bytes) -> None:
        """The server reads a half, and the client no answer to it."""
        self._halved = True
        self._server.sendall(chunk[: len(chunk) // 2])
        time.sleep(QUIET_SECONDS)  # a reset right behind it would overtake it
        self._hit()

    def _swallow(self) -> None:
        """The rest of the answer."""
        self._server.settimeout(QUIET_SECONDS)
        with suppress(TimeoutError):
            while self._server.recv(CHUNK):
                pass

    def _hit(self) -> None:
        self._proxy.hits += 1
        self.cut()


def _break(end: socket.socket) -> None:
    """Closes with a reset; threads that wait on it wake up."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)
    end.close()
