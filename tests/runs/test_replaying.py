"""Replays of a flow with two stores of rejected records: each entry once, none is stuck or lost."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dataflow_assets import failpoints
from dataflow_assets.connectors.memory import (
    MemoryOffsetSource,
    MemorySliceSink,
    MemorySpanSink,
    Store,
)
from dataflow_assets.contracts import OffsetSlice, Rejection, Rejects, Run, Target
from dataflow_assets.errors import TakenOver, TransientError
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.runs import replay as replays
from dataflow_assets.runs import replay_entries as planning
from dataflow_assets.runs import replay_waiting as waiting
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.replay import Replayed, replay
from dataflow_assets.runs.request import Patience, Request, Start
from dataflow_assets.runs.reset import reset
from dataflow_assets.sdk.rejected_records import error_record

SLICE = OffsetSlice("0", 0, 1_000_000)
TRUNCATE = Start("earliest", table="truncate", confirmed=True)


class Stores:
    """A topic, and two tables in stores of their own, each with the records it has rejected."""

    def __init__(self, engine: SparkSession) -> None:
        self.engine = engine
        self.name = uuid.uuid4().hex
        self.stores = [Store(f"{self.name}-{n}") for n in range(2)]
        for store in self.stores:
            store.create()
        self.allowed: frozenset[int] = frozenset()
        self.kinds: list[Any] = [MemorySliceSink, MemorySpanSink]
        self.rejects = Rejects()
        self.branched = True
        self._offset = 0

    def remove(self) -> None:
        for store in self.stores:
            store.remove()

    @property
    def flow(self) -> Flow:
        sinks = [
            kind(store=f"{self.name}-{n}", table=f"t{n}", allowed=self.allowed)
            for n, kind in enumerate(self.kinds)
        ]
        branches = (Branch(sinks[0]), Branch(sinks[1], routes=("other",)))
        source = MemoryOffsetSource(store=f"{self.name}-0", topic="topic", partitions=1)
        policies = Policies(rejects=self.rejects, max_rejected_percent=100)
        kept = branches if self.branched else branches[:1]
        return Flow("ns", "f", source, kept, policies, hash="h")

    def reject(
        self, store: int, ids: Sequence[int], stage: str = "sink", first: datetime | None = None
    ) -> None:
        """Records that the table of this store has rejected, as a flow stores them."""
        flow = self.flow
        target = replace(flow.target(flow.branches[store]), source_id="topic-1")
        records = []
        for number in ids:
            self._offset += 1
            body = json.dumps({"id": number, "name": "a"}).encode()
            records.append(error_record(target, SLICE, Rejection(self._offset, stage, "", body)))
        kept = flow.branches[store].sink.rejected_entries()
        kept.store(records)  # type: ignore[attr-defined]
        if first is not None:  # as of a transaction that began earlier and was committed later
            self.stores[store].query("update errors set rowid = -rowid where id = ?", records[0].id)

    def delete(self, store: int, number: int) -> None:
        """As a person does."""
        sql = "delete from errors where json_extract(body, '$.original_message.id') = ?"
        self.stores[store].query(sql, number)

    def replay(self, since: datetime | None = None) -> list[tuple[int, int, int]]:
        failpoints.arm(failpoints.from_environment())
        return [_counts(done) for done in self.replaying(since)]

    def replaying(self, since: datetime | None = None) -> Iterator[Replayed]:
        return replay(self.flow, lambda: self.engine, Run(), since)

    def drain(self, start: Start | None = None, patience: float = 5) -> None:
        order = Request(start=start or Start(), patience=Patience(patience, 0.01, 0.05))
        list(drain(self.flow, lambda: self.engine, order))

    def ids(self, store: int) -> list[int]:
        found = self.stores[store].query("select row from rows")
        return sorted(json.loads(row)["id"] for (row,) in found)

    def waiting(self) -> int:
        flow = self.flow
        return sum(
            len(b.sink.rejected_entries().pending(flow.id, None, 10**6)) for b in flow.branches
        )


def _counts(done: Replayed) -> tuple[int, int, int]:
    return done.entries, done.rows, done.rejected_again


@pytest.fixture
def two(engine: SparkSession) -> Iterator[Stores]:
    stores = Stores(engine)
    yield stores
    stores.remove()
    failpoints.arm(None)


def cut(
    monkeypatch: pytest.MonkeyPatch,
    two: Stores,
    point: str,
    nth: int = 1,
    since: datetime | None = None,
) -> None:
    """A replay that ends at this point."""
    with monkeypatch.context() as patch:
        patch.setenv("DATAFLOW_FAILPOINT", f"{point}:raise:{nth}")
        patch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
        with pytest.raises(TransientError, match=point):
            two.replay(since)
    failpoints.arm(None)


def test_entries_go_into_the_branch_that_they_are_from(two: Stores) -> None:
    two.reject(0, [1, 2])
    two.reject(1, [3])
    two.reject(0, [4], "decode")
    assert two.replay() == [(4, 5, 0)]
    assert (two.ids(0), two.ids(1)) == ([1, 2, 4], [3, 4])
    assert two.replay() == []


def test_what_is_put_back_and_not_noted_is_remembered_whatever_waits_elsewhere(
    two: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.reject(1, [7])
    cut(monkeypatch, two, "memory.replayed")
    assert two.ids(1) == [7]
    two.reject(0, range(1_000, 1_600), "decode")
    two.replay()
    assert two.ids(1) == [7, *range(1_000, 1_600)]
    assert two.replay() == []


def test_a_part_of_one_store_that_was_cut_off_is_ended_although_the_other_has_more(
    two: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.reject(1, [1, 2])
    cut(monkeypatch, two, "replay.begun")
    two.reject(0, [3], "decode")
    assert [entries for entries, _, _ in two.replay()] == [3]
    assert (two.ids(0), two.ids(1)) == ([3], [1, 2, 3])


@pytest.mark.parametrize("left", [[1, 3], [1], []], ids=str)
def test_entries_of_a_part_that_somebody_deletes_are_done(
    two: Stores, monkeypatch: pytest.MonkeyPatch, left: list[int]
) -> None:
    for store in range(2):
        two.reject(store, [1, 2, -3])
    for _ in range(2):
        cut(monkeypatch, two, "replay.begun", 2)
    for store in range(2):
        for gone in {1, 2, 3} - set(left):
            two.delete(store, -3 if gone == 3 else gone)
    two.reject(0, [9], "decode")
    two.replay()
    assert two.ids(0) == [1, 2, 9]  # the first branch was through
    assert two.ids(1) == [*(number for number in left if number != 3), 9]
    ids = [id_ for (id_,) in two.stores[1].query("select id from errors where not replayed")]
    assert len(ids) == (3 in left)
    assert all(id_.endswith("/6/0/sink#attempt-2") for id_ in ids)


def test_an_older_entry_that_comes_late_does_not_stop_a_replay(
    two: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.reject(0, range(1, 602))
    cut(monkeypatch, two, "replay.begun")
    two.reject(0, [602], first=datetime.now(UTC))
    assert sum(rows for _, rows, _ in two.replay()) == 602
    assert two.ids(0) == list(range(1, 603))
    assert two.replay() == []


def test_a_replay_of_the_latest_ends_an_older_part_first(
    two: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.reject(0, [1, 2])
    cut(monkeypatch, two, "replay.begun")
    since = datetime.now(UTC)
    two.reject(0, [3])
    two.replay(since)
    assert two.ids(0) == [1, 2, 3]
    two.replay()
    assert two.ids(0) == [1, 2, 3]
    assert two.waiting() == 0


def test_a_part_that_is_not_among_the_oldest_is_ended_all_the_same(
    two: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOKED_AT", 3)
    two.reject(0, range(1, 6))
    since = datetime.now(UTC)
    two.reject(0, [6, 7])
    cut(monkeypatch, two, "replay.begun", since=since)
    for _ in range(4):
        two.replay()
    assert two.ids(0) == list(range(1, 8))
    assert two.waiting() == 0


def test_a_checkpoint_does_not_grow_with_all_that_was_ever_put_back(
    two: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOKED_AT", 8)
    monkeypatch.setattr(planning, "REMEMBERED", 2)
    monkeypatch.setattr(replays, "AT_ONCE", 2)
    two.reject(0, range(1, 20))
    two.replay()
    target = planning.replay_target(two.flow, two.flow.branches[0])
    checkpoint = two.flow.branches[0].sink.peek(target)
    assert checkpoint is not None
    assert len(str(checkpoint.positions["entries"]).split(",")) == 4  # the last two parts
    for _ in range(2):
        two.replay()
    assert two.ids(0) == list(range(1, 20))


POINTS = (
    "memory.begin",
    "replay.begun",
    "memory.write",
    "memory.before-commit",
    "memory.committed",
    "replay.passed",
    "memory.finish",
    "memory.finished",
    "memory.replayed",
)
ONCE = ("memory.before-commit", "memory.committed")  # only one of the two commits in its task


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_a_replay_that_ends_anywhere_puts_everything_back_once(
    two: Stores, monkeypatch: pytest.MonkeyPatch, point: str, nth: int
) -> None:
    if nth == 2 and point in ONCE:
        two.kinds = [MemorySliceSink, MemorySliceSink]
    two.reject(0, [1, -1])
    two.reject(1, [2, -2])
    two.reject(0, [3], "decode")
    cut(monkeypatch, two, point, nth)
    two.reject(1, [4])
    two.reject(0, [5], "decode")
    two.replay()
    for _ in range(2):
        assert [rows for _, rows, _ in two.replay()] == [0]
        assert (two.ids(0), two.ids(1)) == ([1, 3, 5], [2, 3, 4, 5])
    assert two.waiting() == 2  # those that are refused for good


def test_of_two_replays_the_newer_goes_on(two: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "AT_ONCE", 2)
    two.reject(0, range(1, 7))
    two.reject(1, range(7, 10))
    older = two.replaying()
    assert _counts(next(older)) == (2, 2, 0)
    newer = two.replaying()
    next(newer)
    with pytest.raises(TakenOver):
        next(older)
    list(newer)
    assert (two.ids(0), two.ids(1)) == ([1, 2, 3, 4, 5, 6], [7, 8, 9])
    assert two.waiting() == 0


@pytest.mark.parametrize("point", ["replay.begun", "replay.passed", "memory.replayed"])
def test_a_replay_that_is_overtaken_in_the_middle_puts_nothing_back_twice(
    two: Stores, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    two.reject(0, range(1, 6))
    reach = failpoints.reach
    overtaken: list[str] = []

    def overtake(name: str) -> None:
        if name == point and not overtaken:
            overtaken.append(name)
            two.reject(0, range(1_000, 1_600))
            two.replay()
        reach(name)

    monkeypatch.setattr(failpoints, "reach", overtake)
    if point == "memory.replayed":
        two.replay()
    else:
        with pytest.raises(TakenOver):
            two.replay()
    two.replay()
    assert two.ids(0) == [*range(1, 6), *range(1_000, 1_600)]


def test_what_another_replay_has_put_back_since_the_look_is_known(
    two: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older replay looks, the newer one puts an entry back and dies before it is noted."""
    monkeypatch.setattr(planning, "REMEMBERED", 1)
    two.reject(0, [1])
    look = waiting.Waiting.look
    looks: list[Any] = []

    def first(*given: Any) -> Any:
        found = look(*given)
        looks.append(found)
        if len(looks) == 1:
            now = datetime.now(UTC)
            two.reject(0, [2, 3])
            cut(monkeypatch, two, "memory.replayed", since=now)
        return found

    monkeypatch.setattr(waiting.Waiting, "look", first)
    two.replay()
    two.replay()
    assert two.ids(0) == [1, 2, 3]
    assert two.waiting() == 0


