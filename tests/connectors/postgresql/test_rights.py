"""The statements of docs/permissions.md are enough, for roles that may do nothing else."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.contracts import Run
from dataflow_assets.errors import PermanentError
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request, Start
from tests import ROOT
from tests.conftest import Topics

PAGE = (ROOT / "docs/permissions.md").read_text(encoding="utf-8").partition("## Kafka")[0]
STATEMENTS = dict(
    re.findall(r"^```sql\n-- (\S[^\n]*)\n(GRANT .*?)^```", PAGE, re.DOTALL | re.MULTILINE)
)
TABLE = "CREATE TABLE public.orders (id bigint PRIMARY KEY, name text, qty int CHECK (qty >= 0))"
BAD = {"id": 9, "name": "i", "qty": -1}
Row = dict[str, Any]


class Database:
    """A database of its own, whose role may do nothing but what was granted."""

    def __init__(self, server: devservers.PostgreSQL) -> None:
        self.server, self.name = server, f"rights_{uuid.uuid4().hex[:8]}"
        self.run(f"CREATE DATABASE {self.name}", "postgres")
        self.run(f"CREATE ROLE {self.name} LOGIN", "postgres")
        self.run(f"REVOKE ALL ON DATABASE {self.name} FROM PUBLIC", "postgres")
        self.run("REVOKE ALL ON SCHEMA public FROM PUBLIC")

    @property
    def role(self) -> str:
        """A connection string of the role."""
        return self.server.dsn(self.name).replace("postgres@", f"{self.name}@")

    def run(self, sql: str, database: str | None = None) -> list[Any]:
        """As the superuser."""
        with psycopg.connect(self.server.dsn(database or self.name), autocommit=True) as link:
            cursor = link.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def grant(self, *names: str) -> None:
        """What the page says under these names."""
        for name in names:
            statements = STATEMENTS[name].replace("DATABASE shop", f"DATABASE {self.name}")
            for statement in statements.strip().splitlines():
                self.run(statement.replace("TO flows", f"TO {self.name}"))

    def rows(self) -> list[Any]:
        """What is in the target."""
        return self.run("SELECT id, name, qty FROM public.orders ORDER BY id")

    def drop(self) -> None:
        """The database and its role."""
        self.run(f"DROP DATABASE {self.name} WITH (FORCE)", "postgres")
        self.run(f"DROP ROLE {self.name}", "postgres")


@pytest.fixture
def database(postgresql: devservers.PostgreSQL) -> Iterator[Database]:
    found = Database(postgresql)
    yield found
    found.drop()


@pytest.fixture
def flow(
    tmp_path: Path,
    kafka: devservers.Kafka,
    topic: Topics,
    database: Database,
    engine: SparkSession,
) -> Callable[..., None]:
    """Sends rows and deletions, then drains the flow of this manifest into `public.orders`."""
    name = topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})

    def run(rows: list[Row | None], start: Start | None = None, **config: Any) -> None:
        for row in rows:
            body = None if row is None or "qty" not in row else json.dumps(row).encode()
            producer.produce(name, body, json.dumps({"id": (row or {"id": 1})["id"]}).encode())
        assert producer.flush(30) == 0
        tombstones = {"tombstones": "delete"} if config.get("deleteMode") else {}
        source = {"brokers": [kafka.bootstrap], "topic": name, "consumerGroup": name, **tombstones}
        sink = {"connectionString": database.role, "table": "public.orders", **config}
        manifest = {
            "apiVersion": "dataflow.dataflow.io/v1",
            "kind": "DataFlow",
            "metadata": {"name": f"rights-{name.replace('_', '-')}"},
            "spec": {
                "source": {"type": "kafka", "config": source},
                "sink": {"type": "postgresql", "config": sink},
                "onRejected": "table",
                "maxRejectedPercent": 100,
            },
        }
        path = tmp_path / "flow.yaml"
        path.write_text(json.dumps(manifest))
        loaded = load(path)
        assert not loaded.findings
        request = Request(
            run=Run(), patience=Patience(20, 0.01, 0.05), start=start or Start("checkpoint")
        )
        list(drain(loaded.flows[0], lambda: engine, request))

    return run


def orders(count: int, name: str = "a") -> list[Row | None]:
    return [{"id": number, "name": name, "qty": number} for number in range(1, count + 1)]


def rejected(database: Database) -> int:
    ((count,),) = database.run("SELECT count(*) FROM public.dataflow_rejected")
    return int(count)


def test_tables_that_the_flow_makes(database: Database, flow: Callable[..., None]) -> None:
    database.grant("sink, tables are created")
    columns = {"qty": "integer"}
    upsert = {"upsertMode": True, "conflictKey": "id", "deleteMode": "hard"}
    wide = BAD | {"qty": 2**40}
    flow([*orders(3), wide, None], autoCreateTable=True, columns=columns, **upsert)
    assert [row[0] for row in database.rows()] == [2, 3]
    assert rejected(database) == 1


def test_an_append(database: Database, flow: Callable[..., None]) -> None:
    database.run(TABLE)
    database.grant("sink, tables are created", "append")
    flow([*orders(3), BAD])
    assert database.rows() == [(1, "a", 1), (2, "a", 2), (3, "a", 3)]
    assert rejected(database) == 1


def test_an_upsert(database: Database, flow: Callable[..., None]) -> None:
    database.run(TABLE)
    database.grant("sink, tables are created", "upsert")
    flow([*orders(2), *orders(1, "b"), BAD], upsertMode=True)
    flow(orders(1, "c"), upsertMode=True)
    assert database.rows() == [(1, "c", 1), (2, "a", 2)]
    assert rejected(database) == 1


def test_an_upsert_that_deletes(database: Database, flow: Callable[..., None]) -> None:
    database.run(TABLE)
    database.grant("sink, tables are created", "upsert with deleteMode: hard")
    flow(orders(3), upsertMode=True, deleteMode="hard")
    flow([None], upsertMode=True, deleteMode="hard")
    assert database.rows() == [(2, "a", 2), (3, "a", 3)]


def test_a_table_that_is_emptied(database: Database, flow: Callable[..., None]) -> None:
    database.run(TABLE)
    database.grant("sink, tables are created", "append")
    database.run(f"GRANT TRUNCATE ON public.orders TO {database.name}")
    flow(orders(2))
    database.run("INSERT INTO public.orders VALUES (7, 'other', 0)")
    flow([], start=Start("earliest", table="truncate"))
    assert database.rows() == [(1, "a", 1), (2, "a", 2)]


def test_checkpoint_tables_that_an_administrator_makes(
    database: Database, flow: Callable[..., None]
) -> None:
    """By the statements that the error of the first run holds."""
    database.run(TABLE)
    database.run(f"GRANT CONNECT ON DATABASE {database.name} TO {database.name}")
    database.run(f"GRANT USAGE ON SCHEMA public TO {database.name}")
    database.grant("append")
    with pytest.raises(PermanentError, match="the checkpoint tables cannot be made") as caught:
        flow([*orders(1), BAD])
    statements = str(caught.value).partition("or run: ")[2]
    database.run(statements)
    for table in ("checkpoint", "checkpoint_partition", "rejected"):
        place = f"public.dataflow_{table}"
        database.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {place} TO {database.name}")
    flow([])
    assert database.rows() == [(1, "a", 1)]
    assert rejected(database) == 1
    # As an earlier version has made it: the role may not add the column, and goes on without it.
    database.run("ALTER TABLE public.dataflow_rejected DROP COLUMN metadata")
    flow([{"id": 2, "name": "b", "qty": 2}, BAD])
    assert database.rows() == [(1, "a", 1), (2, "b", 2)]
    assert rejected(database) == 2


def test_a_table_that_is_read(
    database: Database, engine: SparkSession, tmp_path: Path, schema: str
) -> None:
    database.run(TABLE)
    database.run("ALTER TABLE public.orders ADD COLUMN updated_at timestamptz DEFAULT now()")
    database.run("INSERT INTO public.orders (id, name, qty) VALUES (1, 'a', 1), (2, 'b', 2)")
    database.grant("source")
    source = {"connectionString": database.role, "table": "public.orders"}
    copy = {"connectionString": database.server.dsn(), "table": f"{schema}.copy"}
    manifest = {
        "apiVersion": "dataflow.dataflow.io/v1",
        "kind": "DataFlow",
        "metadata": {"name": f"reads-{database.name.replace('_', '-')}"},
        "spec": {
            "source": {"type": "postgresql", "config": source},
            "sink": {"type": "postgresql", "config": copy | {"autoCreateTable": True}},
        },
    }
    path = tmp_path / "flow.yaml"
    path.write_text(json.dumps(manifest))
    (found,) = load(path).flows
    list(drain(found, lambda: engine, Request(run=Run(), patience=Patience(20, 0.01, 0.05))))
    query = f"SELECT id, name FROM {schema}.copy ORDER BY id"
    assert database.run(query, "postgres") == [(1, "a"), (2, "b")]
