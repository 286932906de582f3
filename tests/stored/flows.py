"""The flow whose stored state is kept: what it reads, and how it was left.

Its topic has two partitions. A first run stores rows and rejects two records; a second one is
killed while it commits; a replay, which would put back one of the rejected records, is killed too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dataflow_assets.contracts import Target
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.stored.stores import Config, Row, Stores, hidden, shown
from tests.stored.topics import send, topic_id

FIRST, SECOND, THIRD = range(6), range(6, 12), range(12, 18)
"""Ids of the rows of each run; the third is that of the version under test."""
MENDABLE = (100, 101)
"""Ids of records that a step rejects until its schema is mended: of the first run and the third."""
_STRICT = {"properties": {"name": {"pattern": "^n"}}}
"""The schema that rows of MENDABLE do not fit."""
Run = Callable[[str, Path, str], None]
"""Runs or replays the flow of a file; where a failpoint is named, that must kill it."""


class StoredFlow:
    """One flow from a topic into the target of one system."""

    def __init__(self, request: pytest.FixtureRequest, system: type[Stores]) -> None:
        self.bootstrap: str = request.getfixturevalue("kafka").bootstrap
        self.topic: str = request.getfixturevalue("topic")(2)
        self.stores = system(request)
        folder = Path(request.getfixturevalue("tmp_path"))
        self.file, self.mended = folder / "flow.yaml", folder / "mended.yaml"
        self._write(self.file, _STRICT)
        self._write(self.mended, {"type": "object"})

    def _write(self, file: Path, schema: Config) -> None:
        source = {"brokers": [self.bootstrap], "topic": self.topic, "consumerGroup": self.topic}
        spec = {
            "source": {"type": "kafka", "config": source},
            "sink": {"type": self.stores.type, "config": self.stores.config()},
            "transformations": [{"type": "validate", "config": {"schema": schema}}],
            "onRejected": "table",
            "maxRejectedPercent": 100,
        }
        YAML().dump(
            {
                "apiVersion": "dataflow.dataflow.io/v1",
                "kind": "DataFlow",
                "metadata": {"name": "stored"},
                "spec": spec,
            },
            file,
        )

    @property
    def target(self) -> Target:
        """The flow's one branch."""
        flow = choose(load(self.file), None)
        return flow.target(flow.branches[0])

    def send_first(self) -> None:
        self._send([*FIRST], _mendable(MENDABLE[0]), b"no json")

    def send_second(self) -> None:
        self._send([*SECOND])

    def send_third(self) -> None:
        self._send([*THIRD], _mendable(MENDABLE[1]))

    def _send(self, ids: list[int], *refused: bytes) -> None:
        bodies = [json.dumps({"id": n, "name": f"näme {n}"}).encode() for n in ids]
        sent = enumerate([*bodies, *refused])
        records = [{"partition": n % 2, "value": body} for n, body in sent]
        send(self.bootstrap, [(self.topic, record) for record in records])

    def leave(self, run: Run, in_drain: str, in_replay: str) -> str:
        """Runs the flow until it is as it was left; everything that is stored then."""
        self.send_first()
        run("drain", self.file, "")
        self.send_second()
        run("drain", self.file, in_drain)
        run("replay", self.mended, in_replay)
        return self.dump()

    def dump(self) -> str:
        """Everything that is stored, and the names that a hash is part of."""
        target = self.target
        hashed = self.stores.hashed(target)
        stored = json.dumps(self.stores.dump(), ensure_ascii=False, indent=1)
        names = {**self._names(), **hashed}
        # The ids of rejected records stay: positions of replays have hashes of them.
        id_ = f"{target.flow}/{target.branch}/{names['topic_id']}/"
        found = {
            "flow": target.flow,
            "branch": target.branch,
            "hashed": hashed,
            "stored": json.loads(id_.join(hidden(one, names) for one in stored.split(id_))),
        }
        return json.dumps(found, ensure_ascii=False, indent=1) + "\n"

    def load(self, text: str) -> None:
        """Stores it again here, as if it was this flow that had left it."""
        found, target = json.loads(text), self.target
        was = Target(found["flow"], found["branch"], "", "")
        assert self.stores.hashed(was) == found["hashed"], "what it has stored has another name"
        stored = json.dumps(found["stored"], ensure_ascii=False)
        names = {**self._names(), **self.stores.hashed(target)}
        self.stores.load(json.loads(shown(stored, names)))

    def _names(self) -> dict[str, str]:
        names = {"topic": self.topic, "topic_id": topic_id(self.bootstrap, self.topic)}
        return names | {"branch": self.target.branch} | self.stores.names()

    @staticmethod
    def expected() -> list[Row]:
        """All rows, each once, when the third run and the replay after it have ended."""
        rows = [(n, f"näme {n}") for n in (*FIRST, *SECOND, *THIRD)]
        return sorted([*rows, *((n, "a") for n in MENDABLE)])


def _mendable(number: int) -> bytes:
    return json.dumps({"id": number, "name": "a"}).encode()