def test_a_flow_runs_beside_its_replay(two: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "AT_ONCE", 1)
    two.branched = False
    produce = [json.dumps({"id": n, "name": "a"}).encode() for n in (1, -2, 3, -4)]
    two.stores[0].produce("topic", 0, produce)
    two.drain()
    two.allowed = frozenset({-2, -4})
    before = two.flow.branches[0].sink.peek(two.flow.target(two.flow.branches[0]))
    replaying = two.replaying()
    next(replaying)
    assert before == two.flow.branches[0].sink.peek(two.flow.target(two.flow.branches[0]))
    two.stores[0].produce("topic", 0, [b'{"id": 5, "name": "a"}', b'{"id": -6, "name": "a"}'])
    two.drain()
    list(replaying)
    assert two.ids(0) == [-4, -2, 1, 3, 5]
    assert two.waiting() == 1  # what came meanwhile waits for the next replay


@pytest.mark.parametrize("stage", ["sink", "decode"])
def test_what_the_flow_reads_again_itself_is_left_alone_until_it_has(
    two: Stores, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stage: str
) -> None:
    """The error sink has the entry, and the rows beside it are not committed."""
    two.branched = False
    two.rejects = Rejects("errors", MemorySliceSink(store=f"{two.name}-1", table="bad"))
    two.stores[0].produce("topic", 0, [b'{"id": 1}', b'{"id": -2}' if stage == "sink" else b"-"])
    with monkeypatch.context() as patch:
        patch.setenv("DATAFLOW_FAILPOINT", "memory.before-commit:raise")
        patch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
        with pytest.raises(TransientError):
            two.drain(patience=0)
    assert (two.replay(), two.ids(0)) == ([], [])
    assert "1 rejected records are not replayed yet" in caplog.text
    two.drain()
    assert two.ids(0) == [1]
    two.allowed = frozenset({-2})
    assert [entries for entries, _, _ in two.replay()] == [1]
    assert two.ids(0) == ([-2, 1] if stage == "sink" else [1])


