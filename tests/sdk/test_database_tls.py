"""Certificates of a connection string and of a block `tls`, put together for a client."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataflow_assets.connectors.clickhouse import dsn as clickhouse
from dataflow_assets.connectors.postgresql import dsn as postgresql
from dataflow_assets.errors import PermanentError
from dataflow_assets.secrets.tls import UNCHECKED, Tls
from devservers.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "own")


def block(authority: Authority, **more: object) -> Tls:
    own = authority.issue("flow")
    given = {"caFile": authority.ca.read_text(), "certFile": str(own.cert), "keyFile": str(own.key)}
    return Tls.model_validate(given | more)


@pytest.mark.parametrize("password", ["pa?ss", "pa&ss", "pa#ss", "pa/ss", "pa@ss", "pa?s&s@"])
@pytest.mark.parametrize("query", ["", "?compress=lz4"])
def test_certificates_are_no_part_of_clickhouses_database(
    authority: Authority, password: str, query: str
) -> None:
    """A key would be sent to the server as its name, and shown."""
    text = clickhouse.with_tls(f"https://user:{password}@host:8443/db{query}", block(authority))
    found = clickhouse.parse(text)
    assert (found.user, found.password, found.database) == ("user", password, "db")
    assert found.hosts == (("host", 8443),)
    assert {*found.files} == {"ca_cert", "client_cert", "client_cert_key"}


def test_a_ca_of_clickhouse_is_always_used(authority: Authority) -> None:
    text = "https://host/db?skip_verify=true"
    assert not clickhouse.parse(text).verify
    assert clickhouse.parse(clickhouse.with_tls(text, block(authority))).verify
    assert clickhouse.parse(f"{text}&ca_cert=/etc/ca.crt").verify


@pytest.mark.parametrize(
    ("text", "host", "password"),
    [
        ("u:secret@db.internal:5432/shop?application_name=flows@prod", "db.internal", "secret"),
        ("u:se@cret@db.internal:5432/shop", "db.internal", "se@cret"),
        ("u:se/cret@db.internal:5432/shop", "db.internal", "se/cret"),
        ("u:se?cret@db.internal:5432/shop", "db.internal", "se?cret"),
        ("u@db.internal:5432/shop?options=a@b", "db.internal", None),
    ],
)
def test_an_at_sign_behind_the_host_names_no_host(
    text: str, host: str, password: str | None
) -> None:
    """The password would be sent to a stranger."""
    found = postgresql.parse(f"postgresql://{text}")
    assert (found["host"], found.get("password")) == (host, password)
    if "options" not in text:
        other = clickhouse.parse(f"https://{text.replace('application_name', 'quota_key')}")
        assert (other.hosts[0][0], other.password) == (host, password)


def test_postgresql_checks_by_the_systems_authorities_where_none_are_given() -> None:
    """As Go does; libpq looks for a file of the user's."""
    full = postgresql.conninfo("postgresql://u@h/db?sslmode=verify-full", "tests")
    assert "sslrootcert=system" in full
    assert "sslrootcert" not in postgresql.conninfo("postgresql://u@h/db?sslmode=require", "tests")
    with pytest.raises(PermanentError, match="sslmode=verify-ca needs the CA that has signed"):
        postgresql.conninfo("postgresql://u@h/db?sslmode=verify-ca", "tests")


def test_a_block_without_a_ca_leaves_that_of_the_string(
    authority: Authority, tmp_path: Path
) -> None:
    root = tmp_path / "root.crt"
    root.write_text(authority.ca.read_text())
    own = authority.issue("flow")
    tls = Tls.model_validate({"certFile": str(own.cert), "keyFile": str(own.key)})
    text = f"postgresql://u@h/db?sslmode=verify-full&sslrootcert={root}"
    assert postgresql.parse(postgresql.with_tls(text, tls))["sslrootcert"] == str(root)
    bare = postgresql.with_tls("postgresql://u@h/db", tls)
    assert postgresql.parse(bare)["sslrootcert"] == "system"


def test_a_server_is_checked_where_libpq_checks_it(authority: Authority) -> None:
    """`require` with a CA is `verify-ca`: what it refuses is refused for good."""
    text = f"postgresql://u@h/db?sslmode=require&sslrootcert={authority.ca}"
    assert postgresql.material(text).verify
    assert not postgresql.material("postgresql://u@h/db?sslmode=require").verify


@pytest.mark.parametrize("name", ["caFile", "certFile", "keyFile"])
@pytest.mark.parametrize("value", ["", " \n"])
def test_a_secret_that_is_empty_is_no_reason_to_check_less(
    authority: Authority, name: str, value: str
) -> None:
    tls = block(authority, insecureSkipVerify=True)
    field = {"caFile": "ca_file", "certFile": "cert_file", "keyFile": "key_file"}[name]
    kind = type(getattr(tls, field))
    with pytest.raises(PermanentError, match=rf"tls\.{name}: the value, or its secret, is empty"):
        tls.model_copy(update={field: kind(value)}).material()


def test_what_postgresql_does_not_check_is_said_loudly(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    skip, url = Tls.model_validate({"insecureSkipVerify": True}), "postgresql://u@loud.example/d"
    for text, tls in ((url, block(authority)), (f"{url}?sslmode=verify-full", skip), (url, skip)):
        postgresql.with_tls(text, tls)
    said = [one.getMessage() for one in caplog.records]
    assert said == [f"postgresql loud.example/d: {UNCHECKED}"]
