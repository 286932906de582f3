"""Test drivers of the contract suite: two verbs for each connector, `seed` and `rows`.

A source driver seeds records `(id, name)` and declares the source; a sink driver declares the sink
and reads back `(id, name)` and the rejected reasons. `test_every_connector_has_a_driver` fails for
a connector without one.
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import pytest

from dataflow_assets.connectors.memory import (
    MemoryOffsetSource,
    MemoryPartSource,
    MemorySliceSink,
    MemorySpanSink,
    Store,
)
from dataflow_assets.contracts import Sink, Source, Target

Row = tuple[int, str]


def encode(row: Row) -> bytes:
    return json.dumps({"id": row[0], "name": row[1]}).encode()


def pairs(rows: Sequence[dict[str, Any]]) -> list[Row]:
    """Rows with other columns beside the two."""
    return [(row["id"], row["name"]) for row in rows]


class SourceDriver(ABC):
    type: ClassVar[str]
    columns: ClassVar[bool] = False
    has_server: ClassVar[bool] = True
    """False: it runs what it reads from itself; no server can fail."""
    knows_ahead: ClassVar[bool] = True
    """False: only a run finds out what there is to read."""
    small_spans: ClassVar[bool] = True
    """False: a span has all that waits, in as many slices as the limit needs."""
    shared: ClassVar[bool] = True
    """False: one process alone can read; a second driver waits until the first one has ended."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request = request

    @abstractmethod
    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        """Adds records, spread over the source's partitions; `raw` bodies as they are."""

    @abstractmethod
    def declare(self) -> Source: ...


class OffsetSourceDriver(SourceDriver):
    """Its records lie in two partitions in turn, and each partition keeps their order."""

    @cached_property
    def partitions(self) -> dict[int, int]:
        """By `id`: the partition."""
        return {}

    def _place(self, rows: Sequence[Row]) -> None:
        self.partitions.update({id_: index % 2 for index, (id_, _) in enumerate(rows)})

    @abstractmethod
    def recreate(self) -> None:
        """The topic is another one of the same name, without records."""


class SinkDriver(ABC):
    type: ClassVar[str]
    variant: ClassVar[str] = ""
    upserts: ClassVar[bool] = False
    failpoints: ClassVar[tuple[str, ...]]
    in_task: ClassVar[str]
    """The failpoint at which a task has read its records and has not yet committed them."""
    emptying: ClassVar[str] = ""
    """The failpoint between the commit of `table: truncate` and the end of it; none: it is one."""
    bad: ClassVar[tuple[bytes, ...]] = (b"not json", b'{"id": "x"}', b'{"id": 5, "zzz": 1}')
    """Bodies that it rejects, each for a reason of its own."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request = request

    @classmethod
    def label(cls) -> str:
        """The connector's type, and the way it is used where there are several."""
        return f"{cls.type}-{cls.variant}" if cls.variant else cls.type

    @abstractmethod
    def declare(self) -> Sink: ...

    @abstractmethod
    def rows(self) -> list[Row]:
        """What stands in the target, sorted."""

    def arrived(self) -> list[list[Row]]:
        """The rows, in sequences in each of which the order of a partition is kept; none: in no."""
        return []

    @abstractmethod
    def rejected(self) -> list[str]:
        """The reasons of the rejected records."""

    @abstractmethod
    def rebuild(self, rows: Sequence[Row]) -> None:
        """The target is another one of the same name and the same columns, with these rows."""

    @abstractmethod
    def lose(self, target: Target) -> None:
        """Somebody has deleted the checkpoint of this branch, past every driver."""

    @abstractmethod
    def move(self, target: Target, offset: int) -> None:
        """Somebody has set partition 0 of this branch to an offset, past every driver."""


class _Memory:
    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.request = request
        self.name = f"contract-{uuid.uuid4().hex[:8]}"
        self.store = Store(self.name)
        self.store.create()
        request.addfinalizer(self.store.remove)


class MemoryOffsets(_Memory, OffsetSourceDriver):
    type = "memory-offsets"

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        self._place(rows)
        bodies = [*map(encode, rows), *raw]
        for partition in (0, 1):
            self.store.produce("t", partition, bodies[partition::2])

    def recreate(self) -> None:
        self.store.query("delete from messages")
        self.store.identify("topic t", uuid.uuid4().hex)

    def declare(self) -> Source:
        return MemoryOffsetSource(store=self.name, topic="t")


class MemoryParts(_Memory, SourceDriver):
    type = "memory-parts"
    columns = True

    def seed(self, rows: Sequence[Row], raw: Sequence[bytes] = ()) -> None:
        assert not raw, "a table holds no raw messages"
        for id_, name in rows:
            with self.store.transaction() as connection:
                values = ("t", 0, id_, None, name.encode())
                connection.execute("insert into messages values (?, ?, ?, ?, ?)", values)

    def declare(self) -> Source:
        return MemoryPartSource(store=self.name, topic="t")


class _MemorySinkDriver(_Memory, SinkDriver):
    in_task = "memory.write"
    kind: ClassVar[Any]

    def declare(self) -> Sink:
        sink: Sink = self.kind(store=self.name, table="target")
        return sink

    def rows(self) -> list[Row]:
        return sorted(*self.arrived())

    def arrived(self) -> list[list[Row]]:
        found = self.store.query("select row from rows order by rowid")
        rows = [json.loads(row) for (row,) in found]
        return [[(row["id"], row["name"]) for row in rows]]

    def rejected(self) -> list[str]:
        return sorted(reason for (reason,) in self.store.query("select reason from rejected"))

    def rebuild(self, rows: Sequence[Row]) -> None:
        self.store.identify("target", uuid.uuid4().hex)
        self.store.query("delete from rows where name = 'target'")
        for row in rows:
            sql = "insert into rows values ('target', '', '0', 0, 0, 0, ?)"
            self.store.query(sql, encode(row).decode())

    def lose(self, target: Target) -> None:
        self.store.query("delete from checkpoints where id = ?", target.id)

    def move(self, target: Target, offset: int) -> None:
        sql = "update checkpoints set checkpoint = json_set(checkpoint, '$.positions.0', ?)"
        self.store.query(f"{sql} where id = ?", offset, target.id)


class MemorySlice(_MemorySinkDriver):
    type, kind = "memory-slice", MemorySliceSink
    failpoints = (
        "drain.begun",
        "memory.write",
        "memory.before-commit",
        "memory.committed",
        "drain.passed",
        "memory.finish",
        "memory.finished",
        "drain.finished",
    )


class MemorySpan(_MemorySinkDriver):
    type, kind = "memory-span", MemorySpanSink
    failpoints = (
        "drain.begun",
        "memory.write",
        "drain.passed",
        "memory.finish",
        "memory.finished",
        "drain.finished",
    )
