"""Why a server refuses a connection, by SQLSTATE: a wrong password is final, a restart is not.

libpq keeps the SQLSTATE of a failed connection to itself, and both drivers pass on its words only,
which come in the server's language. But libpq writes the code instead of the words for whoever asks
it to between the first packet and the answer. So a refused connection is tried once more that way.
"""

from __future__ import annotations

import ctypes
import re
import select
import socket
import sys
import time
from collections.abc import Callable
from functools import cache

from psycopg import pq

from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.sdk import handshake

SECONDS = 5.0
NO_PASSWORD = "28P01"  # noqa: S105 - the code that a server gives for a wrong one
_SQLSTATE_ONLY = 3  # PQERRORS_SQLSTATE
_NO_TLS = "server does not support SSL"
_OF_TLS = re.compile(r"\bSSL\b|certificate|private key", re.IGNORECASE)
_SSL_REQUEST = bytes.fromhex("0000000804d2162f")
_OPTIONS = handshake.Options("sslrootcert", "sslcert", "sslkey", "the connection string")
_SILENT = re.compile(r"(?:port \d+ failed|connection failed): (?!connection)(.+)")
_CODE = re.compile(r":  ([0-9A-Z]{5})$", re.MULTILINE)
_WAITING = {pq.PollingStatus.READING, pq.PollingStatus.WRITING}


def is_refusal(message: str) -> bool:
    """True for what a server has answered, as opposed to silence: libpq writes `FATAL:  words`."""
    return ":  " in message or "fe_sendauth" in message


def of_tls(connection: str, message: str) -> str:
    """What a person must change about certificates or names, as a clause; empty for nothing.

    libpq's words for them come in many versions, so Python's own TLS is asked; takes seconds at
    most, and only where libpq has spoken of TLS.
    """
    if _NO_TLS in message:
        return "the server does not encrypt; switch ssl on there, or lower sslmode"
    if not _OF_TLS.search(message):
        return ""
    material = dsn.material(connection)
    for host, address, port in dsn.endpoints(connection):
        where = host, int(port)
        if trouble := handshake.trouble(material, where, _OPTIONS, _greet, address=address):
            return trouble
    return ""


def _greet(plain: socket.socket) -> None:
    plain.sendall(_SSL_REQUEST)
    if plain.recv(1) != b"S":
        raise OSError("the server does not encrypt")


def words(message: str) -> str:
    """Returns what the server said, without libpq's account of the ways it tried."""
    parts = [line.partition(":  ")[2] for line in message.splitlines() if ":  " in line]
    return parts[0] if parts else message


def silence(message: str) -> str:
    """Why no server answers, in one line: libpq writes several, with a question in them."""
    reasons = [match[1] for line in message.splitlines() if (match := _SILENT.search(line))]
    short = "; ".join(dict.fromkeys(reasons)) or " ".join(message.split())
    short = re.sub(r"\[Errno -?\d+\] ", "", short)
    return f"{short}; check host and port of the connection string"


def sqlstate(conninfo: str) -> str | None:
    """The code that a new attempt is refused with; None when it is not, or when no server answers.

    libpq itself gives up where the server wants a password and there is none.
    """
    connection = pq.PGconn.connect_start(conninfo.encode())
    try:
        _speak_in_codes(connection)
        _attempt(connection, time.monotonic() + SECONDS)
        if connection.needs_password:
            return NO_PASSWORD
        codes = _CODE.findall(connection.error_message.decode(errors="replace"))
        return codes[-1] if codes else None
    finally:
        connection.finish()


def _attempt(connection: pq.abc.PGconn, deadline: float) -> None:
    state = pq.PollingStatus.WRITING
    while state in _WAITING and (left := deadline - time.monotonic()) > 0:
        ready = select.poll()  # `select` takes no descriptor above 1023
        reads = state == pq.PollingStatus.READING
        ready.register(connection.socket, select.POLLIN if reads else select.POLLOUT)
        ready.poll(left * 1000)
        state = pq.PollingStatus(connection.connect_poll())


def _speak_in_codes(connection: pq.abc.PGconn) -> None:
    speak, pointer = _verbosity(), getattr(connection, "pgconn_ptr", None)
    if speak is not None and pointer is not None:
        speak(pointer, _SQLSTATE_ONLY)


@cache
def _verbosity() -> Callable[[int, int], int] | None:
    """PQsetErrorVerbosity of the libpq that psycopg itself uses, found through psycopg's module."""
    path = sys.modules[pq.PGconn.__module__].__file__
    try:
        call = ctypes.CDLL(path).PQsetErrorVerbosity
    except (OSError, AttributeError):  # psycopg's pure Python: the words are all there is
        return None
    call.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return call
