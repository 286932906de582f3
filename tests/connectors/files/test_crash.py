"""The process is killed at each step, from one folder into another; each line arrives once.

With its values, in the order of the lines of its file; also where the folder is emptied first, and
where a consumer has moved files away between two runs.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.files import driver
from tests.connectors.files.flows import Ends
from tests.contract.files_drivers import FilesOnDisk
from tests.drained import drain_apart

ROWS = 60
FAILPOINTS = ("files.read", *(n for n in FilesOnDisk.failpoints if n.startswith("files.")))
PUBLISHING = ("files.committed", "files.copied", "files.published")

PLACES = [("disk", failpoint, "2") for failpoint in FAILPOINTS if failpoint != "files.copied"]
PLACES += [("disk", "files.published", nth) for nth in ("1", "5")]
PLACES += [("s3", failpoint, "2") for failpoint in PUBLISHING]


def _rows(low: int, high: int) -> list[dict[str, Any]]:
    return [{"id": n, "name": f"name-{n}"} for n in range(low, high)]


def _lines(low: int, high: int) -> bytes:
    return b"".join(b'{"id": %d, "name": "name-%d"}\n' % (n, n) for n in range(low, high))


def _killed(ends: Ends, *arguments: str, failpoint: str) -> None:
    assert drain_apart(ends.manifest, *arguments, failpoint=failpoint) == -signal.SIGKILL


@pytest.fixture
def ends(place: driver.Config, tmp_path: Path) -> Ends:
    reading, writing = {"parallelReads": 2}, {"targetFileSizeBytes": 1024}
    ends = Ends(place, tmp_path, "crash", maxRecordsPerBatch=15, reading=reading, writing=writing)
    ends.source.put("b.jsonl", _lines(0, 40))
    ends.source.put("a.jsonl", _lines(40, ROWS))
    return ends


def _expect(rows: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    """Each once, and those of one file of the source in their order."""
    assert sorted(rows, key=lambda row: row["id"]) == wanted
    for low, high in ((0, 40), (40, ROWS)):
        ids = [row["id"] for row in rows if low <= row["id"] < high]
        assert ids == sorted(ids)


@pytest.mark.crash
@pytest.mark.parametrize(("place", "failpoint", "nth"), PLACES, indirect=["place"])
def test_each_line_once(failpoint: str, nth: str, ends: Ends) -> None:
    """A consumer takes away what is there after the crash: that comes no second time."""
    _killed(ends, failpoint=f"{failpoint}:kill:{nth}")
    taken = []
    for one in ends.visible if failpoint != "files.copied" else []:
        taken += driver.rows(ends.sink, one.name)
        ends.sink.delete(one.name)
    assert drain_apart(ends.manifest) == 0
    _expect([*taken, *ends.rows], _rows(0, ROWS))
    assert ends.sink.files("_dataflow/staged") == []


@pytest.mark.crash
@pytest.mark.parametrize(
    ("place", "failpoint"),
    [(p, f) for p in ("disk", "s3") for f in ("files.committed:kill:2", "files.removing:kill:2")],
    indirect=["place"],
)
def test_each_line_once_after_a_truncate(failpoint: str, ends: Ends) -> None:
    """What somebody puts into the folder after the crash stays there."""
    assert drain_apart(ends.manifest) == 0
    before = {one.name for one in ends.visible}
    _killed(ends, "truncate", failpoint=failpoint)
    ends.sink.put("mine.jsonl", b'{"id": 1000}\n')
    assert drain_apart(ends.manifest) == 0
    assert ends.rows.pop() == {"id": 1000}
    _expect(ends.rows[:-1], _rows(0, ROWS))
    assert not before & {one.name for one in ends.visible}
