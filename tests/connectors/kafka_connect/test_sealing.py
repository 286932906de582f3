"""What a task has delivered becomes parts: each record in one, whatever fails meanwhile."""

from __future__ import annotations

import errno
import json
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jpype
import pyarrow as pa
import pytest

from dataflow_assets.connectors.kafka_connect import spool as spools
from dataflow_assets.connectors.kafka_connect.host import task as tasks
from dataflow_assets.connectors.kafka_connect.host.busy import Busy
from dataflow_assets.connectors.kafka_connect.host.helper import COLUMNS
from dataflow_assets.connectors.kafka_connect.host.protocol import ConnectOrder
from dataflow_assets.connectors.kafka_connect.host.sealing import Sealer, rows_of
from dataflow_assets.connectors.kafka_connect.host.task import ConnectorTask, Task
from dataflow_assets.connectors.kafka_connect.spool import ConnectOffset, Offsets, Spool
from dataflow_assets.errors import TransientError

PARTITION = '{"server":"s"}'


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path / "spool")
    with made.lock(0):
        made.begin("C", {})
        yield made


def sealer(spool: Spool, known: Offsets) -> Sealer:
    order = ConnectOrder(
        "C", {}, [], [], str(spool.folder), "", 0, 2, "64m", False, 1_000, 1_000_000
    )
    last, _ = spool.end()
    return Sealer(spool, last, known, order)


def batch(*places: tuple[int, int]) -> pa.RecordBatch:
    """Records of entries of PostgreSQL's log, each by its entry and its number in the entry."""
    offsets = [json.dumps({"lsn_proc": e, "lsn_events_processed": n}) for e, n in places]
    empty = [None] * len(places)
    columns = [empty, empty, [b"1"] * len(places), [PARTITION] * len(places), offsets, empty, empty]
    kinds = [pa.binary() if name == "value" else pa.string() for name in COLUMNS]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


def table(*places: tuple[int, int]) -> pa.Table:
    return pa.Table.from_batches([batch(*places)])


