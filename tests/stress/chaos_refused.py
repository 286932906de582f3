"""Records that a target refuses among others, and rows that exchange unique values."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import psycopg

from tests.connectors.clickhouse.system import Clickhouse
from tests.stress.chaos_model import KEYS, PARTITIONS, Model, Verdict
from tests.stress.chaos_targets import ClickhouseTarget, Postgresql, Target
from tests.systems import Change, Config, Fixtures, Row

POISON = 0.03  # of all records
KILLED = ("driver", "worker", "broker", "database", "driver + worker", "driver + database")


@dataclass
class PoisonModel(Model):
    """Every row has an array; in some records it holds an element that no column takes."""

    refused: dict[int, int] = field(default_factory=dict)
    """By `n`: the keys of records that must be put aside, and change no row."""
    last: dict[int, int] = field(default_factory=dict)
    """By `id`: the newest record that was not refused."""

    def _one(self, id_: int) -> Change:
        n, drawn = len(self.sent), self.chance.random()
        if drawn >= POISON:
            self.last[id_] = n
            return super()._one(id_)
        self.ends[str(id_ % PARTITIONS)] += 1
        self.refused[n] = id_
        self.sent[n] = None
        return Change("update", {**self._row(id_, n), "tags": [n, f"poison {n}"]})

    def _row(self, id_: int, n: int) -> Row:
        return {**super()._row(id_, n), "tags": [n, *range(n % 3)]}

    def misplaced(self, rejected: Sequence[int]) -> Verdict:
        """Every refused record once; of an upsert also none, once its key has a newer record."""
        times = Counter(rejected)
        lost = [n for n in self.refused if n not in times and not self._superseded(n)]
        extra = [n for n in times if n not in self.refused]
        said = tuple(f"rejected: without {lost[:3]}, beside {extra[:3]}" for _ in lost + extra)
        return Verdict(len(lost), times.total() - len(times), len(extra), examples=said[:1])

    def _superseded(self, n: int) -> bool:
        return self.upserts and self.last.get(self.refused[n], -1) > n


class _Poisoned(Target):
    """Refused records stand once in the table of rejected records, and nowhere else."""

    rejects: ClassVar[bool] = True
    kinds: ClassVar[tuple[str, ...]] = KILLED
    spec: ClassVar[Config] = {"onRejected": "table"}

    def __init__(
        self, way: str, given: Fixtures, chance: random.Random, folder: Path, **options: object
    ) -> None:
        super().__init__(way, given, chance, folder, **options)
        known = self.model
        self.refusing = PoisonModel(chance, upserts=known.upserts, keeps_absent=known.keeps_absent)
        self.model = self.refusing

    def verdict(self) -> Verdict:
        return super().verdict() + self.refusing.misplaced(self.rejected())

    def rejected(self) -> list[int]:
        """The `n` of all rejected records."""
        raise NotImplementedError


class PoisonedPostgresql(_Poisoned, Postgresql):
    columns: ClassVar[Mapping[str, str]] = {**Postgresql.columns, "tags": "bigint[]"}

    def rejected(self) -> list[int]:
        schema = self.written["table"].partition(".")[0]
        query = f"select (body::json->>'n')::bigint from {schema}.dataflow_rejected"
        with psycopg.connect(self.written["connectionString"]) as connection:
            return [n for (n,) in connection.execute(query.encode()).fetchall()]


class PoisonedClickhouse(_Poisoned, ClickhouseTarget):
    columns: ClassVar[Mapping[str, str]] = {**ClickhouseTarget.columns, "tags": "Array(Int64)"}

    def rejected(self) -> list[int]:
        assert isinstance(self.system, Clickhouse)
        query = f"SELECT JSONExtractInt(body, 'n') FROM {self.written['table']}_rejected FINAL"
        return [n for (n,) in self.system.client.query(query).result_rows]


@dataclass
class SeatModel(Model):
    """No two rows have one seat: rows exchange seats, and take those of deleted rows."""

    seats: dict[int, int | None] = field(default_factory=dict)
    """By `id`, of the rows that stand."""

    def draw(self, count: int) -> list[Change]:
        changes: list[Change] = []
        while len(changes) < count:
            changes += self._exchange() if self.chance.random() < 0.5 else super().draw(PARTITIONS)
        return changes

    def _exchange(self) -> list[Change]:
        """Two rows of one partition, one after the other: legal after each record."""
        first, second = self.chance.sample(range(self.chance.randrange(2), KEYS, PARTITIONS), 2)
        changes = [self._one(first), self._one(second)]
        taken, free = self.seats.get(first), self.seats.get(second)
        changes += [self._seated(first, None), self._seated(second, taken)]
        return [*changes, self._seated(first, free)]

    def _one(self, id_: int) -> Change:
        change = super()._one(id_)
        if change.op == "delete":
            self.seats.pop(id_, None)
        return change

    def _seated(self, id_: int, seat: int | None) -> Change:
        self.seats[id_] = seat
        upserts, self.upserts = self.upserts, False  # a row that stands
        change = super()._one(id_)
        self.upserts = upserts
        return change

    def _row(self, id_: int, n: int) -> Row:
        return {**super()._row(id_, n), "seat": self.seats.setdefault(id_, n)}


class Seats(Postgresql):
    """A table with a unique column, which rows exchange record by record."""

    ways: ClassVar[tuple[str, ...]] = ("upsert",)
    kinds: ClassVar[tuple[str, ...]] = KILLED

    def __init__(self, way: str, given: Fixtures, chance: random.Random, folder: Path) -> None:
        super().__init__(way, given, chance, folder)
        self.model = SeatModel(chance, upserts=True, keeps_absent=True)
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        unique = f"{columns}, seat bigint UNIQUE, PRIMARY KEY (id)"
        with psycopg.connect(self.written["connectionString"], autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {self.written['table']} ({unique})".encode())
