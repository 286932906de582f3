"""What the reference of the DataFlow Operator says (2.3, 3.3), where no other test has it.

A whole manifest as its users have it: names in Secrets, a bare table name, metadata in columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dataflow_assets.cli import main
from dataflow_assets.connectors.postgresql.cdc import idle_log, peeked
from dataflow_assets.connectors.postgresql.cdc.position import Lsn
from dataflow_assets.contracts import Limit, system_name
from dataflow_assets.errors import TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from dataflow_assets.testing import choose
from tests.connectors.postgresql.cdc.followed import Followed, tuples

MANIFEST = """
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: followed
spec:
  source:
    type: postgresql-cdc
    config:
      connectionStringSecretRef: {{name: shop, key: dsn}}
      slotNameSecretRef: {{name: shop, key: slot}}
      publicationNameSecretRef: {{name: shop, key: publication}}
      tables: [{table}]
      primaryKeyColumn: code
  transformations:
    - type: insertField
      config:
        fields:
          operation: "${{metadata.operation}}"
          source_table: "${{metadata.table}}"
          row_id: "${{metadata.id}}"
          lsn: "${{metadata.lsn}}"
  sink:
    type: postgresql
    config:
      connectionStringSecretRef: {{name: shop, key: dsn}}
      table: {table}_copy
---
apiVersion: v1
kind: Secret
metadata:
  name: shop
stringData:
  dsn: {dsn}
  slot: {slot}
  publication: {slot}_published
