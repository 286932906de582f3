"""kill -9 around the first start of a flow that takes over from JustOne's connector."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path

import psycopg
import pytest

import devservers
from tests.conftest import Topics
from tests.connectors.postgresql.predecessor import Predecessor
from tests.e2e.flows import Command, produce
from tests.languages.justone.test_reader import WORKER, changed

pytestmark = [pytest.mark.crash, pytest.mark.e2e]

STEPS = [
    "justone.inherited:kill:1",
    "postgresql.begin:kill:1",
    "postgresql.copy:kill:1",
    "postgresql.before-commit:kill:1",
    "postgresql.after-commit:kill-driver:1",
    "postgresql.finish:kill-driver:1",
]
STORED, SENT = 3_000, 5_000


def test_every_message_is_stored_once_wherever_the_first_start_is_killed(
    tmp_path: Path, kafka: devservers.Kafka, topic: Topics, own_database: str, command: Command
) -> None:
    """Each run is killed at the next step; the last one stores the rest."""
    name = topic(2)
    with psycopg.connect(own_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE readings (id bigint, latitude numeric)")
    produce(kafka, name, map(_message, range(SENT)))
    with Predecessor(own_database, "public", "readings") as connector:
        rows = [[number, number / 2] for number in range(STORED)]
        connector.flush(rows, {(name, 0): STORED // 2, (name, 1): STORED // 2})
    _write(tmp_path, kafka, own_database, name)
    sent = SENT
    for step in STEPS:
        failpoint = {"DATAFLOW_FAILPOINT": step, "DATAFLOW_FAILPOINT_TOKEN": uuid.uuid4().hex}
        killed = command.run("run", str(tmp_path), **failpoint)
        assert killed.returncode == -signal.SIGKILL, (step, killed.stderr)
        produce(kafka, name, map(_message, range(sent, sent + 100)))  # something for each run
        sent += 100
    again = command.run("run", str(tmp_path))
    assert again.returncode == 0, again.stderr
    with psycopg.connect(own_database) as connection:
        query = "SELECT id, latitude::float8 FROM readings ORDER BY 1"
        found = connection.execute(query).fetchall()
    assert found == [(number, number / 2) for number in range(sent)]


def _message(number: int) -> bytes:
    return b'{"identity":%d,"location":{"latitude":%s}}' % (number, str(number / 2).encode())


def _write(folder: Path, kafka: devservers.Kafka, database: str, topic: str) -> None:
    settings = psycopg.conninfo.conninfo_to_dict(database)
    text = changed(
        topics=topic,
        db__host=f"{settings['host']}:{settings['port']}",
        db__database=str(settings["dbname"]),
        db__username=str(settings["user"]),
        db__columns="id,latitude",
        db__json__parse="/@identity,/@location/@latitude",
    )
    (folder / "sink.properties").write_text(text)
    (folder / "worker.properties").write_text(WORKER.replace("localhost:9092", kafka.bootstrap))
