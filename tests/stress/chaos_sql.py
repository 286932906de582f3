"""Queries with state under kills: a topic has of them what the whole log comes to.

Keys move from group to group with each change. Drivers are killed at random and at each step of the
protocol; what they send is large enough to be read and merged in Spark's tasks too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from dataflow_assets.languages.sql.state.manifest import VIEW, position_of
from tests.connectors.kafka.system import Kafka
from tests.stress.chaos_driver import Driver
from tests.stress.chaos_kills import KINDS
from tests.stress.chaos_model import Model, Verdict
from tests.systems import Change, Config, Fixtures, Row

GROUPS, MOST = 7, 3
TIMES = 8
"""Of as many changes as others get."""
OPTIONS = (
    "'connector' = 'upsert-kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = "
    "'{brokers}', 'key.format' = 'json', 'value.format' = 'json'"
)
SOURCE = "id BIGINT, n BIGINT, name STRING, price DOUBLE, PRIMARY KEY (id) NOT ENFORCED"
COUNTED = (
    """g BIGINT, amount BIGINT, names BIGINT, total BIGINT, least BIGINT,
    PRIMARY KEY (g) NOT ENFORCED""",
    f"""SELECT n % {GROUPS}, COUNT(*), COUNT(DISTINCT name), SUM(n), MIN(n) FROM s
    GROUP BY n % {GROUPS}""",
)
FIRST = (
    "g BIGINT, rn BIGINT, id BIGINT, n BIGINT, PRIMARY KEY (g, rn) NOT ENFORCED",
    f"""SELECT g, rn, id, n FROM (
      SELECT id, n, n % {GROUPS} AS g,
        ROW_NUMBER() OVER (PARTITION BY n % {GROUPS} ORDER BY price DESC, id) AS rn FROM s
    ) WHERE rn <= {MOST}""",
)
Rows = dict[tuple[int, ...], Row]


def counted(rows: Iterable[Row]) -> Rows:
    """The result of COUNTED, by its keys."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["n"] % GROUPS, []).append(row)
    return {
        (g,): {
            "g": g,
            "amount": len(some),
            "names": len({one["name"] for one in some}),
            "total": sum(one["n"] for one in some),
            "least": min(one["n"] for one in some),
        }
        for g, some in groups.items()
    }


def first(rows: Iterable[Row]) -> Rows:
    """The result of FIRST, by its keys; a missing price is the smallest."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["n"] % GROUPS, []).append(row)
    found: Rows = {}
    for g, some in groups.items():
        some.sort(key=lambda one: (one["price"] is None, -(one["price"] or 0), one["id"]))
        for rn, one in enumerate(some[:MOST], 1):
            found[g, rn] = {"g": g, "rn": rn, "id": one["id"], "n": one["n"]}
    return found


class SqlTarget:
    """A query from one topic into another, and what it was sent."""

    rejects: ClassVar[bool] = False
    server: ClassVar[str] = "kafka"
    broker: ClassVar[str] = "kafka"
    ways: ClassVar[Mapping[str, tuple[tuple[str, str], Callable[[Iterable[Row]], Rows]]]] = {
        "groups": (COUNTED, counted),
        "first-rows": (FIRST, first),
    }
    kinds: ClassVar[tuple[str, ...]] = (
        "driver",
        "step",
        *(kind for kind in KINDS if kind != "driver" and "database" not in kind),
    )
    steps: ClassVar[tuple[str, ...]] = (
        "view.read",
        "view.merged",
        "view.file",
        "view.output",
        "view.manifest",
        "kafka.begin",
        "kafka.before-commit",
        "kafka.after-commit",
        "drain.passed",
        "kafka.finish",
    )

    def __init__(self, way: str, given: Fixtures, chance: random.Random, folder: Path) -> None:
        (into, query), self._result = self.ways[way]
        self.model = Model(chance, upserts=True, keeps_absent=False)
        self._kafka = Kafka(given)
        self._read = self._kafka.at("source", {})
        self._written = self._kafka.at("sink", {"upsertMode": True})
        self.manifest = folder / f"{way}.sql"
        self.manifest.write_text(
            f"SET 'dataflow.stateLocation' = '{folder}/state-{way}';\n"
            f"CREATE TABLE s ({SOURCE}) WITH ({_options(self._read)});\n"
            f"CREATE TABLE o ({into}) WITH ({_options(self._written)});\n"
            f"INSERT INTO o {query};\n"
        )

    def send(self, count: int) -> list[Change]:
        """Changes into the source."""
        changes = self.model.draw(count * TIMES)
        self._kafka.change(self._read, changes)
        return changes

    def stored(self, driver: Driver) -> bool:
        """Whether the driver has committed all that was sent."""
        text = driver.positions.get(VIEW)
        read = {} if text is None else position_of(text).offsets
        return all(read.get(partition, 0) >= end for partition, end in self.model.ends.items())

    def verdict(self) -> Verdict:
        """What is wrong in the target: also a row that was written twice."""
        states = (known[-1] for known in self.model.states.values() if known)
        return judged(
            self._result(row for row in states if row is not None),
            self._kafka.messages(self._written),
        )


def judged(wanted: Rows, log: Sequence[tuple[bytes | None, bytes | None]]) -> Verdict:
    """What is wrong in a topic of rows.

    Args:
        wanted: the rows by their keys.
        log: key and value of each record.
    """
    states: dict[bytes | None, list[bytes | None]] = {}
    for key, value in log:
        states.setdefault(key, []).append(value)
    doubled = sum(one == other for some in states.values() for one, other in pairwise(some))
    found: dict[tuple[Any, ...], Any] = {}
    for key, values in states.items():
        if values[-1] is not None:
            found[tuple(json.loads(key or b"{}").values())] = json.loads(values[-1])
    lost = [key for key in wanted if key not in found]
    wrong = [key for key in found if found[key] != wanted.get(key)]
    examples = tuple(
        f"{key}: {found.get(key)} instead of {wanted.get(key)}" for key in lost + wrong
    )
    return Verdict(len(lost), doubled, len(wrong), examples=examples[:3])


def _options(config: Config) -> str:
    return OPTIONS.format(topic=config["topic"], brokers=",".join(config["brokers"]))
