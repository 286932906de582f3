"""The in-memory connectors as ends of whole flows."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence

from dataflow_assets.connectors.memory import Store
from tests.systems import Change, Config, Row, System, state


class _Memory(System):
    columns = ("id", "name")

    def at(self, role: str, config: Config) -> Config:
        self.store = Store(f"systems-{uuid.uuid4().hex[:8]}")
        self.store.create()
        self.request.addfinalizer(self.store.remove)
        return {**config, "store": self.store.name} | (
            {"topic": "t"} if role == "source" else {"table": "target"}
        )

    def rows(self, config: Config) -> list[Row]:  # noqa: ARG002 - one table
        return [json.loads(row) for (row,) in self.store.query("select row from rows")]


class MemoryOffsets(_Memory):
    type = "memory-offsets"

    def change(self, config: Config, changes: Sequence[Change]) -> None:  # noqa: ARG002 - one topic
        bodies = [json.dumps(row).encode() for row in state(changes)]
        for partition in (0, 1):
            self.store.produce("t", partition, bodies[partition::2])


class MemoryParts(_Memory):
    type = "memory-parts"

    def change(self, config: Config, changes: Sequence[Change]) -> None:  # noqa: ARG002 - one table
        rows = [("t", 0, row["id"], None, row["name"].encode()) for row in state(changes)]
        with self.store.transaction() as connection:
            connection.executemany("insert into messages values (?, ?, ?, ?, ?)", rows)


class MemorySlice(_Memory):
    type = "memory-slice"


class MemorySpan(_Memory):
    type = "memory-span"