KEPT = ("beside", "here", "elsewhere")


@pytest.fixture(params=[(kind, kept) for kind in range(2) for kept in KEPT], ids=str)
def one(two: Stores, request: pytest.FixtureRequest) -> Stores:
    """One branch, which commits by slice or by span, and rejected records in each place."""
    kind, kept = request.param
    two.branched = False
    two.kinds = [two.kinds[kind], two.kinds[1]]
    if kept != "beside":
        where = f"{two.name}-{'0' if kept == 'here' else '1'}"
        two.rejects = Rejects("errors", MemorySliceSink(store=where, table="bad"))
    bodies = [json.dumps({"id": number, "name": "a"}).encode() for number in (1, -2, 3)]
    two.stores[0].produce("topic", 0, bodies)
    two.drain()
    assert two.ids(0) == [1, 3]
    return two


def test_what_is_rejected_again_after_a_rewind_waits_again(one: Stores) -> None:
    for _ in range(3):
        one.allowed = frozenset({-2})
        assert one.replay() == [(1, 1, 0)]
        assert one.ids(0) == [-2, 1, 3]
        one.allowed = frozenset()
        one.drain(TRUNCATE)
        assert one.ids(0) == [1, 3]
    assert one.replay() == [(1, 0, 1)]


def test_of_a_record_that_was_rejected_in_both_readings_one_entry_is_put_back(one: Stores) -> None:
    assert one.replay() == [(1, 0, 1)]  # a second attempt waits
    one.drain(TRUNCATE)
    one.allowed = frozenset({-2})
    assert one.replay() == [(1, 1, 0)]
    assert one.replay() == []
    assert one.ids(0) == [-2, 1, 3]


