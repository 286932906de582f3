"""A first load of a table, killed in the middle: nothing is lost and nothing stands twice."""

from __future__ import annotations

import random
import signal
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

import devservers
from tests.e2e.flows import Command

pytestmark = [pytest.mark.crash, pytest.mark.e2e]

ROWS, PART = 40_000, 2_000
MANIFEST = """
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: load-{schema}
spec:
  source:
    type: postgresql
    config:
      connectionString: {dsn}
      table: {schema}.source
      readBatchSize: {part}
  sink:
    type: postgresql
    config:
      connectionString: {dsn}
      table: {schema}.target
"""


@dataclass
class Load:
    """A table of some parts, and an empty one of the same columns: an append."""

    dsn: str
    schema: str
    manifest: Path

    def execute(self, sql: str) -> list[tuple[int, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(sql.format(s=self.schema).encode())
            return cursor.fetchall() if cursor.description else []

    def count(self) -> int:
        ((found,),) = self.execute("SELECT count(*) FROM {s}.target")
        return found

    def expect_everything_once(self) -> None:
        """The first image of every row, and the later one of those that changed."""
        sql = (
            "SELECT count(*), count(DISTINCT (id, name)), count(DISTINCT id), "
            "count(*) FILTER (WHERE name = 'changed') FROM {s}.target"
        )
        rows, versions, ids, changed = self.execute(sql)[0]
        assert (ids, changed) == (ROWS, 10)
        assert rows == versions, "a row stands twice"
        assert ROWS <= rows <= ROWS + 10  # changed before its range was read: no first image


@pytest.fixture
def load(postgresql: devservers.PostgreSQL, schema: str, tmp_path: Path) -> Load:
    dsn = postgresql.dsn()
    manifest = tmp_path / "flow.yaml"
    manifest.write_text(MANIFEST.format(schema=schema, dsn=dsn, part=PART))
    made = Load(dsn, schema, manifest)
    for table in ("source", "target"):
        made.execute(f"CREATE TABLE {{s}}.{table} (id int, name text, updated_at timestamptz)")
    made.execute("ALTER TABLE {s}.source ADD PRIMARY KEY (id)")
    made.execute(
        "INSERT INTO {s}.source SELECT i, 'n' || i, now() - interval '1 hour' "
        f"FROM generate_series(1, {ROWS}) i"
    )
    return made


@pytest.mark.parametrize(
    "step",
    [
        "postgresql.read",
        pytest.param("postgresql.before-commit", marks=pytest.mark.full),
        "postgresql.after-commit",
    ],
)
def test_killed_at_a_step(load: Load, command: Command, step: str) -> None:
    token = {"DATAFLOW_FAILPOINT": f"{step}:kill:7", "DATAFLOW_FAILPOINT_TOKEN": uuid.uuid4().hex}
    killed = command.run("run", str(load.manifest), **token)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert 4 * PART <= load.count() <= 8 * PART, "the first span, and some parts of the second"
    load.execute("UPDATE {s}.source SET name = 'changed', updated_at = now() WHERE id % 4000 = 1")
    again = command.run("run", str(load.manifest))
    assert again.returncode == 0, again.stderr
    load.expect_everything_once()


@pytest.mark.full
def test_killed_at_random_moments(
    load: Load, command: Command, request: pytest.FixtureRequest
) -> None:
    seed = random.randrange(1 << 30)
    request.node.add_report_section("call", "seed", str(seed))
    moments = random.Random(seed)
    for number in range(3):
        running = command.start("run", str(load.manifest))
        before, deadline = load.count(), time.monotonic() + 60
        while load.count() == before < ROWS and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 0.3))
        running.kill()
        running.communicate()
        low = number * 12_000
        load.execute(
            "UPDATE {s}.source SET name = 'changed', updated_at = now() "
            f"WHERE id IN ({low + 1}, {low + 2}, {low + 3}{f', {ROWS}' if number == 2 else ''})"
        )
    again = command.run("run", str(load.manifest))
    assert again.returncode == 0, again.stderr
    load.expect_everything_once()
