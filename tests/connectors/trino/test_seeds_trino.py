"""The two fragments of Trino run as the documentation has them: hosts, names, logins aside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import devservers
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.connectors.trino.driver import execute
from tests.drained import drained
from tests.manifests.test_seeds import SEEDS

pytestmark = [pytest.mark.heavy, pytest.mark.full, pytest.mark.timeout(600)]
DSN = "postgres://user:password@localhost:5432/dbname?sslmode=disable"
Run = Callable[[str, dict[str, str]], None]


@pytest.fixture
def run(trino: devservers.Trino, trino_schema: str, own_database: str, tmp_path: Path) -> Run:
    """Drains a seed, with these words instead of the ones that it has."""
    places = {
        "http://trino:8080": trino.uri,
        "catalog: hive": "catalog: lake",
        "schema: default": f"schema: {trino_schema}",
        DSN: own_database,
    }

    def drain(name: str, words: dict[str, str]) -> None:
        text = (SEEDS / name).read_text(encoding="utf-8")
        for written, real in (places | words).items():
            assert written in text
            text = text.replace(written, real)
        (tmp_path / name).write_text(text, encoding="utf-8")
        drained(choose(load(tmp_path / name), None))

    return drain


def test_the_query_of_the_source_is_appended_once(
    run: Run, trino: devservers.Trino, trino_schema: str, own_database: str
) -> None:
    place = f"lake.{trino_schema}.source_table"
    execute(trino, f"CREATE TABLE {place} (id bigint, price_id bigint)")
    execute(trino, f"INSERT INTO {place} SELECT n, n * 2 FROM UNNEST(sequence(1, 150)) AS s (n)")
    with psycopg.connect(own_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE target_table (id bigint, price_id bigint)")
        for _ in range(2):
            run("trino-source.yaml", {"hive.default.source_table": place})
            found = connection.execute("SELECT * FROM target_table ORDER BY 1").fetchall()
            assert found == [(n, n * 2) for n in range(101, 151)]


def test_whole_rows_replace_those_of_their_id_in_the_sink(
    run: Run,
    trino: devservers.Trino,
    trino_schema: str,
    own_database: str,
    keycloak: devservers.Keycloak,
) -> None:
    """The key is metadata of the source: its value of orderByColumn."""
    login = {
        "https://keycloak.example.com": keycloak.uri,
        "myrealm": keycloak.realm,
        "clientID: trino-client": f"clientID: {keycloak.client}",
        "client-secret": keycloak.secret,
        "trino-user": keycloak.user,
        "trino-password": keycloak.password,
    }
    rows = f"SELECT id, data, _metadata FROM lake.{trino_schema}.target_table ORDER BY id"
    with psycopg.connect(own_database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE source_table (id bigint PRIMARY KEY, name text, updated_at timestamptz)"
        )
        for turn in ("a", "b"):
            connection.execute(
                "INSERT INTO source_table SELECT n, %s, now() - interval '1 minute' "
                "FROM generate_series(1, 3) AS n "
                "ON CONFLICT (id) DO UPDATE SET name = %s, updated_at = now()",
                [turn, turn],
            )
            run("trino-sink.yaml", login)
            found = execute(trino, rows)
            assert [(one, json.loads(data)["name"]) for one, data, _ in found] == [
                (n, turn) for n in (1, 2, 3)
            ]
            assert json.loads(found[0][2])["table"] == "source_table"
