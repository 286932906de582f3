"""Records without a value: what becomes of them in a static table, in columns and in upserts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from ruamel.yaml import YAML

import devservers
from dataflow_assets.connectors.kafka_connect.parts import ConnectPart
from dataflow_assets.connectors.kafka_connect.source import session
from dataflow_assets.connectors.kafka_connect.spool import SCHEMA, ConnectOffset, Spool
from dataflow_assets.errors import DataflowError
from dataflow_assets.spark import jars
from tests.drained import drain_file

Query = Callable[[str], list[tuple[Any, ...]]]
RECORDS: Sequence[tuple[Any, Any]] = (
    ({"id": 1}, {"id": 1, "name": "one"}),
    ({"id": 2}, {"id": 2, "name": "two"}),
    ({"id": 1}, None),
    ({"id": 3}, {"id": 3, "name": "three"}),
)


class Host:
    """Stands for a process whose connector has delivered all that it has."""

    def __init__(self, spool: str) -> None:
        self._spool = spool

    def spool(self) -> str:
        return self._spool

    def check(self) -> None:
        pass

    def quiet_since(self, _: float) -> float:
        return 60.0

    def end(self) -> None:
        pass


def standing_in(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is started: what the spool has is all."""
    state = spool.state()
    assert state is not None
    monkeypatch.setattr(session, "HostProcess", lambda *_: Host(state.id))
    monkeypatch.setattr(jars, "fetch", lambda _: [])


def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, plain: bool) -> Spool:
    """A spool with RECORDS, each as it comes from the host."""
    made = Spool(tmp_path / "spool")
    with made.lock(0):
        made.begin("C", {})
        standing_in(made, monkeypatch)
        for number, (key, value) in enumerate(RECORDS, 1):
            record = None if value is None else json.dumps(value).encode()
            row = {"topic": "shop", "id": json.dumps(key), "record": record}
            part = ConnectPart(number, 0, 1, 100, open=False, token="0123abcd")
            rows = pa.Table.from_pylist([row], SCHEMA)
            made.seal(part, rows, {"{}": ConnectOffset(0, number)}, plain=plain)
    return made


@pytest.fixture
def query(postgresql: devservers.PostgreSQL, schema: str) -> Query:
    def run(text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
            connection.execute(f"SET search_path = {schema}".encode())
            return connection.execute(text.encode()).fetchall()

    return run


def upsert(folder: Path, spool: Spool, server: devservers.PostgreSQL, schema: str) -> str:
    """A flow of columns by key."""
    reading = {"class": "C", "plugins": [str(folder)], "spool": str(spool.folder)}
    target = {"connectionString": server.dsn(), "table": f"{schema}.shop", "autoCreateTable": True}
    keyed = {"upsertMode": True, "conflictKey": "id", "deleteMode": "hard"}
    document = {
        "apiVersion": "dataflow.dataflow.io/v1",
        "kind": "DataFlow",
        "metadata": {"name": "tombstones"},
        "spec": {
            "source": {
                "type": "kafkaConnect",
                "config": reading | {"envelope": False, "tombstones": "delete"},
            },
            "sink": {"type": "postgresql", "config": target | keyed},
        },
    }
    YAML().dump(document, folder / "flow.yaml")
    return str(folder / "flow.yaml")


def test_a_record_without_a_value_deletes_its_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    postgresql: devservers.PostgreSQL,
    schema: str,
    query: Query,
) -> None:
    spool = filled(tmp_path, monkeypatch, plain=True)
    drain_file(upsert(tmp_path, spool, postgresql, schema))
    assert query("SELECT id, name FROM shop ORDER BY id") == [(2, "two"), (3, "three")]


def pipeline(
    folder: Path, spool: Spool, server: devservers.PostgreSQL, schema: str, text: str
) -> str:
    target = {"type": "postgresql", "schema": schema, "config": {"connectionString": server.dsn()}}
    (folder / "connections.yaml").write_text(json.dumps({"target": target}))
    config = {"connector.class": "C", "plugin.path": str(folder)}
    config["dataflow.spool"] = str(spool.folder)
    (folder / "shop.sql").write_text(text.replace("CONFIG", f"CONFIG '{json.dumps(config)}'"))
    return str(folder)


STATIC = "CREATE INFERRED PIPELINE shop AS LOAD DATA KAFKACONNECT 'x' CONFIG {} FORMAT AVRO;\n"
NULLABLE = (
    "CREATE TABLE shop (id JSON NOT NULL, record JSON);\n"
    "CREATE PIPELINE shop AS LOAD DATA KAFKACONNECT 'x' CONFIG INTO TABLE shop FORMAT AVRO;\n"
)


def test_a_static_table_takes_none_and_keeps_the_others(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    postgresql: devservers.PostgreSQL,
    schema: str,
    query: Query,
) -> None:
    spool = filled(tmp_path, monkeypatch, plain=False)
    text = STATIC.format("") + "START PIPELINE shop;"
    with pytest.raises(
        DataflowError, match="column record is NOT NULL, and the record has no value for it: decl"
    ):
        drain_file(pipeline(tmp_path, spool, postgresql, schema, text))
    text = STATIC.format("SKIP ALL ERRORS") + "START PIPELINE shop;"
    drain_file(pipeline(tmp_path, spool, postgresql, schema, text))
    assert query("SELECT id->>'id', record->>'name' FROM shop ORDER BY 1") == [
        ("1", "one"),
        ("2", "two"),
        ("3", "three"),
    ]
    assert query("SELECT count(*) FROM dataflow_rejected") == [(1,)]


def test_a_column_that_may_be_null_takes_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    postgresql: devservers.PostgreSQL,
    schema: str,
    query: Query,
) -> None:
    spool = filled(tmp_path, monkeypatch, plain=False)
    drain_file(pipeline(tmp_path, spool, postgresql, schema, NULLABLE + "START PIPELINE shop;"))
    found = query("SELECT id->>'id', record->>'name' FROM shop ORDER BY 1, 2")
    assert found == [("1", "one"), ("1", None), ("2", "two"), ("3", "three")]
