"""Queries of Flink whose state is kept: groups, first rows, windows.

A first run makes the state; a second one is killed between its commit and the end of its span. The
version under test is given the state, and a topic whose messages of the first run are gone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

import devservers
from dataflow_assets.contracts import Target
from tests.languages.sql.files import Sent, Sql
from tests.stored.stores import hidden, shown
from tests.stored.topics import Kafka, topic_id

EVENTS = "k BIGINT, g STRING, a BIGINT, PRIMARY KEY (k) NOT ENFORCED"
TIMED = "k BIGINT, g STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND"
FIRST, SECOND, THIRD = range(20), range(20, 40), range(40, 60)
"""Messages of each run."""
KILLED = "kafka.finish:kill"


@dataclass(frozen=True)
class Query:
    """Its tables, and what it inserts."""

    columns: str
    into: str
    insert: str

    @property
    def appends(self) -> bool:
        """Whether its rows stay as they were written."""
        return "PRIMARY KEY" not in self.into


QUERIES = {
    "groups": Query(
        EVENTS,
        "g STRING, n BIGINT, some BIGINT, total BIGINT, least BIGINT, PRIMARY KEY (g) NOT ENFORCED",
        "SELECT g, COUNT(*), COUNT(DISTINCT a), SUM(a), MIN(a) FROM s WHERE a <> 3 GROUP BY g",
    ),
    "ranking": Query(
        EVENTS,
        EVENTS,
        "SELECT k, g, a FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY a DESC, k) AS n "
        "FROM s) WHERE n <= 2",
    ),
    "windows": Query(
        TIMED,
        "b TIMESTAMP(3), g STRING, n BIGINT, total BIGINT, some BIGINT",
        "SELECT window_start, g, COUNT(*), SUM(k), COUNT(DISTINCT k) FROM TABLE(HOP(TABLE s, "
        "DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY window_start, "
        "window_end, g",
    ),
}


def messages(query: Query, numbers: range) -> Iterator[Sent]:
    """Keys move between groups and are deleted; of windows, three rows in a second."""
    for n in numbers:
        key = n * 7 % 12
        row = {"k": key, "g": f"g{n * 5 % 7 % 3}"}
        if query.columns == TIMED:
            yield None, json.dumps(row | {"ts": f"2026-01-01 00:00:{n // 3 + 10}"}).encode()
        else:
            gone = n % 11 == 5
            body = None if gone else json.dumps(row | {"a": n % 5}).encode()
            yield b'{"k":%d}' % key, body


class StoredQuery:
    """One query from a topic into a topic, and its state in a folder."""

    def __init__(
        self, request: pytest.FixtureRequest, query: Query, folder: str = "stored"
    ) -> None:
        server: devservers.Kafka = request.getfixturevalue("kafka")
        topics = request.getfixturevalue("topic")
        within = Path(request.getfixturevalue("tmp_path"), folder)
        within.mkdir()
        self.query, self.kafka = query, Kafka(request)
        self.sql = Sql(within / "one.sql", server, topics(), self.kafka.topic)
        self.state = within / "state"
        settings = f"SET 'dataflow.stateLocation' = '{self.state}';"
        flow = self.sql.write(query.columns, query.into, query.insert, settings)
        self.target = flow.target(flow.branches[0])

    @property
    def file(self) -> Path:
        return self.sql.path

    def send(self, numbers: range) -> None:
        self.sql.send(messages(self.query, numbers))

    def forget_messages(self) -> None:
        """All that are in the topic now."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap, "log_level": 0})
        before = TopicPartition(self.sql.source, 0, OFFSET_END)
        for deleted in admin.delete_records([before]).values():
            deleted.result(30)

    def result(self) -> list[Sent]:
        """Every row that was appended; else the last one of each key that is not deleted."""
        rows = self.sql.rows()
        found = rows if self.query.appends else dict(rows).items()
        return sorted((row for row in found if row[1] is not None), key=str)

    def leave(self, run: Callable[[str, Path, str], None]) -> str:
        """Runs the query until it is as it was left; everything that is stored then."""
        self.send(FIRST)
        run("drain", self.file, "")
        self.send(SECOND)
        run("drain", self.file, KILLED)
        return self.dump()

    def dump(self) -> str:
        """What is in the topics of the target, and in the folder."""
        hashed = self.kafka.hashed(self.target)
        names = {**self._names(), **hashed}
        topics = json.dumps(self.kafka.dump(), ensure_ascii=False)
        files = sorted(path for path in self.state.rglob("*") if path.is_file())
        found = {
            "flow": self.target.flow,
            "branch": self.target.branch,
            "hashed": hashed,
            "stored": json.loads(hidden(topics, names)),
            "state": {
                str(path.relative_to(self.state)): base64.b64encode(path.read_bytes()).decode()
                for path in files
            },
        }
        return json.dumps(found, ensure_ascii=False, indent=1) + "\n"

    def load(self, text: str) -> None:
        """Stores it again here, as if it was this query that had left it."""
        found = json.loads(text)
        was = Target(found["flow"], found["branch"], "", "")
        assert self.kafka.hashed(was) == found["hashed"], "what it has stored has another name"
        names = {**self._names(), **self.kafka.hashed(self.target)}
        stored = json.dumps(found["stored"], ensure_ascii=False)
        self.kafka.load(json.loads(shown(stored, names)))
        for name, content in found["state"].items():
            path = self.state / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(content))

    def _names(self) -> dict[str, str]:
        source = topic_id(self.kafka.bootstrap, self.sql.source)
        names = {"topic": self.sql.source, "topic_id": source, "state": str(self.state)}
        return names | {"branch": self.target.branch} | self.kafka.names()
