"""The targets of chaos: each sink, appending and matching rows by a key, read back in full.

Changes come from a topic; into one target from a folder of files, into one from a database.
"""

from __future__ import annotations

import json
import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from dataflow_assets import registry
from tests import arrivals
from tests.connectors.clickhouse.system import Clickhouse
from tests.connectors.files.system import Files
from tests.connectors.iceberg.system import Iceberg
from tests.connectors.kafka.system import Kafka
from tests.connectors.postgresql.system import Postgresql as PostgresqlSystem
from tests.flows import SYSTEMS, manifest
from tests.stress.chaos_driver import Driver
from tests.stress.chaos_model import Model, Verdict
from tests.stress.chaos_secured import MutualTls, ScramAvro
from tests.systems import Change, Config, Fixtures, System

BATCH = 100  # records of a slice


class Target(ABC):
    """One sink in one of its two ways, and what it was sent."""

    type: ClassVar[str]
    server: ClassVar[str]
    """The fixture of its server."""
    reads: ClassVar[str] = "kafka"
    """What the changes come from."""
    broker: ClassVar[str] = "kafka"
    """The fixture of that one's server."""
    ways: ClassVar[tuple[str, ...]] = ("append", "upsert")
    keeps_absent: ClassVar[bool] = False
    kinds: ClassVar[tuple[str, ...]] = ()
    """What befalls it; empty: all that there is."""
    steps: ClassVar[tuple[str, ...]] = ()
    """Where a driver is killed in a `step`."""
    rejects: ClassVar[bool] = False
    """Some of its records must be rejected."""
    spec: ClassVar[Config] = {}
    """What the flow has beside its two ends."""
    columns: ClassVar[Mapping[str, str]] = {}
    """Their types, where the flow makes the table."""

    def __init__(
        self, way: str, given: Fixtures, chance: random.Random, folder: Path, **options: object
    ) -> None:
        upserts = way == "upsert"
        self.folder = folder
        self.model = Model(chance, upserts=upserts, keeps_absent=upserts and self.keeps_absent)
        self.source, self.system = self.systems(given)
        self.read = self.source.at("source", self.reading(upserts=upserts))
        config = self._upserting() if upserts else self.appending()
        self.written = self.system.at("sink", {**config, **options})
        if not upserts:
            self.create()
        ends = (self.reads, self.read), (self.type, self.written)
        self.manifest = manifest(folder, *ends, records=BATCH, **self.spec)

    def systems(self, given: Fixtures) -> tuple[System, System]:
        """Where the changes come from, and where they go."""
        return SYSTEMS[self.reads](given), SYSTEMS[self.type](given)

    def reading(self, *, upserts: bool) -> Config:
        """What the config of the source has beside the place."""
        return {"tombstones": "delete"} if upserts else {}

    def _upserting(self) -> Config:
        config: Config = {**(self.system.upsert or {}), **self.options()}
        if "columns" in registry.sinks()[self.type].model_fields:
            config |= {"autoCreateTable": True, "columns": dict(self.columns)}
        return config

    def appending(self) -> Config:
        """What the config has without `upsertMode`, beside the place."""
        return self.options()

    def options(self) -> Config:
        """What it has in both ways."""
        return {}

    def create(self) -> None:  # noqa: B027 - not every sink needs a table of a special form
        """Makes a table to append to that tells the order in which rows arrive."""

    def send(self, count: int) -> list[Change]:
        """So many changes into the source."""
        changes = self.model.draw(count)
        self.source.change(self.read, changes)
        return changes

    def stored(self, driver: Driver) -> bool:
        """Whether the driver has committed all that was sent."""
        return driver.stored(self.model.ends)

    def verdict(self) -> Verdict:
        """What is wrong in the target."""
        if not self.model.upserts:
            return self.model.appended(self.sequences())
        return self.model.upserted(self.system.rows(self.written))

    @abstractmethod
    def sequences(self) -> list[list[dict[str, Any]]]:
        """The rows, in sequences in each of which the sink keeps the order of a partition."""


class Postgresql(Target):
    type, server, keeps_absent = "postgresql", "postgresql", True
    columns: ClassVar[Mapping[str, str]] = {
        "id": "bigint",
        "n": "bigint",
        "name": "text",
        "price": "double precision",
    }

    def create(self) -> None:
        import psycopg

        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        with psycopg.connect(self.written["connectionString"], autocommit=True) as connection:
            sql = f"create table {self.written['table']} ({columns}, {arrivals.IDENTITY})"
            connection.execute(sql.encode())

    def sequences(self) -> list[list[dict[str, Any]]]:
        assert isinstance(self.system, PostgresqlSystem)
        return [arrivals.postgresql(self.system.dsn, self.written["table"])]