"""
COPY = "code text, name text, operation text, source_table text, row_id text, lsn text"


@pytest.fixture
def public(followed: Followed) -> Iterator[str]:
    """A table of the schema `public`, and one for its copy."""
    name = f"{followed.schema}_orders"
    with psycopg.connect(followed.dsn, autocommit=True) as connection:
        made = f"CREATE TABLE public.{name} (code text PRIMARY KEY, name text)"
        connection.execute(made.encode())
        connection.execute(f"CREATE TABLE public.{name}_copy ({COPY})".encode())
        yield name
        connection.execute(f"DROP PUBLICATION IF EXISTS {followed.schema}_published".encode())
        connection.execute(f"DROP TABLE public.{name}, public.{name}_copy".encode())


def _run(flow: Flow, engine: Any) -> int:
    reports = drain(flow, lambda: engine, Request(patience=Patience(20, 0.05, 0.2)))
    return sum(report.delta.rows for report in reports)


def test_a_manifest_with_secrets_a_bare_name_and_metadata(
    followed: Followed, public: str, tmp_path: Path
) -> None:
    """Rows that are loaded say insert; each change says where its transaction commits."""
    path = tmp_path / "flow.yaml"
    path.write_text(MANIFEST.format(table=public, dsn=followed.dsn, slot=followed.schema))
    flow = choose(load(path), None)
    followed.run(f"INSERT INTO public.{public} VALUES ('a', 'x')")
    assert _run(flow, followed.engine) == 1
    before = Lsn.parse(followed.run("SELECT pg_current_wal_lsn()::text")[0][0])
    followed.run(f"INSERT INTO public.{public} VALUES ('b', 'y')")
    followed.run(f"UPDATE public.{public} SET name = 'z'")
    after = Lsn.parse(followed.run("SELECT pg_current_wal_lsn()::text")[0][0])
    assert _run(flow, followed.engine) == 3
    found = followed.run(f"SELECT * FROM public.{public}_copy ORDER BY lsn, code")
    table = f"public.{public}"
    assert [row[:5] for row in found] == [
        ("a", "x", "insert", table, "a"),
        ("b", "y", "insert", table, "b"),
        ("a", "z", "update", table, "a"),
        ("b", "z", "update", table, "b"),
    ]
    loaded, first, *second = [Lsn.parse(row[5]).value for row in found]
    assert loaded <= before.value <= first < second[0] == second[1] < after.value
    named = "SELECT slot_name FROM pg_replication_slots WHERE slot_name = %s"
    assert followed.run(named, followed.schema) == [(followed.schema,)]


def test_a_table_without_the_column_has_no_id(followed: Followed) -> None:
    followed.make("code int PRIMARY KEY, name text")
    begin = followed.start()
    followed.run("INSERT INTO source VALUES (7, 'a'); DELETE FROM source")
    (batch,) = followed.read(begin, frozenset({"id", "operation"}))
    assert system_name("id") not in batch.schema.names
    assert tuples([batch], ["code", system_name("operation")]) == [(7, "insert"), (7, "delete")]
    (batch,) = followed.but(primaryKeyColumn="code").read(begin, frozenset({"id"}))
    assert tuples([batch], [system_name("id")]) == [(7,), (7,)]


def test_without_a_heartbeat_the_position_moves_with_changes_only(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed.make("id int PRIMARY KEY, name text")
    followed.options = {"heartbeatIntervalSeconds": 0}
    followed.drain()
    monkeypatch.setattr(idle_log, "IDLE_BYTES", 1_000)
    position = followed.position()
    followed.run("CREATE TABLE noise AS SELECT generate_series(1, 1000) i")
    with closing(followed.source.open("followed/quiet")) as session:
        assert session.plan(position, Limit()).empty
        followed.run("INSERT INTO source VALUES (1, 'a')")
        followed.wait_until_free()
        assert not session.plan(position, Limit()).empty


@pytest.mark.parametrize("most", [peeked.MOST_BYTES, -1])
def test_ddl_produces_nothing_and_a_stream_that_breaks_is_read_again(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """The server ends the stream in the middle: the run begins it again, and nothing is doubled."""
    monkeypatch.setattr(peeked, "MOST_BYTES", most)
    followed.make("id int PRIMARY KEY, name text")
    followed.drain()
    begin = followed.position()
    followed.run("CREATE INDEX ON source (name); COMMENT ON TABLE source IS 'x'; ANALYZE source")
    assert sum(batch.num_rows for batch in followed.read(begin)) == 0
    followed.run("INSERT INTO source SELECT i, repeat('x', 1000) FROM generate_series(1, 30000) i")
    span = followed.plan(begin)
    batches = followed.source.batches(span.slices[0], frozenset())
    next(batches)
    followed.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                 "WHERE application_name = 'dataflow-cdc' AND query ~ 'START_REPL|peek_binary'"
                 )  # fmt: skip
    with pytest.raises(TransientError, match="connection"):
        list(batches)
    followed.wait_until_free()
    assert followed.drain() == 30_000
    assert followed.same("id, name")


def test_a_reset_says_what_stays_on_the_server_and_takes_the_operator_s_checkpoint(
    followed: Followed, public: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The object of the Operator's ConfigMap, `postgresql-cdc` in it, goes on behind its LSN."""
    path, checkpoint = tmp_path / "flow.yaml", tmp_path / "checkpoint.json"
    path.write_text(MANIFEST.format(table=public, dsn=followed.dsn, slot=followed.schema))
    flow, reset = choose(load(path), None), ["reset", str(path), "--flow", "followed"]
    _run(flow, followed.engine)
    assert main([*reset, "--yes"]) == 0
    said = capsys.readouterr().out
    assert f"slot {followed.schema} and publication {followed.schema}_published stay" in said
    assert f"SELECT pg_drop_replication_slot('{followed.schema}')" in said
    followed.run(f"INSERT INTO public.{public} VALUES ('before', 'x')")
    ((at,),) = followed.run("SELECT pg_current_wal_lsn()::text")
    stored = {
        "lastAckedLSN": at,
        "snapshotLSN": "0/1",
        "phase": "streaming",
        "snapshotCompletedTables": [f"public.{public}"],
    }
    checkpoint.write_text(json.dumps({"postgresql-cdc": stored}))
    followed.run(f"INSERT INTO public.{public} VALUES ('behind', 'y')")
    assert main([*reset, "--checkpoint", str(checkpoint), "--yes"]) == 0
    _run(flow, followed.engine)
    assert followed.run(f"SELECT code FROM public.{public}_copy") == [("behind",)]
