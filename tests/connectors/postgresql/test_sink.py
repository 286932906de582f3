"""What a manifest may say about the PostgreSQL sink, without a server."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from dataflow_assets import registry
from dataflow_assets.connectors.postgresql import PostgresqlSink, dsn
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure, PostgresqlKind
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.secrets import Secrets, resolve
from dataflow_assets.spec import hints

URL = "postgresql://flow:pw@db.example.org:5433/shop"


def sink(**config: Any) -> PostgresqlSink:
    return PostgresqlSink.model_validate({"connectionString": URL, "table": "orders", **config})


def test_the_catalogue_finds_it() -> None:
    assert registry.sinks()["postgresql"] is PostgresqlSink


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"connectionString": None}, "connectionString or connectionStringSecretRef is required"),
        ({"table": ""}, "table or tableSecretRef is required"),
        ({"upsertMode": True, "upsertStrategy": "ifNewer"}, "requires upsertVersionColumn"),
        ({"upsertStrategy": "ifNewer", "upsertVersionColumn": "v"}, "requires upsertMode: true"),
        ({"deleteMode": "hard"}, "deleteMode requires upsertMode: true"),
        ({"deleteMode": "soft", "upsertMode": True}, "requires softDeleteColumn"),
        ({"conflictKey": ["a", "a"]}, "names a column twice"),
        ({"conflictKey": "a\x00b"}, "conflictKey"),
        ({"columns": {"a": "int); DROP TABLE x"}}, "not the name of a PostgreSQL type"),
        ({"batchSize": -1}, "batchSize"),
    ],
)
def test_what_does_not_fit_together_is_a_finding(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        sink(**config)
    assert message in str(caught.value)
    assert "pw" not in str(caught.value)


def test_key_words_of_the_original_are_accepted() -> None:
    found = sink(batchSize=100, batchFlushIntervalSeconds=10, rawMode=False, conflictKey="id")
    assert found.conflict_key == ("id",)
    assert {path for path, _ in hints(found)} == {
        "batchSize",
        "batchFlushIntervalSeconds",
        "conflictKey",  # without upsertMode
    }
    assert (
        sink(columns={"a": "timestamp(3) with time zone", "b": "text[]"}).columns["b"] == "text[]"
    )


@pytest.mark.parametrize(
    ("connection", "table", "expected"),
    [
        (URL, "orders", "postgresql/db_example_org_shop/public/orders"),
        ("host=db port=1 dbname=Shop password=pw", "a.b", "postgresql/db_shop/a/b"),
        ("postgres://u:p@ss/w?rd@h/x", "a.b.c", "postgresql/h_x/a.b/c"),
        ("postgresql://[::1]:5432/x?sslmode=disable", "t", "postgresql/1_x/public/t"),
    ],
)
def test_the_address_needs_neither_network_nor_secrets(
    connection: str, table: str, expected: str
) -> None:
    assert str(sink(connectionString=connection, table=table).address()) == expected


def test_the_address_is_the_same_once_secrets_are_resolved() -> None:
    ref = {"name": "shop-db", "key": "url"}
    declared = PostgresqlSink.model_validate(
        {"connectionStringSecretRef": ref, "tableSecretRef": {"name": "shop-db", "key": "table"}}
    )
    documents = {("default", "shop-db"): {"url": SecretStr(URL), "table": SecretStr("s.orders")}}
    resolved = resolve(declared, Secrets(documents=documents))
    assert resolved.address() == declared.address()
    assert str(declared.address()) == "postgresql/shop_db/shop_db_table"
    assert resolved.place() == ("s", "orders")
    with pytest.raises(PermanentError, match="was not resolved"):
        declared.dsn()


def test_it_travels_without_showing_its_secret() -> None:
    found = pickle.loads(pickle.dumps(sink()))  # noqa: S301 - our own
    assert found == sink()
    assert found.dsn() == URL
    assert "pw" not in repr(found) + str(found) + found.model_dump_json()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://u:a%40b@h/d", {"user": "u", "password": "a@b", "host": "h", "dbname": "d"}),
        ("postgres://u:50%@h:5433,i/d", {"password": "50%", "host": "h,i", "port": "5433,"}),
        ("postgres://u:p@a/b?c#d@h/d", {"password": "p@a/b?c#d", "host": "h"}),
        ("postgres://h/d?pool_max_conns=4&sslmode=require", {"sslmode": "require"}),
        ("postgres://h/d?search_path=a b", {"options": r"-c search_path=a\ b"}),
        ("postgresql:///d?host=/run/pg", {"host": "/run/pg", "dbname": "d"}),
        ("host=h password='a b'", {"host": "h", "password": "a b"}),
    ],
)
def test_connection_strings_are_read_leniently(text: str, expected: dict[str, str]) -> None:
    found = dsn.parse(text)
    assert {key: found[key] for key in expected} == expected
    assert not [key for key in found if key.startswith("pool_")]
    assert "application_name=x" in dsn.conninfo(text, "x")


@pytest.mark.parametrize("text", ["s3cret", "mysql://u:s3cret@h/d", "host=h password='s3cret"])
def test_an_unreadable_connection_string_is_not_shown(text: str) -> None:
    with pytest.raises(PermanentError) as caught:
        dsn.parse(text)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("23505", PostgresqlKind.REFUSED),
        ("22P02", PostgresqlKind.REFUSED),
        ("P0001", PostgresqlKind.REFUSED),
        ("54000", PostgresqlKind.REFUSED),
        ("40P01", PostgresqlKind.AGAIN),
        ("40001", PostgresqlKind.AGAIN),
        ("21000", PostgresqlKind.SPLIT),
        ("57P01", PostgresqlKind.TRANSIENT),
        ("53300", PostgresqlKind.TRANSIENT),
        ("55P03", PostgresqlKind.TRANSIENT),
        ("25P03", PostgresqlKind.TRANSIENT),
        (None, PostgresqlKind.TRANSIENT),
        ("42P01", PostgresqlKind.PERMANENT),
        ("28P01", PostgresqlKind.PERMANENT),
    ],
)
def test_what_to_do_is_told_by_the_sqlstate(code: str | None, kind: PostgresqlKind) -> None:
    failure = PostgresqlFailure("words", code)
    assert failure.kind is kind
    transient = kind in {PostgresqlKind.TRANSIENT, PostgresqlKind.AGAIN}
    assert isinstance(failure.error("x"), TransientError if transient else PermanentError)
