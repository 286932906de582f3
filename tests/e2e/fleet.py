"""Twenty flows in a folder: each kind of source into each kind of sink, fed all the time."""

from __future__ import annotations

import json
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import psycopg
import pyarrow as pa
from confluent_kafka import Producer
from ruamel.yaml import YAML

from dataflow_assets.contracts import Checkpoint, Sink, Target
from dataflow_assets.errors import TransientError
from dataflow_assets.manifests.load import load
from tests import arrivals
from tests.connectors.files import driver
from tests.connectors.files.system import Files
from tests.connectors.iceberg.system import Iceberg
from tests.connectors.postgresql.system import Postgresql
from tests.systems import Config, Fixtures

KEYS = 50  # of a source whose rows change
Row = tuple[int, int, str]
COLUMNS = "id bigint {key}, number bigint, name text"
_SCHEMA = pa.schema([("id", pa.int64()), ("number", pa.int64()), ("name", pa.string())])


def row(number: int, keys: int | None = None) -> dict[str, Any]:
    return {"id": number % keys if keys else number, "number": number, "name": f"name-{number}"}


class Feed(ABC):
    """One source, and how many rows it was given."""

    type: ClassVar[str]
    keys: ClassVar[int | None] = None
    """None: each row has a key of its own."""
    in_order: ClassVar[bool] = False
    """Rows arrive in the order in which they were written."""
    steps: ClassVar[Sequence[Config]] = ()

    def __init__(self, given: Fixtures) -> None:
        self.given = given
        self.made = 0
        self.config: Config = {"pollInterval": 1, **self.place()}

    def feed(self, count: int) -> None:
        self.write([row(n, self.keys) for n in range(self.made, self.made + count)])
        self.made += count

    def reading(self, flow: str) -> Config:  # noqa: ARG002 - what overrides need
        """The `config` of a flow that reads it."""
        return self.config

    @abstractmethod
    def place(self) -> Config:
        """Makes it."""

    @abstractmethod
    def write(self, rows: Sequence[dict[str, Any]]) -> None: ...


class Topic(Feed):
    type, in_order = "kafka", True

    def place(self) -> Config:
        bootstrap = self.given.getfixturevalue("kafka").bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        return {"brokers": [bootstrap], "topic": self.given.getfixturevalue("topic")(1)}

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        for each in rows:
            self._producer.produce(self.config["topic"], json.dumps(each).encode(), partition=0)
        assert self._producer.flush(60) == 0

    def reading(self, flow: str) -> Config:
        here = {name: value for name, value in self.config.items() if name != "pollInterval"}
        return {**here, "consumerGroup": flow}


class States(Topic):
    """Each record is the newest state of its key."""

    keys = KEYS


class Growing(Feed):
    """A table that only grows, by its id."""

    type = "postgresql"
    table, more = "growing", ""
    sql = "insert into {table} values (%(id)s, %(number)s, %(name)s)"

    def place(self) -> Config:
        system = Postgresql(self.given)
        config = system.at(self.table, {})
        self._dsn = system.dsn
        columns = COLUMNS.format(key="primary key") + self.more
        with psycopg.connect(self._dsn) as connection:
            connection.execute(f"create table {config['table']} ({columns})".encode())
        return config

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        with psycopg.connect(self._dsn) as connection:
            sql = self.sql.format(table=self.config["table"]).encode()
            connection.cursor().executemany(sql, rows)


class Changing(Growing):
    """A table whose rows change, by `updated_at`."""

    keys = KEYS
    table, more = "changing", ", updated_at timestamptz"
    steps = ({"type": "remove", "config": {"fields": ["updated_at"]}},)
    sql = (
        "insert into {table} values (%(id)s, %(number)s, %(name)s, clock_timestamp()) "
        "on conflict (id) do update set "
        "number = excluded.number, name = excluded.name, updated_at = excluded.updated_at"
    )


class Folder(Feed):
    """Each time one file more."""

    type = "files"

    def place(self) -> Config:
        system = Files(self.given)
        config = system.at("source", {})
        self._folder = system.folder
        return config

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        lines = "".join(json.dumps(each) + "\n" for each in rows)
        self._folder.put(f"{self.made:06}.jsonl", lines.encode())


