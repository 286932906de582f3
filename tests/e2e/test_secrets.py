"""A planted secret is searched in everything a run leaves behind."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg
import pytest

import devservers
from tests.conftest import Topics
from tests.e2e.flows import Command, produce, record

pytestmark = pytest.mark.e2e

PLANTED = "s3cr3t-Pl4nted"
MANIFEST = """
apiVersion: v1
kind: Secret
metadata:
  name: warehouse
stringData:
  connectionString: {dsn}
---
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: secretive
spec:
  source:
    type: kafka
    config:
      brokers: ["{bootstrap}"]
      topic: {topic}
  sink:
    type: postgresql
    config:
      connectionStringSecretRef:
        name: warehouse
        key: connectionString
      table: {schema}.{table}
  onRejected: table
"""


def test_a_secret_is_nowhere_to_be_found(
    tmp_path: Path,
    kafka: devservers.Kafka,
    topic: Topics,
    postgresql: devservers.PostgreSQL,
    schema: str,
) -> None:
    role, name = f"r_{schema}", topic(2)
    dsn = postgresql.dsn()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"create role {role} superuser login password '{PLANTED}'")
        connection.execute(f"create table {schema}.target (id bigint, name text, nested jsonb)")
    produce(kafka, name, [*map(record, range(50)), b"broken"])
    secret = dsn.replace("postgres@", f"{role}:{PLANTED}@")
    spark_conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{tmp_path}"}
    try:
        with devservers.SparkConnect(tmp_path / "spark", conf=spark_conf) as server:
            command = Command(server.remote)
            said = []
            values = {"bootstrap": kafka.bootstrap, "topic": name, "schema": schema}
            for table, dsn_used, commands in (
                ("target", secret, (("check",), ("run", "--verbose"), ("status",))),
                ("missing", secret + "x", (("run", "--json", "--verbose"),)),
            ):
                manifest = tmp_path / "flow.yaml"
                manifest.write_text(MANIFEST.format(dsn=dsn_used, table=table, **values))
                for arguments in commands:
                    done = command.run(*arguments, str(manifest), DATAFLOW_PATIENCE="2")
                    said.append(done.stdout + done.stderr)
                manifest.unlink()
            assert "rejected" in said[1]
        left = _everything(tmp_path) + "".join(said)
        assert PLANTED not in left
        with psycopg.connect(dsn) as connection:
            found = connection.execute(
                f"select t::text from {schema}.dataflow_checkpoint t union all "
                f"select t::text from {schema}.dataflow_rejected t"
            ).fetchall()
        assert found
        assert PLANTED not in str(found)
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"drop owned by {role} cascade; drop role {role}")


def _everything(folder: Path) -> str:
    """Every file below the folder: logs of the server, its event log, what workers left."""
    files = [Path(root, name) for root, _, names in os.walk(folder) for name in names]
    assert any("spark" in str(path) for path in files)
    return "".join(path.read_bytes().decode("latin-1") for path in files)
