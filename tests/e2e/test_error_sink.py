"""A manifest with an errors block, as the command runs it."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest

import devservers
from tests.conftest import Topics
from tests.e2e.flows import KAFKA_TO_POSTGRESQL, Command, produce, record, write

pytestmark = pytest.mark.e2e

MANIFEST = (
    KAFKA_TO_POSTGRESQL
    + """\
  transformations:
    - type: cast
      config: {{spec: {{id: int64}}}}
  errors:
    type: postgresql
    ackPolicy: {policy}
    config:
      connectionString: {dsn}
      table: {schema}.errors
      autoCreateTable: true
"""
)


class Orders:
    """A topic, a table that refuses negative ids, and an error sink beside it."""

    def __init__(self, folder: Path, kafka: Any, topic: str, dsn: str, schema: str) -> None:
        self.folder, self.kafka, self.topic = folder, kafka, topic
        self.dsn, self.schema, self.name = dsn, schema, f"flow-{uuid.uuid4().hex[:8]}"
        columns = "id bigint not null check (id >= 0), name text, nested jsonb"
        self.query(f"create table {schema}.target ({columns})")

    def manifest(self, policy: str) -> str:
        values = {"name": self.name, "topic": self.topic, "dsn": self.dsn, "schema": self.schema}
        bootstrap, table = self.kafka.bootstrap, f"{self.schema}.target"
        return str(
            write(
                self.folder,
                MANIFEST,
                bootstrap=bootstrap,
                limit=700,
                table=table,
                policy=policy,
                **values,
            )
        )

    def query(self, sql: str) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def expect(self, ids: list[int], errors: list[tuple[str, str, Any]]) -> None:
        found = self.query(f"select id from {self.schema}.target order by id")
        assert [row[0] for row in found] == ids
        told = "error->>'stage', error->>'type', original_message"
        assert self.query(f"select {told} from {self.schema}.errors order by 1") == errors


@pytest.fixture
def orders(
    tmp_path: Path,
    kafka: devservers.Kafka,
    topic: Topics,
    postgresql: devservers.PostgreSQL,
    schema: str,
) -> Orders:
    return Orders(tmp_path, kafka, topic(2), postgresql.dsn(), schema)


REFUSED = ("sink", "constraint_violation", {"id": -7, "name": "refused"})
UNCAST = ("step", "invalid_data", {"id": "seven"})


@pytest.mark.parametrize(
    "failpoint",
    [
        "",
        pytest.param("postgresql.before-commit", marks=pytest.mark.full),
        "postgresql.after-commit",
    ],
)
def test_rejected_records_land_in_the_error_sink_once(
    orders: Orders, command: Command, failpoint: str
) -> None:
    bad = [b'{"id": -7, "name": "refused"}', b'{"id": "seven"}']
    produce(orders.kafka, orders.topic, [*map(record, range(2_000)), *bad])
    manifest = orders.manifest("afterWrite")
    if failpoint:
        token = uuid.uuid4().hex
        environment = {
            "DATAFLOW_FAILPOINT": f"{failpoint}:kill:3",
            "DATAFLOW_FAILPOINT_TOKEN": token,
        }
        killed = command.run("run", manifest, **environment)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    for _ in range(2):
        done = command.run("run", manifest)
        assert done.returncode == 0, done.stderr
    orders.expect(list(range(2_000)), [REFUSED, UNCAST])


def test_with_never_the_flow_stops_at_the_record_and_says_so(
    orders: Orders, command: Command
) -> None:
    produce(orders.kafka, orders.topic, map(record, range(10)))
    produce(orders.kafka, orders.topic, [b'{"id": -7, "name": "refused"}'], partitions=1)
    manifest = orders.manifest("never")
    held = command.run("run", manifest)
    assert held.returncode == 1
    assert f"stops at {orders.topic}, partition 0, offset 5" in held.stdout
    assert "it is in the error sink" in held.stdout
    assert "or set ackPolicy: afterWrite" in held.stdout
    orders.expect(list(range(10)), [REFUSED])
    orders.query(f"alter table {orders.schema}.target drop constraint target_id_check")
    mended = command.run("run", manifest)
    assert mended.returncode == 0, mended.stderr
    orders.expect([-7, *range(10)], [REFUSED])


def _beside(text: str) -> str:
    """The manifest's text with a table of rejected records instead of an error sink."""
    return text.partition("  errors:")[0] + "  onRejected: table\n"


@pytest.mark.parametrize("kept", ["errors", "dataflow_rejected"])
def test_a_replay_stores_what_was_rejected_once_the_table_takes_it(
    orders: Orders, command: Command, kept: str
) -> None:
    bad = [b'{"id": -7, "name": "refused"}', b'{"id": "seven"}']
    produce(orders.kafka, orders.topic, [*map(record, range(20)), *bad])
    manifest = Path(orders.manifest("afterWrite"))
    if kept == "dataflow_rejected":
        manifest.write_text(_beside(manifest.read_text()))
    done = command.run("run", str(manifest))
    assert done.returncode == 0, done.stderr
    orders.query(f"alter table {orders.schema}.target drop constraint target_id_check")
    replayed = command.run("replay", str(manifest), "--flow", orders.name)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "2 rejected records replayed: 1 stored, 1 rejected again" in replayed.stdout
    found = orders.query(f"select id from {orders.schema}.target order by id")
    assert [row[0] for row in found] == [-7, *range(20)]
    waits = orders.query(f"select id from {orders.schema}.{kept} where replayed_at is null")
    assert len(waits) == 1
    assert waits[0][0].endswith("/step#attempt-2")
