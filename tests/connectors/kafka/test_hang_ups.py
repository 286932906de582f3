"""A broker that goes away, or is silent, in the middle of a login refuses nobody."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from dataflow_assets.connectors.kafka.client import KafkaBroker
from dataflow_assets.connectors.kafka.cluster import Cluster, security
from dataflow_assets.errors import TransientError
from tests.connectors.kafka.impatient import impatient

_VERSIONS, _HANDSHAKE, _UNSUPPORTED = 18, 17, 35
_KEYS = ((0, 9), (1, 11), (2, 6), (3, 9), (10, 2), (_HANDSHAKE, 1), (_VERSIONS, 0), (36, 1))


class HangingUp:
    """Answers what it is asked about versions, and hangs up on the handshake."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.asked = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, struct.error), connection.makefile("rb") as stream:
            while True:
                (size,) = struct.unpack(">i", stream.read(4))
                key, version, number = struct.unpack(">hhi", stream.read(size)[:8])
                if key != _VERSIONS:
                    self.asked += key == _HANDSHAKE
                    return
                error = 0 if version == 0 else _UNSUPPORTED
                listed = b"".join(struct.pack(">hhh", one, 0, most) for one, most in _KEYS)
                body = struct.pack(">ihi", number, error, len(_KEYS)) + listed
                connection.sendall(struct.pack(">i", len(body)) + body)


@pytest.fixture
def hanging_up() -> Iterator[HangingUp]:
    broker = HangingUp()
    yield broker
    broker.close()


def test_a_broker_that_goes_away_in_the_login_is_waited_for(
    hanging_up: HangingUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a rolling restart; its own word that a password is wrong is another one."""
    impatient(monkeypatch)
    login = {"mechanism": "PLAIN", "username": "u", "password": "topsecret"}
    cluster = Cluster(hanging_up.address, security("SASL_PLAINTEXT", None, login))
    with pytest.raises(TransientError) as caught:
        KafkaBroker(cluster, "t").topic()
    assert hanging_up.asked
    assert "check sasl" not in str(caught.value)
