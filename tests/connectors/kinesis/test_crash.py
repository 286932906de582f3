"""The process is killed at each step, while shards are split: each record once, and in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import devservers
from tests.connectors.files import driver as files
from tests.connectors.kinesis.aggregate import aggregate
from tests.connectors.kinesis.driver import SHARDS, Stream
from tests.contract.files_drivers import FilesOnDisk
from tests.drained import drain_apart, drain_file

KEYS, ROWS, PACKED = 4, 80, 12
SOME = [("kinesis.read", "3"), ("files.staged", "3"), ("drain.begun", "2")]
ALL = [(name, nth) for name in ("kinesis.read", *FilesOnDisk.failpoints) for nth in ("1", "2")]
FAILPOINTS = [
    *SOME,
    *(pytest.param(*one, marks=pytest.mark.full) for one in ALL if one not in SOME),
]


def _body(n: int) -> bytes:
    return b'{"id": %d, "key": %d}' % (n, n % KEYS)


class Ends:
    """A flow from a stream into a folder."""

    def __init__(self, stream: Stream, folder: Path) -> None:
        self.stream, self.sink = stream, files.folder(files.on_disk(folder / "out"))
        document = {
            "apiVersion": "dataflow.dataflow.io/v1",
            "kind": "DataFlow",
            "metadata": {"name": "crash"},
            "spec": {
                "maxRecordsPerBatch": 12,
                "source": {"type": "kinesis", "config": stream.config},
                "sink": {"type": "files", "config": files.on_disk(folder / "out")},
            },
        }
        self.manifest = str(folder / "crash.yaml")
        YAML().dump(document, Path(self.manifest))

    def put(self, low: int, high: int) -> None:
        """The last records of each key are one aggregate."""
        bodies = [(f"key {n % KEYS}", _body(n)) for n in range(low, high - PACKED)]
        for key in range(KEYS):
            packed = [n for n in range(high - PACKED, high) if n % KEYS == key]
            bodies.append((f"key {key}", aggregate([(f"key {key}", _body(n)) for n in packed])))
        self.stream.put([body for _, body in bodies], lambda n: bodies[n][0])

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for file in files.lines(self.sink) for row in file]

    def expect(self, upto: int) -> None:
        """Each once, and those of one key in their order."""
        rows = self.rows
        assert sorted(row["id"] for row in rows) == list(range(upto))
        for key in range(KEYS):
            ids = [row["id"] for row in rows if row["key"] == key]
            assert ids == sorted(ids), f"key {key}"


@pytest.fixture
def ends(kinesis: devservers.Kinesis, tmp_path: Path) -> Iterator[Ends]:
    stream = Stream(kinesis)
    ends = Ends(stream, tmp_path)
    ends.put(0, ROWS // 2)
    stream.split(SHARDS[0])
    ends.put(ROWS // 2, ROWS)
    yield ends
    stream.remove()


@pytest.mark.crash
@pytest.mark.parametrize(("failpoint", "nth"), FAILPOINTS)
def test_each_record_once(failpoint: str, nth: str, ends: Ends) -> None:
    assert drain_apart(ends.manifest, failpoint=f"{failpoint}:kill:{nth}") == -signal.SIGKILL
    ends.stream.split(SHARDS[1])
    ends.put(ROWS, ROWS + 20)
    assert drain_apart(ends.manifest) == 0
    ends.expect(ROWS + 20)
    drain_file(ends.manifest)
    ends.expect(ROWS + 20)
