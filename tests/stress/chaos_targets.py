"""The targets of chaos: each sink, appending and matching rows by a key, read back in full."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from dataflow_assets import registry
from tests import arrivals
from tests.stress.chaos_model import Model, Verdict
from tests.systems import SYSTEMS, Change, Clickhouse, Config, Fixtures, Iceberg, Kafka, manifest
from tests.systems import Postgresql as PostgresqlSystem

BATCH = 100  # records of a slice


class Target(ABC):
    """One sink in one of its two ways, and what it was sent."""

    type: ClassVar[str]
    server: ClassVar[str]
    """The fixture of its server."""
    keeps_absent: ClassVar[bool] = False
    columns: ClassVar[Mapping[str, str]] = {}
    """Their types, where the flow makes the table."""

    def __init__(
        self, way: str, given: Fixtures, chance: random.Random, folder: Path, **options: object
    ) -> None:
        upserts = way == "upsert"
        self.model = Model(chance, upserts=upserts, keeps_absent=upserts and self.keeps_absent)
        self.source, self.system = SYSTEMS["kafka"](given), SYSTEMS[self.type](given)
        self.read = self.source.at("source", {"tombstones": "delete"} if upserts else {})
        config = self._upserting() if upserts else self.appending()
        self.stored = self.system.at("sink", {**config, **options})
        if not upserts:
            self.create()
        ends = ("kafka", self.read), (self.type, self.stored)
        self.manifest = manifest(folder, *ends, records=BATCH)

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

    def verdict(self) -> Verdict:
        """What is wrong in the target."""
        if not self.model.upserts:
            return self.model.appended(self.sequences())
        return self.model.upserted(self.system.rows(self.stored))

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
        with psycopg.connect(self.stored["connectionString"], autocommit=True) as connection:
            sql = f"create table {self.stored['table']} ({columns}, {arrivals.IDENTITY})"
            connection.execute(sql.encode())

    def sequences(self) -> list[list[dict[str, Any]]]:
        assert isinstance(self.system, PostgresqlSystem)
        return [arrivals.postgresql(self.system.dsn, self.stored["table"])]


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
            f"CREATE TABLE {self.stored['table']} ({columns}) ENGINE = MergeTree ORDER BY tuple() "
            "SETTINGS non_replicated_deduplication_window = 10000"
        )

    def sequences(self) -> list[list[dict[str, Any]]]:
        assert isinstance(self.system, Clickhouse)
        return [arrivals.clickhouse(self.system.client, self.stored["table"])]


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
        place = (self.stored["namespace"], self.stored["table"])
        return [arrivals.iceberg(self.system.catalog.load_table(place))]


class KafkaTarget(Target):
    type, server = "kafka", "kafka"

    def appending(self) -> Config:
        return {"keyField": "id"}

    def sequences(self) -> list[list[dict[str, Any]]]:
        assert isinstance(self.system, Kafka)
        return arrivals.kafka(self.system.server.bootstrap, self.stored["topic"])

    def verdict(self) -> Verdict:
        """Of states also their log: nothing stands in it twice or behind a later record."""
        found = super().verdict()
        if not self.model.upserts:
            return found
        log = self.sequences()
        numbers = [row["n"] for sequence in log for row in sequence]
        return found + Verdict(doubled=len(numbers) - len({*numbers})) + self.model.ordered(log)


TARGETS: dict[str, type[Target]] = {
    target.type: target for target in (Postgresql, ClickhouseTarget, IcebergTarget, KafkaTarget)
}
WAYS = ("append", "upsert")
MODES = [f"{sink} {way}" for sink in sorted(TARGETS) for way in WAYS]


def target(mode: str, given: Fixtures, chance: random.Random, folder: Path) -> Target:
    """The target of a mode: a sink and its way."""
    sink, way = mode.split()
    return TARGETS[sink](way, given, chance, folder)
