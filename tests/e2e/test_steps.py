"""Eleven steps, three sinks and an error sink on real servers: every record is accounted for."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import LongType

import devservers
from tests.conftest import Topics
from tests.e2e import shop
from tests.e2e.flows import Command, iceberg_values, write
from tests.e2e.shop import COLUMNS, Refused, Row, Stored

pytestmark = [pytest.mark.crash, pytest.mark.e2e, pytest.mark.timeout(400)]

TYPES = dict.fromkeys(("seq", "id", "position"), "bigint")
TYPES |= dict.fromkeys(("line", "qty", "partition"), "integer")
TYPES |= dict.fromkeys(("kind", "e_mail", "phone"), "text") | {"amount": "double precision"}
ARROW = {
    "bigint": pa.int64(),
    "integer": pa.int32(),
    "text": pa.string(),
    "double precision": pa.float64(),
}


class World:
    """The shop's topic, its three tables, and its error sink."""

    def __init__(self, folder: Path, seed: int, values: dict[str, Any], catalog: Catalog) -> None:
        self.shop = shop.Shop(seed)
        self.values = values | {"name": f"flow-{uuid.uuid4().hex[:8]}"}
        self._folder, self._catalog = folder, catalog
        self._lake = (values["namespace"], "lake")
        columns = ", ".join(f"{name} {TYPES[name]}" for name in COLUMNS)
        self.query(f"create table {self.schema}.orders ({columns}, primary key (id, line))")
        self.query(f"create table {self.schema}.payments ({columns}, check (amount >= 0))")
        fields = [(name, ARROW[TYPES[name]]) for name in COLUMNS]
        catalog.create_table(self._lake, pa.schema(fields))

    @property
    def schema(self) -> str:
        return str(self.values["schema"])

    def manifest(self, *, nullable: bool = False) -> str:
        words = self.values | {"nullable": json.dumps(nullable)}
        return str(write(self._folder, shop.MANIFEST, **words))

    def produce(self, count: int) -> None:
        self.shop.produce(self.values["bootstrap"], self.values["topic"], count)

    def query(self, sql: str) -> list[Row]:
        with psycopg.connect(self.values["dsn"], autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def rows(self, table: str) -> list[Row]:
        if table != "lake":
            return self.query(f"select {', '.join(COLUMNS)} from {self.schema}.{table}")
        found = self._catalog.load_table(self._lake).scan().to_arrow()
        return [tuple(row[name] for name in COLUMNS) for row in found.to_pylist()]

    def wait_for_more(self) -> None:
        """Until the next commit of the main sink."""
        before = len(self.rows("orders"))
        _until(lambda: len(self.rows("orders")) != before)

    def mend(self) -> None:
        """Amounts may be negative and `qty` is wide."""
        self.query(f"alter table {self.schema}.payments drop constraint payments_amount_check")
        for table in ("orders", "payments"):
            self.query(f"alter table {self.schema}.{table} alter qty type bigint")
        with self._catalog.load_table(self._lake).update_schema() as change:
            change.update_column("qty", LongType())

    def expect(self, more: list[Stored] | None = None) -> None:
        """Every record is where it belongs, once; `more`: what a replay has put back."""
        found = [one for event in self.shop.events for one in shop.outcome(event)]
        stored = [one for one in found if isinstance(one, Stored)] + (more or [])
        for table in ("payments", "lake"):
            assert sorted(self.rows(table), key=repr) == shop.grown(stored, table), table
        orders = {row[1:3]: row for row in self.rows("orders")}
        wanted = shop.latest(stored, "orders")
        assert orders.keys() == wanted.keys()
        assert [row for key, row in orders.items() if row not in wanted[key]] == []
        assert self.errors() == sorted(self._refused())

    def errors(self, attempt: int = 1) -> list[Row]:
        """Place, part, table and stage of each entry, as often as it is there."""
        found = self.query(f"select error, error->>'id' from {self.schema}.errors")
        assert len({name for _, name in found}) == len(found)
        return sorted(_entry(error) for error, _ in found if error["attempt"] == attempt)

    def _refused(self) -> Iterator[Row]:
        for event in self.shop.events:
            for one in shop.outcome(event):
                if isinstance(one, Refused):
                    yield event.partition, event.offset, one.n, one.table, one.stage


def _entry(error: dict[str, Any]) -> Row:
    """What the id says, which stays the same in all attempts."""
    *_, partition, offset, n, stage = error["id"].partition("#")[0].split("/")
    table = error["branch"].removesuffix("#replay").rpartition(":")[2]
    return int(partition), int(offset), int(n), table, stage


@pytest.fixture
def wire(postgresql: devservers.PostgreSQL) -> Iterator[devservers.Proxy]:
    with devservers.Proxy(postgresql.port) as proxy:
        yield proxy


@pytest.fixture
def world(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kafka: devservers.Kafka,
    postgresql: devservers.PostgreSQL,
    seaweedfs: devservers.SeaweedFS,
    catalog: Catalog,
    topic: Topics,
    schema: str,
    namespace: str,
    wire: devservers.Proxy,
) -> World:
    seed = random.randrange(1 << 30)
    request.node.add_report_section("call", "seed", str(seed))
    dsn = postgresql.dsn()
    values = {
        "bootstrap": kafka.bootstrap,
        "topic": topic(2),
        "dsn": dsn,
        "payments_dsn": dsn.replace(f":{postgresql.port}", f":{wire.port}"),
        "schema": schema,
        "namespace": namespace,
        "seed": seed,
        **iceberg_values(seaweedfs),
    }
    return World(tmp_path, seed, values, catalog)


def test_killed_at_random_every_record_is_accounted_for(world: World, command: Command) -> None:
    chance = random.Random(world.values["seed"])
    manifest = world.manifest()
    for begun in (False, True, True, True):
        world.produce(600)
        process = command.start("run", manifest)
        if begun:
            world.wait_for_more()
        time.sleep(chance.uniform(0.0, 2.0))
        process.kill()
        process.communicate()
    done = command.run("run", manifest)
    assert done.returncode == 0, done.stderr
    world.expect()
    stages = {entry[-1] for entry in world.errors()}
    assert stages == {"decode", "step", "encode", "sink"}
    _put_back(world, command)


def _put_back(world: World, command: Command) -> None:
    """Mends the causes and replays; the first replay is killed once it has stored something."""
    world.mend()
    replay = ("replay", world.manifest(nullable=True), "--flow", world.values["name"], "--json")
    process = command.start(*replay)
    world.wait_for_more()
    process.kill()
    process.communicate()
    for _ in range(2):
        done = command.run(*replay)
        assert done.returncode == 0, done.stdout + done.stderr
    world.expect([one for event in world.shop.events for one in shop.mended(event)])
    never = [entry for entry in world.errors() if entry[-1] == "decode"]
    assert world.errors(attempt=2) == never


def test_a_branch_whose_database_is_down_catches_up_alone(
    world: World, wire: devservers.Proxy, command: Command
) -> None:
    manifest = world.manifest()
    world.produce(600)
    wire.refuse()
    down = command.run("run", manifest, DATAFLOW_PATIENCE="3")
    assert down.returncode == 1
    told = down.stdout + down.stderr
    assert "payments was suspended" in told
    assert "The other branches went on" in told
    others = {table: world.rows(table) for table in ("orders", "lake")}
    assert all(others.values())
    assert world.rows("payments") == []
    wire.restore()
    process = command.start("run", manifest)
    _until(lambda: bool(world.rows("payments")))
    process.kill()
    process.communicate()
    assert {table: world.rows(table) for table in others} == others
    world.produce(600)
    process = command.start("run", manifest)
    world.wait_for_more()
    wire.refuse()
    time.sleep(1)
    wire.restore()
    _, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    world.expect()


def _until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not there():
        assert time.monotonic() < deadline, "not within a minute"
        time.sleep(0.05)