class ClickhouseTarget(Target):
    type, server = "clickhouse", "clickhouse"
    columns: ClassVar[Mapping[str, str]] = {
        "id": "Int64",
        "n": "Int64",
        "name": "String",
        "price": "Nullable(Float64)",
    }

    def create(self) -> None:
        assert isinstance(self.system, Clickhouse)
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        self.system.client.command(
            f"CREATE TABLE {self.written['table']} ({columns}) ENGINE = MergeTree ORDER BY tuple() "
            "SETTINGS non_replicated_deduplication_window = 10000"
        )

    def sequences(self) -> list[list[dict[str, Any]]]:
        assert isinstance(self.system, Clickhouse)
        return [arrivals.clickhouse(self.system.client, self.written["table"])]


class IcebergTarget(Target):
    type, server, keeps_absent = "iceberg", "seaweedfs", True
    columns: ClassVar[Mapping[str, str]] = {
        "id": "long",
        "n": "long",
        "name": "string",
        "price": "double",
    }

    def options(self) -> Config:
        return {"batchFlushIntervalSeconds": 1}

    def appending(self) -> Config:
        return {**self.options(), "autoCreateTable": True, "columns": dict(self.columns)}

    def sequences(self) -> list[list[dict[str, Any]]]:
        assert isinstance(self.system, Iceberg)
        place = (self.written["namespace"], self.written["table"])
        return [arrivals.iceberg(self.system.catalog.load_table(place))]


class NessieTarget(IcebergTarget):
    type, server = "nessie", "nessie"


class TrinoTarget(IcebergTarget):
    """An Iceberg table that Trino writes: a commit's rows have no order, commits have theirs."""

    type, server = "trino", "trino"
    kinds = ("step", "driver", "step + database", "step", "database", "driver + database")
    steps = (
        "trino.begin",
        "trino.write",
        "trino.staged",
        "trino.before-commit",
        "trino.recorded",
        "trino.written",
        "trino.committed",
    )
    columns: ClassVar[Mapping[str, str]] = {
        "id": "bigint",
        "n": "bigint",
        "name": "varchar",
        "price": "double",
    }

    def sequences(self) -> list[list[dict[str, Any]]]:
        catalog = self.system.request.getfixturevalue("catalog")
        table = catalog.load_table((self.written["schema"], self.written["table"]))
        return [arrivals.iceberg(table, sorts="n")]


class KafkaTarget(Target):
    type, server = "kafka", "kafka"

    def appending(self) -> Config:
        return {"keyField": "id"}

    def sequences(self) -> list[list[dict[str, Any]]]:
        assert isinstance(self.system, Kafka)
        return arrivals.kafka(self.system.server.bootstrap, self.written["topic"])

    def verdict(self) -> Verdict:
        """Of states also their log: nothing stands in it twice or behind a later record."""
        found = super().verdict()
        if not self.model.upserts:
            return found
        log = self.sequences()
        numbers = [row["n"] for sequence in log for row in sequence]
        return found + Verdict(doubled=len(numbers) - len({*numbers})) + self.model.ordered(log)


class SecuredTarget(KafkaTarget):
    """Avro by a registry, over SASL and TLS; back to the same brokers with a client certificate."""

    broker = server = "secure_kafka"

    def systems(self, given: Fixtures) -> tuple[System, System]:
        return ScramAvro(given), MutualTls(given)


class FilesTarget(Target):
    """Files have the order of their names: the commits, in each the partitions."""

    type, server, ways = "files", "seaweedfs", ("append",)

    def sequences(self) -> list[list[dict[str, Any]]]:
        return [self.system.rows(self.written)]


class FromFiles(Postgresql):
    """Each time one more file, which is read in parts at once: without an order."""

    reads, broker, ways = "files", "seaweedfs", ("append",)

    def reading(self, *, upserts: bool) -> Config:  # noqa: ARG002 - it only appends
        return {"parallelReads": 2, "pollInterval": 1}

    def send(self, count: int) -> list[Change]:
        changes = self.model.draw(count)
        lines = "".join(json.dumps(change.row) + "\n" for change in changes)
        assert isinstance(self.source, Files)
        self.source.folder.put(f"{uuid.uuid4().hex}.jsonl", lines.encode())
        return changes

    def stored(self, driver: Driver) -> bool:  # noqa: ARG002 - positions are the source's own text
        return len(self.system.rows(self.written)) >= len(self.model.sent)

    def sequences(self) -> list[list[dict[str, Any]]]:
        return [[row] for sequence in super().sequences() for row in sequence]
