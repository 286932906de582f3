"""A server with ssl=on: what a connection string or a block `tls` can ask of it, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.postgresql import PostgresqlSink
from dataflow_assets.contracts import Rejects, Run, Target
from dataflow_assets.errors import PermanentError
from dataflow_assets.secrets import SecretRef, Secrets, resolve
from devservers.certificates import EXPIRED, Authority
from tests.contract import SOURCES
from tests.contract.conftest import Case, numbered

_HBA = """
hostssl all flow 127.0.0.1/32 cert
hostssl all postgres 127.0.0.1/32 trust
hostnossl all postgres 127.0.0.1/32 trust
hostnossl all all 127.0.0.1/32 reject
"""


class Tls:
    """A server of this module's own, its CA, and another one."""

    def __init__(self, folder: Path) -> None:
        self.trusted = Authority(folder / "certificates", "trusted")
        self.foreign = Authority(folder / "certificates", "foreign")
        shown = self.trusted.issue("database")
        hba = folder / "pg_hba.conf"
        hba.write_text(_HBA)
        self.server = devservers.PostgreSQL(
            folder / "postgresql",
            config={
                "ssl": "on",
                "ssl_cert_file": str(shown.cert),
                "ssl_key_file": str(shown.key),
                "ssl_ca_file": str(self.trusted.ca),
                "hba_file": str(hba),
            },
        )

    def dsn(self, user: str = "postgres", host: str = "127.0.0.1", **more: object) -> str:
        options = {"user": user, "host": host, "port": self.server.port, **more}
        return " ".join(
            f"{key}='{value}'" for key, value in {"dbname": "postgres", **options}.items()
        )

    def mine(self, **changes: object) -> dict[str, str]:
        """What the client that may do everything shows."""
        found = self.trusted.issue("flow")
        files = {"sslrootcert": self.trusted.ca, "sslcert": found.cert, "sslkey": found.key}
        return {key: str(path) for key, path in (files | changes).items()}


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    folder = tmp_path_factory.mktemp("tls")
    folder.chmod(0o755)  # the server may run as another user
    made = Tls(folder)
    with made.server:
        with psycopg.connect(made.dsn(sslmode="disable"), autocommit=True) as connection:
            connection.execute("CREATE ROLE flow LOGIN SUPERUSER")
        yield made


def opened(dsn: str, table: str = "t", **more: Any) -> None:
    sink = PostgresqlSink.model_validate({"connectionString": dsn, "table": table, **more})
    sink.open(Target("default/f", "b", "h", "src", "id", Rejects("skip")), Run()).close()


ACCEPTED: dict[str, Callable[[Tls], str]] = {
    "require": lambda tls: tls.dsn(sslmode="require"),
    "verify-ca": lambda tls: tls.dsn(sslmode="verify-ca", sslrootcert=tls.trusted.ca),
    "verify-ca, another host": lambda tls: tls.dsn(
        host="other.example", hostaddr="127.0.0.1", sslmode="verify-ca", sslrootcert=tls.trusted.ca
    ),
    "verify-full": lambda tls: tls.dsn(sslmode="verify-full", sslrootcert=tls.trusted.ca),
    "client certificate": lambda tls: tls.dsn("flow", sslmode="verify-full", **tls.mine()),
    "client certificate, as text": lambda tls: tls.dsn(
        "flow",
        sslmode="verify-full",
        **{key: Path(path).read_text() for key, path in tls.mine().items()},
    ),
}


@pytest.mark.parametrize("way", ACCEPTED)
def test_what_is_right_is_accepted(tls: Tls, way: str) -> None:
    opened(ACCEPTED[way](tls))