def test_a_rewind_beside_a_replay_leaves_the_record_waiting(
    one: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put back, taken out again with the table, rejected again, and only then noted."""
    one.allowed = frozenset({-2})
    reach = failpoints.reach
    rewound: list[str] = []

    def rewind(name: str) -> None:
        if name == "memory.replayed" and not rewound:
            rewound.append(name)
            one.allowed = frozenset()
            one.drain(TRUNCATE)
        reach(name)

    monkeypatch.setattr(failpoints, "reach", rewind)
    assert one.replay() == [(1, 1, 0)]
    assert one.ids(0) == [1, 3]
    one.allowed = frozenset({-2})
    assert one.replay() == [(1, 1, 0)]
    assert one.ids(0) == [-2, 1, 3]


def test_a_reset_forgets_replays_too(two: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    two.reject(0, [1, 2])
    cut(monkeypatch, two, "replay.begun")
    target = planning.replay_target(two.flow, two.flow.branches[0])
    assert two.flow.branches[0].sink.peek(target) is not None
    reset(two.flow, Run())
    assert two.flow.branches[0].sink.peek(target) is None
    assert two.flow.branches[1].sink.peek(replace(target, branch="x#replay")) is None
    assert two.replay() == [(2, 2, 0)]


def test_an_entry_of_an_earlier_version_is_put_back(two: Stores) -> None:
    two.reject(0, [1])
    sql = "update errors set body = json_remove(body, '$.error.reading', '$.error.source.rows')"
    two.stores[0].query(sql)
    assert two.replay() == [(1, 1, 0)]


def test_a_part_that_an_earlier_version_has_recorded_is_ended(
    two: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts named entries by their ids alone."""
    two.reject(0, [1, 2])
    cut(monkeypatch, two, "replay.begun")
    ((id_, intent),) = two.stores[0].query("select id, intent from checkpoints")
    (part,) = json.loads(intent)
    assert all(isinstance(name, str) for name in json.loads(part["part"]))
    assert id_ == f"{Target('ns/f', two.flow.branches[0].id, '', '').id}#replay"
    assert two.replay() == [(2, 2, 0)]


def test_since_takes_only_what_is_later(two: Stores) -> None:
    two.reject(0, [1])
    assert two.replay(datetime.now(UTC) + timedelta(hours=1)) == []
    assert two.replay(datetime.now(UTC) - timedelta(hours=1)) == [(1, 1, 0)]