class Lake(Feed):
    """Each time one snapshot more."""

    type = "iceberg"

    def place(self) -> Config:
        system = Iceberg(self.given)
        config = system.at("source", {})
        name = (config["namespace"], config["table"])
        self._table = system.catalog.create_table(name, _SCHEMA)
        return config

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        self._table.append(pa.Table.from_pylist(list(rows), _SCHEMA))


class End(ABC):
    """One target, and what stands in it."""

    type: ClassVar[str]

    def __init__(self, given: Fixtures, name: str, *, upserts: bool) -> None:
        self.given, self.name, self.upserts = given, name, upserts
        how = {"upsertMode": True, "conflictKey": "id"} if upserts else {}
        self.config: Config = {**self.place(), **how}

    @abstractmethod
    def place(self) -> Config:
        """Makes it, where the flow does not."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """In the order in which they arrived, where nothing is replaced."""

    def states(self) -> list[dict[str, Any]]:
        """Of a target that upserts: the row of each key."""
        return self.rows()


class ToPostgresql(End):
    type = "postgresql"

    def place(self) -> Config:
        system = Postgresql(self.given)
        config = system.at(self.name, {})
        self._dsn = system.dsn
        columns = COLUMNS.format(key="primary key" if self.upserts else "not null")
        sql = f"create table {config['table']} ({columns}, {arrivals.IDENTITY})"
        with psycopg.connect(self._dsn) as connection:
            connection.execute(sql.encode())
        return config

    def rows(self) -> list[dict[str, Any]]:
        return arrivals.postgresql(self._dsn, self.config["table"])


class ToKafka(End):
    type = "kafka"

    def place(self) -> Config:
        self._bootstrap = self.given.getfixturevalue("kafka").bootstrap
        topic = self.given.getfixturevalue("topic")(1)
        return {"brokers": [self._bootstrap], "topic": topic} | (
            {} if self.upserts else {"keyField": "id"}
        )

    def rows(self) -> list[dict[str, Any]]:
        return [
            each for log in arrivals.kafka(self._bootstrap, self.config["topic"]) for each in log
        ]

    def states(self) -> list[dict[str, Any]]:
        """Nothing stands in the log twice or behind a later state of its key."""
        newest: dict[int, dict[str, Any]] = {}
        for each in self.rows():
            before = newest.get(each["id"])
            assert before is None or before["number"] < each["number"], (before, each)
            newest[each["id"]] = each
        return list(newest.values())


class ToFiles(End):
    type = "files"

    def place(self) -> Config:
        self._system = Files(self.given)
        return self._system.at(self.name, {})

    def rows(self) -> list[dict[str, Any]]:
        return [each for file in driver.lines(self._system.folder) for each in file]


class ToIceberg(End):
    type = "iceberg"

    def place(self) -> Config:
        self._system = Iceberg(self.given)
        made = {"autoCreateTable": True, "batchFlushIntervalSeconds": 1}
        return self._system.at(self.name, made)

    def rows(self) -> list[dict[str, Any]]:
        return arrivals.iceberg(self._table)

    def states(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._table.scan().to_arrow().to_pylist()
        return found

    @property
    def _table(self) -> Any:
        place = (self.config["namespace"], self.config["table"])
        return self._system.catalog.load_table(place)


ENDS: dict[str, type[End]] = {end.type: end for end in (ToPostgresql, ToKafka, ToFiles, ToIceberg)}
CASES: list[tuple[type[Feed], str]] = [
    *((feed, end) for feed in (Topic, Growing, Folder, Lake) for end in ENDS),
    (States, "postgresql"),
    *((Changing, end) for end in ENDS if end != "files"),
]
"""Files cannot replace a row."""


@dataclass
class Case:
    """One flow: what is right in its target follows from what its source was given."""

    name: str
    feed: Feed
    end: End

    def wrong(self) -> str:
        """What is missing, too much, or in a wrong place; values included."""
        made = [_values(row(n, self.feed.keys)) for n in range(self.feed.made)]
        if self.end.upserts:
            made = list({one[0]: one for one in made}.values())
            found = list(map(_values, self.end.states()))
        else:
            found = list(map(_values, self.end.rows()))
        more, less = set(found) - set(made), set(made) - set(found)
        if more or less or len(found) != len(made):
            return f"{len(found)} rows for {len(made)}, wrong: {more}, missing: {less}"[:300]
        if self.feed.in_order and not self.end.upserts and found != made:
            place = next(
                n for n, (one, other) in enumerate(zip(found, made, strict=True)) if one != other
            )
            return f"the order is wrong from row {place} on: {found[place : place + 5]}"
        return ""


class Fleet:
    """The flows, and a thread that feeds all of them until `rest`."""

    def __init__(
        self, folder: Path, given: Fixtures, cases: Sequence[tuple[type[Feed], str]]
    ) -> None:
        self.folder, self._token = folder, uuid.uuid4().hex[:8]
        self.feeds = {kind: kind(given) for kind in dict.fromkeys(kind for kind, _ in cases)}
        self.cases = [self._declared(kind, end, given) for kind, end in cases]
        flows = [flow.resolve() for flow in load(folder).flows]
        assert len(flows) == len(cases)
        self._targets = {f.name: (f.branches[0].sink, f.target(f.branches[0])) for f in flows}
        self._going, self._pool = True, ThreadPoolExecutor(8)
        self._broken: BaseException | None = None
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def rest(self) -> None:
        """Nothing more is written."""
        self._going = False
        self._thread.join(60)
        assert self._broken is None, f"could not feed: {self._broken!r}"
        assert not self._thread.is_alive()

    def wrong(self) -> dict[str, str]:
        """By the name of the flow what is wrong in its target."""
        found = self._pool.map(Case.wrong, self.cases)
        return {case.name: why for case, why in zip(self.cases, found, strict=True) if why}

    def checkpoints(self) -> dict[str, Checkpoint]:
        """By the name of the flow; without those that nobody has driven, or cannot be asked now."""
        found = self._pool.map(_peeked, self._targets.values())
        return {name: one for name, one in zip(self._targets, found, strict=True) if one}

    def grown(self) -> Callable[[], bool]:
        """Whether every flow has stored something since now."""
        before = self._rows()
        return lambda: all(rows > before.get(name, 0) for name, rows in self._all_rows())

    def _all_rows(self) -> Iterator[tuple[str, int]]:
        rows = self._rows()
        return ((case.name, rows.get(case.name, 0)) for case in self.cases)

    def _rows(self) -> dict[str, int]:
        return {name: one.totals.rows for name, one in self.checkpoints().items()}

    def _declared(self, kind: type[Feed], end: str, given: Fixtures) -> Case:
        feed = self.feeds[kind]
        table = f"{kind.__name__.lower()}_{end}"
        target = ENDS[end](given, table, upserts=feed.keys is not None)
        name = f"{table.replace('_', '-')}-{self._token}"
        document = {
            "apiVersion": "dataflow.dataflow.io/v1",
            "kind": "DataFlow",
            "metadata": {"name": name},
            "spec": {
                "freshness": 3,
                "source": {"type": feed.type, "config": feed.reading(name)},
                "transformations": list(feed.steps),
                "sink": {"type": end, "config": target.config},
            },
        }
        YAML().dump(document, self.folder / f"{table}.yaml")
        return Case(name, feed, target)

    def _feed(self) -> None:
        """Snapshots cost the most, of those that write and of those that read them."""
        try:
            turn = 0
            while self._going:
                for feed in self.feeds.values():
                    if feed.type != "iceberg" or turn % 3 == 0:
                        feed.feed(3)
                turn += 1
                time.sleep(0.5)
        except BaseException as error:  # noqa: BLE001 - told by `rest`
            self._broken = error


def _values(found: dict[str, Any]) -> Row:
    return cast("Row", tuple(found[name] for name in _SCHEMA.names))


def _peeked(place: tuple[Sink, Target]) -> Checkpoint | None:
    """A topic that was just made has no leader for a moment."""
    sink, target = place
    try:
        return sink.peek(target)
    except TransientError:
        return None
