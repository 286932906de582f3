"""Where an end in a database points: the same before and after its secrets are resolved."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from dataflow_assets.connectors.clickhouse import ClickhouseSource
from dataflow_assets.connectors.postgresql import PostgresqlSource
from dataflow_assets.connectors.postgresql import dsn as postgresql
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.database import DatabaseTable
from dataflow_assets.secrets import Secrets, resolve

CONNECTION = {"connectionStringSecretRef": {"name": "Shop-DB", "key": "dsn"}}
TABLE = {"tableSecretRef": {"name": "shop", "key": "table"}}
ENDS: list[tuple[type[DatabaseTable], str]] = [
    (PostgresqlSource, "postgresql://u:pw@db.example/shop"),
    (ClickhouseSource, "http://u:pw@db.example/shop"),
]


@pytest.mark.parametrize(("end", "dsn"), ENDS, ids=["postgresql", "clickhouse"])
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"query": "SELECT 1", **CONNECTION}, "shop_db/query_e004ebd5"),
        ({**TABLE, **CONNECTION}, "shop_db/shop_table"),
        ({"table": "a.b", **CONNECTION}, "shop_db/a/b"),
    ],
    ids=["query", "secret table", "table"],
)
def test_secrets_change_no_address(
    end: type[DatabaseTable], dsn: str, config: dict[str, Any], expected: str
) -> None:
    declared = end.model_validate(config)
    assert str(declared.address()) == f"{end.type}/{expected}"
    documents = {
        ("default", "Shop-DB"): {"dsn": SecretStr(dsn)},
        ("default", "shop"): {"table": SecretStr("hidden")},
    }
    resolved = resolve(declared, Secrets("default", documents))
    assert resolved.connection_string is not None
    assert resolved.address() == declared.address()


@pytest.mark.parametrize(("end", "dsn"), ENDS, ids=["postgresql", "clickhouse"])
def test_no_address_shows_a_password(end: type[DatabaseTable], dsn: str) -> None:
    declared = end.model_validate({"connectionString": dsn, "table": "orders"})
    assert str(declared.address()).startswith(f"{end.type}/db_example_shop/")
    assert "pw" not in f"{declared!r} {declared.address()} {declared.spellings()}"


@pytest.mark.parametrize(
    "text",
    ["postgresql://u:p@h:5433/d\n", " postgresql://u:p@h:5433/d?sslmode=prefer\n", "host=h\n"],
)
def test_a_line_break_at_its_end_is_no_part_of_a_connection_string(text: str) -> None:
    """As most tools leave one in a Secret; the database would have it in its name."""
    assert not any(value != value.strip() for value in postgresql.parse(text).values())
    assert postgresql.parse(text)["host"] == "h"


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_secret_names_no_database(text: str) -> None:
    """libpq would go wherever the environment of this machine says."""
    with pytest.raises(
        PermanentError, match="connectionString: the value, or its Secret, is empty"
    ):
        postgresql.parse(text)


@pytest.mark.parametrize(("end", "dsn"), ENDS, ids=["postgresql", "clickhouse"])
def test_an_empty_secret_names_no_table(end: type[DatabaseTable], dsn: str) -> None:
    declared = end.model_validate({"connectionString": dsn, **TABLE})
    secrets = Secrets("default", {("default", "shop"): {"table": SecretStr("")}})
    with pytest.raises(PermanentError, match=r"^the secret of tableSecretRef is empty"):
        resolve(declared, secrets).place()
