"""A spool of Kafka Connect: a run is killed when it has recorded what it stores of it next."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.connectors.kafka_connect.driver import source
from tests.stored.databases import Memory
from tests.stored.stores import hidden, shown

ROWS = [(number, f"n{number}") for number in range(6)]
KILLED = "drain.begun:kill"


class StoredSpool:
    """The lines of a file, which a connector of Kafka itself delivers, into a store."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.stores = Memory(request)
        self.folder = Path(request.getfixturevalue("tmp_path"))
        self.file, self.spool = self.folder / "spool.yaml", self.folder / "spool"
        lines = {"file": str(self.folder / "lines.txt"), "topic": "lines"}
        config = source(self.folder, "FileStreamSourceConnector", lines, tasksMax=1, envelope=False)
        document = {
            "apiVersion": "dataflow.dataflow.io/v1",
            "kind": "DataFlow",
            "metadata": {"name": "stored"},
            "spec": {
                "source": {"type": "kafkaConnect", "config": config},
                "sink": {"type": self.stores.type, "config": self.stores.config()},
            },
        }
        YAML().dump(document, self.file)

    def leave(self, run: Callable[[str, Path, str], None]) -> str:
        """Runs the flow until it is as it was left; everything that is stored then."""
        lines = [json.dumps({"id": number, "name": name}) + "\n" for number, name in ROWS]
        (self.folder / "lines.txt").write_text("".join(lines))
        run("drain", self.file, KILLED)
        assert not self.stores.store.query("select * from rows")
        stored = json.dumps(self.stores.dump(), indent=1)
        found = {
            "stored": json.loads(hidden(stored, self._names())),
            "spool": {
                path.name: base64.b64encode(path.read_bytes()).decode()
                for path in sorted(self.spool.iterdir())
            },
        }
        return json.dumps(found, indent=1) + "\n"

    def load(self, text: str) -> None:
        """Stores it again here, as if it was this flow that had left it."""
        found = json.loads(text)
        self.stores.load(json.loads(shown(json.dumps(found["stored"]), self._names())))
        self.spool.mkdir()
        for name, content in found["spool"].items():
            (self.spool / name).write_bytes(base64.b64decode(content))

    def _names(self) -> dict[str, str]:
        return {"folder": str(self.folder), **self.stores.names()}
