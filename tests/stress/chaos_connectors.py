"""What connectors of Kafka Connect deliver, and records of Kinesis, appended to a table.

A connector's parts are read side by side, so that its rows have no order in the table; those of a
stream have that of their keys.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import psycopg

import devservers
from tests import arrivals
from tests.connectors.kafka_connect import debezium
from tests.connectors.kafka_connect.driver import mirroring, plugins, source
from tests.connectors.kinesis.system import Kinesis
from tests.stress.chaos_driver import Driver
from tests.stress.chaos_kills import HOSTED, PAUSES
from tests.stress.chaos_targets import Postgresql
from tests.systems import Change, Config, Fixtures, System

COLUMNS = ("id", "n", "name", "price")
KILLED = ("driver", "worker", "spark", "database", "driver + worker", "driver + database")
TASKS = 4
SPLITS = 6  # of shards, at most


class Connector(System):
    """A connector whose records are a change each; nothing is null."""

    type = "kafkaConnect"
    tells_changes, sends_nulls = True, False

    def __init__(self, request: Fixtures, folder: Path) -> None:
        super().__init__(request)
        self.folder = folder / f"connect-{uuid.uuid4().hex[:6]}"
        self.folder.mkdir()


class Lines(Connector):
    """FileStreamSourceConnector, of a file that grows."""

    @property
    def _file(self) -> Path:
        return self.folder / "lines.jsonl"

    def at(self, role: str, config: Config) -> Config:  # noqa: ARG002 - a source alone
        self._file.touch()
        settings = {"file": str(self._file), "topic": "lines", "batch.size": 200}
        reading = source(self.folder, "FileStreamSourceConnector", settings, tasksMax=1)
        return {**config, **reading, "envelope": False}

    def change(self, config: Config, changes: Sequence[Change]) -> None:  # noqa: ARG002 - one file
        with self._file.open("a") as file:
            file.writelines(json.dumps(change.row) + "\n" for change in changes)


class Mirror(Connector):
    """MirrorSourceConnector with a task for each of four partitions."""

    def at(self, role: str, config: Config) -> Config:  # noqa: ARG002 - a source alone
        self.server: devservers.Kafka = self.request.getfixturevalue("kafka")
        self.topic: str = self.request.getfixturevalue("topic")(TASKS)
        settings = mirroring(self.server, self.topic)
        reading = source(self.folder, "MirrorSourceConnector", settings, tasksMax=TASKS)
        return {**config, **reading, "envelope": False, "heap": "256m"}

    def change(self, config: Config, changes: Sequence[Change]) -> None:  # noqa: ARG002 - one topic
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": self.server.bootstrap, "enable.idempotence": True}
        producer = Producer({**settings, "log_level": 0})
        for change in changes:
            body = json.dumps(change.row).encode()
            producer.produce(self.topic, body, partition=change.row["id"] % TASKS)
        assert producer.flush(30) == 0


class Debezium(Connector):
    """Debezium's connector of a table that gets rows one by one and by COPY, and loses none."""

    def at(self, role: str, config: Config) -> Config:  # noqa: ARG002 - a source alone
        self.server: devservers.PostgreSQL = self.request.getfixturevalue("postgresql")
        self.schema: str = self.request.getfixturevalue("schema")
        columns = "n bigint PRIMARY KEY, id bigint, name text, price double precision"
        self._run(f"CREATE TABLE {self.schema}.rows ({columns})")
        self.request.addfinalizer(self._end)
        settings = debezium.settings(self.server, self.schema) | {
            "transforms": "row",
            "transforms.row.type": "io.debezium.transforms.ExtractNewRecordState",
        }
        reading = source(self.folder, debezium.CLASS, settings, tasksMax=1, heap="256m")
        reading["plugins"] = [plugins(self.folder / "debezium", "connect-debezium")]
        return {**config, **reading, "envelope": False}

    def change(self, config: Config, changes: Sequence[Change]) -> None:  # noqa: ARG002 - one table
        """Each half as a transaction of its own: rows one by one, then a COPY."""
        rows = [tuple(change.row.get(name) for name in COLUMNS) for change in changes]
        half, names = len(rows) // 2, ", ".join(COLUMNS)
        insert = f"INSERT INTO {self.schema}.rows ({names}) VALUES (%s, %s, %s, %s)"
        with psycopg.connect(self.server.dsn()) as connection:
            connection.cursor().executemany(insert.encode(), rows[:half])
        copying = f"COPY {self.schema}.rows ({names}) FROM STDIN".encode()
        with (
            psycopg.connect(self.server.dsn()) as connection,
            connection.cursor().copy(copying) as copy,
        ):
            for row in rows[half:]:
                copy.write_row(row)

    def _run(self, statement: str) -> None:
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def _end(self) -> None:
        """Nothing keeps the slot: the driver is gone."""
        self._run(
            "SELECT pg_terminate_backend(active_pid, 5000), pg_drop_replication_slot(slot_name) "
            f"FROM pg_replication_slots WHERE slot_name = '{self.schema}'"
        )


class _Unordered(Postgresql):
    """Appended without an order, and complete once there are as many rows as were sent."""

    ways = ("append",)
    kinds = (*KILLED, *HOSTED)
    connector: ClassVar[type[Connector]]

    def systems(self, given: Fixtures) -> tuple[System, System]:
        _, sink = super().systems(given)
        return self.connector(given, self.folder), sink

    def stored(self, driver: Driver) -> bool:  # noqa: ARG002 - positions are the source's own text
        with psycopg.connect(self.written["connectionString"]) as connection:
            (count,) = connection.execute(
                f"SELECT count(*) FROM {self.written['table']}"
            ).fetchone() or (0,)
        return int(count) >= len(self.model.sent)

    def sequences(self) -> list[list[dict[str, Any]]]:
        return [[row] for sequence in super().sequences() for row in sequence]


class FromLines(_Unordered):
    connector, reads, broker = Lines, "kafkaConnect", "postgresql"


class FromMirror(_Unordered):
    """Also its broker is killed."""

    connector, reads = Mirror, "kafkaConnect"
    kinds = (*KILLED, *HOSTED, "broker", "driver + broker")


class FromDebezium(_Unordered):
    """The database is that of the source, too."""

    connector, reads, broker = Debezium, "kafkaConnect", "postgresql"


class FromKinesis(_Unordered):
    """Shards are split meanwhile. The test server is not killed: its streams are in its memory."""

    reads, broker = "kinesis", "kinesis"
    kinds = (*KILLED, *PAUSES)
    _splits = 0

    def systems(self, given: Fixtures) -> tuple[System, System]:
        return Postgresql.systems(self, given)

    def send(self, count: int) -> list[Change]:
        if self._splits < SPLITS and self.model.chance.random() < 0.3:
            self._split()
        return super().send(count)

    def _split(self) -> None:
        assert isinstance(self.source, Kinesis)
        stream = self.source.stream
        still = [
            one for one in stream.shards if "EndingSequenceNumber" not in one["SequenceNumberRange"]
        ]
        stream.split(self.model.chance.choice(still)["ShardId"])
        self._splits += 1

    def sequences(self) -> list[list[dict[str, Any]]]:
        """By the key of a record."""
        by_key: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in arrivals.postgresql(self.written["connectionString"], self.written["table"]):
            by_key[row["id"]].append(row)
        return list(by_key.values())
