"""A table that is polled, in parts: a run is killed when it has stored the first of several."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.stored.databases import Postgresql
from tests.stored.stores import Row, hidden, shown

FIRST, SECOND, THIRD = range(1, 11), range(11, 31), range(31, 41)
"""Ids of the rows that each run finds."""
AT_ONCE = 4
"""Rows of a part."""
KILLED = "postgresql.after-commit:kill"


class StoredTable:
    """The table `orders` and the target are in one schema."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.stores = Postgresql(request)
        self.file = Path(request.getfixturevalue("tmp_path"), "table.yaml")
        sink = self.stores.config()
        orders = {"table": f"{self.stores.schema}.orders", "orderByColumn": "id"}
        source = {"connectionString": sink["connectionString"], **orders}
        document = {
            "apiVersion": "dataflow.dataflow.io/v1",
            "kind": "DataFlow",
            "metadata": {"name": "stored"},
            "spec": {
                "source": {"type": "postgresql", "config": source},
                "sink": {"type": "postgresql", "config": sink},
                "maxRecordsPerBatch": AT_ONCE,
            },
        }
        YAML().dump(document, self.file)

    def create(self) -> None:
        """The table that is read; a copy has its own."""
        columns = "id bigint PRIMARY KEY, name text"
        self.stores.connection.execute(f"CREATE TABLE orders ({columns})".encode())

    def insert(self, ids: range) -> None:
        rows = [(n, f"näme {n}") for n in ids]
        with self.stores.connection.cursor() as cursor:
            cursor.executemany("INSERT INTO orders VALUES (%s, %s)", rows)

    def leave(self, run: Callable[[str, Path, str], None]) -> str:
        """Runs the flow until it is as it was left; everything that is stored then."""
        self.create()
        self.insert(FIRST)
        run("drain", self.file, "")
        self.insert(SECOND)
        run("drain", self.file, KILLED)
        assert len(FIRST) < len(self.stores.rows()) < len(FIRST) + len(SECOND)
        stored = json.dumps(self.stores.dump(), ensure_ascii=False, indent=1)
        return hidden(stored, self._names()) + "\n"

    def load(self, text: str) -> None:
        """Stores it again here, as if it was this flow that had left it."""
        self.stores.load(json.loads(shown(text, self._names())))

    def _names(self) -> dict[str, str]:
        flow = choose(load(self.file), None)
        return {"branch": flow.branches[0].stored_id, **self.stores.names()}

    @staticmethod
    def expected() -> list[Row]:
        """All rows, each once."""
        return [(n, f"näme {n}") for n in (*FIRST, *SECOND, *THIRD)]
