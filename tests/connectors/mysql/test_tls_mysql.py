"""A MariaDB server with TLS: the block `tls` checks it, and what a person reads where it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import devservers
from dataflow_assets.connectors.mysql.client import MysqlClient
from dataflow_assets.connectors.mysql.errors import MysqlFailure
from dataflow_assets.connectors.mysql.source.source import MysqlSource
from dataflow_assets.errors import PermanentError
from dataflow_assets.spark.process import LOOPBACK
from devservers.certificates import Authority

OTHER = "another"


class Encrypted:
    """A server that takes encrypted connections only."""

    def __init__(self, server: devservers.MariaDB, ours: Authority, other: Authority) -> None:
        self.server, self.cas = server, {"": str(ours.ca), OTHER: str(other.ca)}

    def connect(self, tls: dict[str, Any] | None, host: str = LOOPBACK) -> str:
        """Connects, and returns the cipher."""
        given = {"host": host, "port": self.server.port, "database": self.server.database}
        given |= {"user": self.server.user, "password": self.server.password, "table": "t"}
        source = MysqlSource.model_validate(given | ({"tls": tls} if tls is not None else {}))
        with closing(MysqlClient(source, "tests")) as client:
            ((_, cipher),) = client.rows("SHOW STATUS LIKE 'Ssl_cipher'")
            return str(cipher)


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    folder = Path(tmp_path_factory.mktemp("mariadb"))
    ours, other = Authority(folder, "ours"), Authority(folder, OTHER)
    shown = ours.issue("server")
    files = {"ssl-ca": ours.ca, "ssl-cert": shown.cert, "ssl-key": shown.key}
    config = {"ssl": "1"} | {name: str(path) for name, path in files.items()}
    where = folder / ("server" * 20)  # a path that is too long for a socket
    with devservers.MariaDB(where, config=config) as server:
        server.execute("SET GLOBAL require_secure_transport = 1")
        yield Encrypted(server, ours, other)


def test_a_server_of_the_given_authority_is_trusted(encrypted: Encrypted) -> None:
    assert encrypted.connect({"caFile": encrypted.cas[""]})


def test_without_the_block_it_is_encrypted_all_the_same(encrypted: Encrypted) -> None:
    assert encrypted.connect(None)


def test_a_server_of_another_authority_is_refused(encrypted: Encrypted) -> None:
    with pytest.raises(MysqlFailure) as caught:
        encrypted.connect({"caFile": encrypted.cas[OTHER]})
    found = caught.value.error("opening")
    assert type(found) is PermanentError
    assert "another CA than that of tls.caFile has signed its certificate" in str(found)


def test_a_server_without_tls_is_refused_where_the_block_asks_for_it(
    mariadb: devservers.MariaDB, encrypted: Encrypted
) -> None:
    plain = Encrypted.__new__(Encrypted)
    plain.server, plain.cas = mariadb, encrypted.cas
    with pytest.raises(MysqlFailure) as caught:
        plain.connect({"caFile": encrypted.cas[""]})
    found = caught.value.error("opening")
    assert type(found) is PermanentError
    assert "leave `tls` out" in str(found)