def test_after_a_part_whose_name_may_not_be_durable_nothing_more_is_sealed(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part has its number: another task must not give the same number to another part."""
    first = sealer(spool, {})
    with monkeypatch.context() as patch:

        def fail(_: Path) -> None:
            raise OSError(errno.EIO, "Input/output error")

        patch.setattr(spools, "sync", fail)
        with pytest.raises(TransientError, match=r"cannot be written \(Input/output error\)"):
            first.seal(0, table((1, 1)))
    with pytest.raises(TransientError, match=r"cannot be written \(Input/output error\)"):
        first.seal(1, table((7, 1)))
    assert [part.number for part in spool.parts()] == [1]
    sealer(spool, {}).seal(1, table((7, 1)))
    assert [part.number for part in spool.parts()] == [1, 2]


def snapshot(*records: tuple[str | None, bool]) -> pa.Table:
    """Records by their source partition, and whether its snapshot is complete behind them."""
    offsets = [
        None if name is None else json.dumps({"snapshot_completed": d}) for name, d in records
    ]
    empty = [None] * len(records)
    names = [None if name is None else json.dumps({"database": name}) for name, _ in records]
    columns = [empty, empty, [b"1"] * len(records), names, offsets, empty, empty]
    kinds = [pa.binary() if name == "value" else pa.string() for name in COLUMNS]
    return pa.Table.from_arrays(list(map(pa.array, columns, kinds)), names=list(COLUMNS))


@pytest.mark.parametrize("between", [("b", True), (None, True)], ids=["partition", "no offset"])
def test_a_snapshot_stays_open_whatever_its_task_delivers_meanwhile(
    between: tuple[str | None, bool], spool: Spool
) -> None:
    """A task may read several databases, and deliver records that have no place in any."""
    one = sealer(spool, {})
    one.seal(0, snapshot(("a", False)))
    one.seal(0, snapshot(between))
    one.seal(1, snapshot(("c", True)))
    assert spool.published_parts() == []
    one.seal(0, snapshot(("a", True)))
    assert [part.number for part in spool.published_parts()] == [1, 2, 3, 4]


def test_records_of_two_source_partitions_have_two_ids() -> None:
    """Whatever names are in the partition, the offset, or both of them."""
    places = [
        ('{"id":"server-0"}', '{"id":1}'),
        ('{"id":"server-1"}', '{"id":1}'),
        ('{"server":"s"}', '{"id":1}'),
        ('{"a":{"id":1}}', '{"id":1}'),
    ]
    empty = [None] * len(places)
    partitions, offsets = zip(*places, strict=True)
    columns = [empty, empty, [b"1"] * len(places), partitions, offsets, empty, empty]
    kinds = [pa.binary() if name == "value" else pa.string() for name in COLUMNS]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    ids = rows_of(pa.Table.from_arrays(arrays, names=list(COLUMNS)))["id"].to_pylist()
    assert [json.loads(text) for text in ids] == [
        {"partition": {"id": "server-0"}, "offset": {"id": 1}},
        {"partition": {"id": "server-1"}, "offset": {"id": 1}},
        {"server": "s", "id": 1},
        {"a": {"id": 1}, "id": 1},
    ]


class Records(list[tuple[int, int]]):
    def isEmpty(self) -> bool:  # noqa: N802 - Java's name
        return not self


class Polled:
    """A task of a connector that delivers what it is given; `helper` is its helper, too."""

    def __init__(self) -> None:
        self.given, self.polls = queue.Queue[Records](), 0

    def poll(self) -> Records:
        self.polls += 1
        return self.given.get()

    def deliver(self, *places: tuple[int, int]) -> None:
        """Returns when the next poll has begun."""
        polls = self.polls
        self.given.put(Records(places))
        until = time.monotonic() + 30
        while self.polls == polls:
            assert time.monotonic() < until
            time.sleep(0.005)

    def stop(self) -> None:
        self.given.put(Records())

    def pack(self, records: Records) -> Any:
        return bytes(json.dumps(records), "utf-8")

    def done(self, *_: object) -> None:
        pass

    def enter(self) -> None:
        pass


@pytest.fixture
def polled(monkeypatch: pytest.MonkeyPatch) -> Polled:
    monkeypatch.setattr(tasks, "unpack", lambda data: batch(*map(tuple, json.loads(data))))
    return Polled()


def started(polled: Polled, spool: Spool, known: Offsets) -> Task:
    made = ConnectorTask(polled, polled, Busy({}))
    task = Task(0, made, polled, sealer(spool, known))  # type: ignore[arg-type]
    task.start()
    until = time.monotonic() + 30
    while not polled.polls and time.monotonic() < until:
        time.sleep(0.005)
    return task


def rows(spool: Spool) -> list[int]:
    return [part.rows for part in spool.parts()]


def test_the_records_of_the_first_entry_of_all_wait_for_the_next_one(
    polled: Polled, spool: Spool
) -> None:
    """Inside of it the connector cannot go on, and there is no offset before it."""
    task = started(polled, spool, {})
    polled.deliver((3, 1))
    task.seal_when_due(now=True)
    assert rows(spool) == []
    polled.deliver((3, 2))
    task.seal_when_due(now=True)
    assert rows(spool) == []
    polled.deliver((4, 1))
    task.seal_when_due(now=True)
    assert rows(spool) == [3]
    polled.deliver((4, 2))
    task.seal_when_due(now=True)
    assert rows(spool) == [3, 1], "an offset before it is known"
    assert task.stop(30)


def test_the_first_record_of_all_is_sealed_where_nothing_follows(
    polled: Polled, spool: Spool
) -> None:
    task = started(polled, spool, {})
    polled.deliver((3, 1))
    polled.deliver()
    task.seal_when_due(now=True)
    assert rows(spool) == [1]
    assert task.stop(30)


def test_a_record_behind_a_known_offset_waits_for_nothing(polled: Polled, spool: Spool) -> None:
    task = started(
        polled, spool, {PARTITION: ConnectOffset(0, {"lsn": 1, "snapshot_completed": True})}
    )
    polled.deliver((3, 1))
    task.seal_when_due(now=True)
    assert rows(spool) == [1]
    assert task.stop(30)


def taken(spool: Spool) -> list[tuple[int, int]]:
    """The records of all parts, by their ids."""
    ids = [
        json.loads(one)
        for part in spool.parts()
        for one in spool.read(part).read()["id"].to_pylist()
    ]
    return [(one["lsn_proc"], one["lsn_events_processed"]) for one in ids]


class Lost(Exception):
    """Stands for Java's RetriableException: the server is gone."""

    def toString(self) -> str:  # noqa: N802 - Java's name
        return "the server is gone"

    def getCause(self) -> None:  # noqa: N802 - Java's name
        """No other error is the reason."""


@pytest.fixture
def lost(polled: Polled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of no entry are a poll that must be tried again."""
    monkeypatch.setattr(tasks, "_RETRY", 0.0)
    monkeypatch.setattr(jpype, "JException", Lost)
    monkeypatch.setattr(jpype, "JClass", lambda _: Lost)
    poll = polled.poll

    def polling() -> Records:
        if (records := poll()) == [(0, 0)]:
            raise Lost
        return records

    monkeypatch.setattr(polled, "poll", polling)


LOST = (0, 0)


@pytest.mark.usefixtures("lost")
def test_a_task_that_begins_again_goes_on_behind_what_it_has_delivered(
    polled: Polled, spool: Spool
) -> None:
    """It loses its server in the middle of an entry, repeats the entry, and that twice."""
    task = started(polled, spool, {PARTITION: ConnectOffset(0, {"lsn_proc": 1})})
    polled.deliver((5, 1), (6, 1), (6, 2))
    for _ in range(2):
        polled.deliver(LOST)
        polled.deliver((6, 1), (6, 2))
    polled.deliver((6, 3), (7, 1))
    assert task.stop(30)
    assert taken(spool) == [(5, 1), (6, 1), (6, 2), (6, 3), (7, 1)]


@pytest.mark.usefixtures("lost")
def test_what_a_task_cannot_go_on_behind_comes_again(polled: Polled, spool: Spool) -> None:
    """The first entry of all is not sealed alone; the task has nothing to go on behind."""
    task = started(polled, spool, {})
    polled.deliver((5, 1), (5, 2))
    polled.deliver(LOST)
    polled.deliver((5, 1), (5, 2), (6, 1))
    assert task.stop(30)
    assert taken(spool) == [(5, 1), (5, 2), (6, 1)]


@pytest.mark.usefixtures("lost")
def test_a_task_that_begins_again_inside_of_a_snapshot_ends_its_process(
    polled: Polled, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process throws the records of the snapshot away: it begins the snapshot again."""
    (cut,) = snapshot(("a", False)).to_batches()
    monkeypatch.setattr(tasks, "unpack", lambda _: cut)
    task = started(polled, spool, {})
    polled.deliver((1, 1))
    polled.given.put(Records([LOST]))
    until = time.monotonic() + 30
    while task.error is None and time.monotonic() < until:
        time.sleep(0.005)
    assert "its snapshot was cut off" in str(task.error)
    assert spool.published_parts() == []
    spool.clear()
    assert rows(spool) == [0]


@pytest.mark.usefixtures("lost")
def test_a_task_that_has_failed_is_not_quiet_until_it_delivers(
    polled: Polled, spool: Spool
) -> None:
    """Debezium's polls return nothing while its connector begins again, or waits for its slot."""
    task = started(polled, spool, {PARTITION: ConnectOffset(0, {"lsn_proc": 1})})
    polled.deliver()
    assert task.active <= time.monotonic()
    polled.deliver(LOST)
    polled.deliver()
    assert task.active > time.monotonic() + 20
    polled.deliver((5, 1))
    assert task.active <= time.monotonic()
    assert task.stop(30)


def test_a_task_that_is_not_asked_is_not_quiet(
    polled: Polled, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spool is full: what the flow takes out of it makes room for more."""
    task = started(polled, spool, {})
    polled.deliver()
    monkeypatch.setattr(Sealer, "has_room", lambda _: False)
    polled.given.put(Records([(3, 1), (4, 1)]))
    paused = time.monotonic() + 0.5
    while time.monotonic() < paused + 30 and task.active < paused:
        time.sleep(0.05)
    assert polled.polls == 2
    assert paused <= task.active <= time.monotonic()
    assert task.stop(30)
