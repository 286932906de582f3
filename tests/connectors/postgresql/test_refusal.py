"""Connections that a server refuses: what a person must mend, and what passes by itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import devservers
from dataflow_assets.connectors.postgresql import PostgresqlSink, client, connection_errors, pool
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.contracts import Run, Target
from dataflow_assets.errors import DataflowError, PermanentError, TransientError

TARGET = Target("shop/orders", "postgresql:orders", "m1", "orders")
PASSWORD = "h@rd-s3cret"
LOCKED = "host all flow 127.0.0.1/32 scram-sha-256\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[devservers.PostgreSQL]:
    """A server that wants a password of role `flow`."""
    with devservers.PostgreSQL(tmp_path_factory.mktemp("refusal")) as server:
        rules = Path(server.folder, "data", "pg_hba.conf")
        rules.write_text(LOCKED + rules.read_text())
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE ROLE flow LOGIN PASSWORD 'right'")
            connection.execute("CREATE ROLE full LOGIN CONNECTION LIMIT 0")
            connection.execute("SELECT pg_reload_conf()")
        yield server


def dsn(server: devservers.PostgreSQL, user: str = "flow", name: str = "postgres") -> str:
    return f"host=127.0.0.1 port={server.port} user={user} password={PASSWORD} dbname={name}"


def opening(connection: str) -> DataflowError:
    """The error of a run that opens its sink; it comes at once."""
    sink = PostgresqlSink.model_validate({"connectionString": connection, "table": "t"})
    begun = time.monotonic()
    with pytest.raises(DataflowError) as caught:
        sink.open(TARGET, Run())
    assert time.monotonic() - begun < 5
    assert PASSWORD not in str(caught.value)
    return caught.value


def test_a_wrong_password_is_final(server: devservers.PostgreSQL) -> None:
    error = opening(dsn(server))
    assert isinstance(error, PermanentError)
    assert str(error) == (
        f"opening postgresql/127_0_0_1_postgres/public/t: no connection to "
        f'127.0.0.1:{server.port}: password authentication failed for user "flow" (28P01); '
        f"check user and password of the connection string"
    )


def test_a_missing_password_is_final(
    server: devservers.PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    error = opening(dsn(server).replace(f"password={PASSWORD}", ""))
    assert isinstance(error, PermanentError)
    assert "no password supplied" in str(error)
    assert "check user and password" in str(error)


def test_an_unknown_database_is_final(server: devservers.PostgreSQL) -> None:
    error = opening(dsn(server, "postgres", "nowhere"))
    assert isinstance(error, PermanentError)
    assert 'database "nowhere" does not exist (3D000); create the database' in str(error)


def test_an_unknown_role_is_final(server: devservers.PostgreSQL) -> None:
    error = opening(dsn(server, "nobody"))
    assert isinstance(error, PermanentError)
    assert 'role "nobody" does not exist (28000); check user' in str(error)


def test_an_unknown_setting_is_a_matter_of_the_connection_string(
    server: devservers.PostgreSQL,
) -> None:
    error = opening(f"host=127.0.0.1 port={server.port} user=postgres options='-c foo=bar'")
    assert isinstance(error, PermanentError)
    assert str(error).endswith("; correct `options` of the connection string")
    assert "columns" not in str(error)


def test_too_many_connections_pass(server: devservers.PostgreSQL) -> None:
    error = opening(dsn(server, "full"))
    assert isinstance(error, TransientError)
    assert 'too many connections for role "full" (53300)' in str(error)


@pytest.mark.parametrize("driver", ["binary", "text"])
def test_both_links_tell_the_same(server: devservers.PostgreSQL, driver: client.Driver) -> None:
    with pytest.raises(PostgresqlFailure) as caught:
        pool.take(dsn(server), driver, "test")
    assert isinstance(caught.value.error("writing"), PermanentError)
    assert PASSWORD not in str(caught.value)


def test_a_server_that_shuts_down_passes(tmp_path: Path) -> None:
    with devservers.PostgreSQL(tmp_path / "postgresql") as server:
        with psycopg.connect(server.dsn()):  # a client that stays keeps it from ending
            assert server.pid is not None
            os.kill(server.pid, signal.SIGTERM)
            error = _eventually_refused(server.dsn())
        assert isinstance(error, TransientError)
        assert "(57P03)" in str(error)


def test_the_code_is_read_in_every_language() -> None:
    russian = 'connection to server at "h", port 1 failed: ВАЖНО:  28P01\n'
    assert connection_errors._CODE.findall(russian) == ["28P01"]
    assert not connection_errors.is_refusal("connection refused: is the server running?")


def _eventually_refused(connection: str) -> DataflowError:
    deadline = time.monotonic() + 10
    while True:
        try:
            client.TextLink(connection, "test").close()
        except PostgresqlFailure as failure:
            return failure.error("opening")
        assert time.monotonic() < deadline
        time.sleep(0.05)