def test_a_key_that_others_may_read_is_taken(
    tls: Tls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kubernetes mounts Secrets; libpq itself would refuse the file."""
    folder = tmp_path / "default/pg"
    folder.mkdir(parents=True)
    for key, path in tls.mine().items():
        (folder / key).write_text(Path(path).read_text())
        (folder / key).chmod(0o644)
    monkeypatch.setenv("DATAFLOW_SECRETS", str(tmp_path))
    places = {key: f"default/pg/{key}" for key in tls.mine()}
    opened(tls.dsn("flow", sslmode="verify-full", **places))


BLOCK = {"caFile": "sslrootcert", "certFile": "sslcert", "keyFile": "sslkey"}


def test_a_block_by_path_checks_everything(tls: Tls) -> None:
    block = {key: tls.mine()[name] for key, name in BLOCK.items()}
    opened(tls.dsn("flow"), tls=block)
    with pytest.raises(PermanentError, match=r"its certificate is not for other\.example"):
        opened(tls.dsn("flow", "other.example", hostaddr="127.0.0.1"), tls=block)
    with pytest.raises(PermanentError, match="sslmode=prefer does not encrypt for certain"):
        opened(tls.dsn("flow", sslmode="prefer"), tls=block)


def test_a_block_by_secrets(tls: Tls) -> None:
    values = {name: SecretStr(Path(path).read_text()) for name, path in tls.mine().items()}
    refs = {
        f"{key.removesuffix('File')}SecretRef": SecretRef(name="pg", key=name)
        for key, name in BLOCK.items()
    }
    sink = PostgresqlSink.model_validate(
        {"connectionString": tls.dsn("flow"), "table": "t", "tls": refs}
    )
    assert (
        sink.address() == resolve(sink, Secrets("default", {("default", "pg"): values})).address()
    )
    found = resolve(sink, Secrets("default", {("default", "pg"): values}))
    assert "BEGIN" not in repr(found.tls and found.tls.key_file)
    found.open(Target("default/f", "b", "h", "src", "id", Rejects("skip")), Run()).close()


REFUSED: dict[str, tuple[Callable[[Tls], str], str]] = {
    "wrong CA": (
        lambda tls: tls.dsn(sslmode="verify-ca", sslrootcert=tls.foreign.ca),
        "another CA than that of sslrootcert .*has signed its certificate",
    ),
    "wrong CA of a string that only asks for encryption": (
        lambda tls: tls.dsn(sslmode="require", sslrootcert=tls.foreign.ca),
        "another CA than that of sslrootcert .*has signed its certificate",
    ),
    "wrong host": (
        lambda tls: tls.dsn(
            host="other.example",
            hostaddr="127.0.0.1",
            sslmode="verify-full",
            sslrootcert=tls.trusted.ca,
        ),
        "its certificate is not for other.example",
    ),
    "foreign client": (
        lambda tls: tls.dsn(
            "flow",
            sslmode="verify-full",
            **tls.mine(
                sslcert=tls.foreign.issue("flow").cert, sslkey=tls.foreign.issue("flow").key
            ),
        ),
        "it refuses the certificate of sslcert",
    ),
    "expired client": (
        lambda tls: tls.dsn(
            "flow",
            sslmode="verify-full",
            **tls.mine(
                sslcert=tls.trusted.issue("flow", days=EXPIRED).cert,
                sslkey=tls.trusted.issue("flow", days=EXPIRED).key,
            ),
        ),
        "it refuses the certificate of sslcert.*, which has expired",
    ),
    "no client certificate": (
        lambda tls: tls.dsn("flow", sslmode="require"),
        "connection requires a valid client certificate .*28000.*; check user, TLS settings",
    ),
    "another client's certificate": (
        lambda tls: tls.dsn(
            "flow",
            sslmode="verify-full",
            **tls.mine(
                sslcert=tls.trusted.issue("other").cert, sslkey=tls.trusted.issue("other").key
            ),
        ),
        "certificate authentication failed for user",
    ),
    "not encrypted": (
        lambda tls: tls.dsn("flow", sslmode="disable"),
        "pg_hba.conf rejects connection.*; check user, TLS settings and pg_hba.conf",
    ),
    "key of another": (
        lambda tls: tls.dsn(
            "flow", sslmode="verify-full", **tls.mine(sslkey=tls.foreign.issue("flow").key)
        ),
        "do(es)? not (belong|match)",
    ),
    "no file": (
        lambda tls: tls.dsn(sslmode="verify-ca", sslrootcert="/nowhere/ca.crt"),
        r"connectionString: sslrootcert: /nowhere/ca.crt: No such file or directory; the file must",
    ),
    "not PEM": (
        lambda tls: tls.dsn(sslmode="verify-ca", sslrootcert="/etc/hostname"),
        r"connectionString: sslrootcert: /etc/hostname holds no whole PEM block",
    ),
}


@pytest.mark.parametrize("refusal", REFUSED)
def test_a_refusal_is_one_sentence(tls: Tls, refusal: str) -> None:
    dsn, sentence = REFUSED[refusal]
    with pytest.raises(PermanentError, match=sentence) as caught:
        opened(dsn(tls))
    text = str(caught.value)
    assert "\n" not in text
    assert "BEGIN PRIVATE" not in text


def test_a_server_that_does_not_encrypt(postgresql: devservers.PostgreSQL) -> None:
    with pytest.raises(PermanentError, match="the server does not encrypt; switch ssl on there"):
        opened(f"{postgresql.dsn()}?sslmode=require")


def test_a_flow_runs_over_tls(tls: Tls, engine: SparkSession, request: Any) -> None:
    """Read by COPY in tasks and written by it, with the private files of their processes."""
    rows = numbered(1, 40)
    with psycopg.connect(tls.dsn(sslmode="disable"), autocommit=True) as connection:
        connection.execute("CREATE TABLE went (id bigint primary key, name text)")
    source = SOURCES["memory-offsets"](request)
    source.seed(rows)

    class Over:
        def declare(self) -> PostgresqlSink:
            dsn = tls.dsn("flow", sslmode="verify-full", **tls.mine())
            return PostgresqlSink.model_validate({"connectionString": dsn, "table": "went"})

    case = Case(source, Over(), engine, "over-tls", 10)  # type: ignore[arg-type]
    case.drain()
    with psycopg.connect(tls.dsn(sslmode="disable")) as connection:
        assert connection.execute("SELECT id, name FROM went ORDER BY id").fetchall() == rows
