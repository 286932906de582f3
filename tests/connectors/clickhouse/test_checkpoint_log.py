"""The ledger's rules as a model: any run may be stopped anywhere, and go on later."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from dataflow_assets.connectors.clickhouse.sink import chunks as chunks_module
from dataflow_assets.connectors.clickhouse.sink import recovery
from dataflow_assets.connectors.clickhouse.sink.checkpoint import BranchCheckpoint
from dataflow_assets.connectors.clickhouse.sink.chunks import (
    ClickhouseChunks,
    ClickhousePiece,
    ClickhouseRows,
)
from dataflow_assets.connectors.clickhouse.table.checkpoint_log import (
    Border,
    ClickhouseEntry,
    ClickhouseHead,
    ClickhouseIntent,
    ClickhousePartition,
    Key,
    dump,
    fold,
)
from dataflow_assets.contracts import (
    Cut,
    OffsetSlice,
    PartSlice,
    Run,
    Span,
    Target,
    Totals,
    utc_now,
)
from dataflow_assets.errors import DataflowError, TakenOver

TARGET = Target("shop/orders", "clickhouse:orders", "m1", "orders")


class Stopped(BaseException):
    """A kill between two statements, or right behind one."""


@dataclass
class Model:
    """What ClickHouse promises: rows of a key once, blocks of a token once."""

    entries: list[ClickhouseEntry] = field(default_factory=list)
    keys: deque[Key] = field(default_factory=lambda: deque(maxlen=12))  # more are forgotten
    tokens: set[str] = field(default_factory=set)
    rows: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class Seat:
    """One run's connection; every statement waits for its turn and may be its last."""

    model: Model
    turn: Callable[[], None]
    blocks: int = 0

    def read(self, partition: str | None = None) -> list[ClickhouseEntry]:
        self.turn()
        return [
            e for e in self.model.entries if partition in (None, e.partition) or e.kind == "head"
        ]

    def record(self, entry: ClickhouseEntry) -> None:
        self.turn()
        if entry.key not in self.model.keys:
            self.model.keys.append(entry.key)
            self.model.entries.append(entry)
        self.turn()

    def insert(self, token: str, generation: str, rows: list[int]) -> None:
        self.turn()
        if token not in self.model.tokens:
            self.model.tokens.add(token)
            self.model.rows += [(generation, row) for row in rows]
        self.turn()


def drive(seat: Seat, run: str, end: int, chance: random.Random) -> None:
    """What a run does: takes an epoch, and commits prefixes of what it sees until the end."""
    branch = BranchCheckpoint(seat, TARGET)
    state = branch.take(Run(run, "h", 1))
    if not state.head.source or chance.random() < 0.2:
        start = {"0": ClickhousePartition(0)}
        fresh = replace(state.snapshot(), generation=branch.generation(), partitions=start)
        state = branch.head(replace(fresh, source="s"))
    while (position := int(state.partitions["0"].position or 0)) < end:
        border = state.pending.get("0")
        upto = int(border.upto) if border else min(end, position + chance.randint(1, 9))
        seen = chance.randint(position + 1, upto)  # the input may end early
        task = BranchCheckpoint(seat, TARGET, branch.epoch)
        chunks = ClickhouseChunks(task, seat, OffsetSlice("0", position, upto), TARGET.id)
        first = int(chunks.partition.position or 0)

        def insert(piece: ClickhousePiece, border: Border) -> Totals:
            assert isinstance(piece.after, int)
            assert isinstance(piece.upto, int)
            rows = list(range(max(piece.after, first), min(piece.upto, seen)))  # noqa: B023
            seat.insert(piece.token, state.head.generation, rows)  # noqa: B023
            return Totals(len(rows))

        try:
            chunks.commit(seen, ClickhouseRows(lambda _: "", insert), utc_now())
        except TakenOver:
            raise
        except DataflowError:
            branch.take(Run(run, "h", 1))
        state = branch.read()


class Turns:
    """Lets one of several threads go on at a time, in an order that a seed decides."""

    def __init__(self, chance: random.Random, kills: float) -> None:
        self._chance, self._kills = chance, kills
        self._waiting: dict[int, threading.Event] = {}
        self._lock = threading.Condition()
        self._live = 0

    def turn(self, me: int) -> Callable[[], None]:
        def wait() -> None:
            mine = threading.Event()
            with self._lock:
                self._waiting[me] = mine
                self._lock.notify_all()
            mine.wait()
            if self._chance.random() < self._kills:
                raise Stopped

        return wait

    def run(self, actors: list[Callable[[], None]]) -> None:
        threads = [threading.Thread(target=self._guarded, args=(one,)) for one in actors]
        self._live = len(threads)
        for thread in threads:
            thread.start()
        while True:
            with self._lock:
                self._lock.wait_for(lambda: len(self._waiting) == self._live)
                if not self._live:
                    break
                chosen = self._chance.choice(sorted(self._waiting))
                self._waiting.pop(chosen).set()
        for thread in threads:
            thread.join()

    def _guarded(self, actor: Callable[[], None]) -> None:
        try:
            actor()
        except (Stopped, DataflowError):
            pass
        finally:
            with self._lock:
                self._live -= 1
                self._lock.notify_all()


@pytest.mark.parametrize("seed", range(150))
def test_runs_that_race_and_die_anywhere_store_every_record_once(seed: int) -> None:
    chance, model = random.Random(seed), Model()
    turns = Turns(chance, kills=0.005)

    def actor(number: int) -> Callable[[], None]:
        seat = Seat(model, turns.turn(number))

        def act() -> None:
            for _ in range(number * 12):  # so that it takes over in the middle
                seat.turn()
            drive(seat, f"r{number}", 40, random.Random(seed * 10 + number))

        return act

    turns.run([actor(number) for number in range(5)])
    drive(Seat(model, lambda: None), "last", 40, random.Random(seed))
    state = fold(model.entries)
    generation = state.head.generation
    assert sorted(row for name, row in model.rows if name == generation) == list(range(40))
    assert all(_order(name) <= _order(generation) for name, _ in model.rows)
    assert state.partitions["0"].position == 40
    assert state.partitions["0"].totals.rows == 40
    assert not state.pending


@dataclass
class Interrupted(Seat):
    """Somebody else acts before this one's first record."""

    act: Callable[[], None] | None = None

    def record(self, entry: ClickhouseEntry) -> None:
        act, self.act = self.act, None
        if act:
            act()
        super().record(entry)


def test_a_takeover_knows_what_its_predecessor_did_last() -> None:
    model = Model()
    old, start = BranchCheckpoint(Seat(model, _at_once), TARGET), {"0": ClickhousePartition(3)}
    state = old.take(Run("old", "h", 1))

    def restart() -> None:
        old.head(replace(state.snapshot(), generation=old.generation(), partitions=start))

    new = BranchCheckpoint(Interrupted(model, _at_once, act=restart), TARGET)
    taken = new.take(Run("new", "h", 1))
    assert (taken.head.generation, taken.partitions) == ("1.1", start)
    assert (taken.head.epoch, taken.head.run) == (2, "new")
    with pytest.raises(TakenOver, match=r"flow shop/orders was taken over by run new on host h"):
        old.read()


def test_two_runs_never_share_an_epoch() -> None:
    model, epochs = Model(), []

    def other() -> None:
        epochs.append(
            BranchCheckpoint(Seat(model, _at_once), TARGET).take(Run("b", "h", 1)).head.epoch
        )

    branch = BranchCheckpoint(Interrupted(model, _at_once, act=other), TARGET)
    epochs.append(branch.take(Run("a", "h", 1)).head.epoch)
    assert epochs == [1, 2]


def test_of_two_rows_with_one_key_the_first_stands() -> None:
    """As when the second came after the table had forgotten the first one's token."""
    heads = [ClickhouseEntry("head", dump(ClickhouseHead(1, 0, run)), run, 1) for run in ("a", "b")]
    assert fold(heads).head.run == "a"


def test_parts_of_two_reads_are_not_mistaken_for_each_other() -> None:
    model = Model()
    branch = BranchCheckpoint(Seat(model, _at_once), TARGET)
    for read in ("i1", "i2"):
        part = PartSlice("part-0", None, f"end of {read}")
        intent = ClickhouseIntent(read, utc_now(), 0, (part,))
        state = branch.take(Run("r", "h", 1))
        state = branch.head(replace(state.snapshot(), partitions={}, intent=intent))
        assert state.parts == (part,)
        seat = Seat(model, _at_once)
        chunks = ClickhouseChunks(BranchCheckpoint(seat, TARGET, branch.epoch), seat, part, "f")
        chunks.commit(part.upto, ClickhouseRows(lambda _: "", lambda *_: Totals(2)), utc_now())
        (done,) = branch.read().parts
        assert done.empty
    assert branch.read().partitions["part-0"].totals.rows == 2


def test_a_later_part_has_a_higher_version_whatever_the_clocks_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parts that are stored in order, by tasks whose clocks differ: the update is the newer row."""
    seat, versions = Seat(Model(), _at_once), list[int]()
    driver = BranchCheckpoint(seat, TARGET)
    state = driver.take(Run("r", "h", 1))
    parts = tuple(PartSlice(f"part-{n}", None, "end", f"stretch {n}") for n in range(3))
    driver.head(replace(state.snapshot(), intent=ClickhouseIntent("i1", utc_now(), 0, parts)))

    def insert(_: ClickhousePiece, border: Border) -> Totals:
        versions.append(border.version)
        return Totals(1)

    now = utc_now()
    for seconds, part in zip((0, 60, 30), parts, strict=True):
        clock = now - timedelta(seconds=seconds)
        monkeypatch.setattr(chunks_module, "utc_now", lambda clock=clock: clock)
        task = BranchCheckpoint(seat, TARGET, driver.epoch)
        ClickhouseChunks(task, seat, part, TARGET.id).commit(
            "end", ClickhouseRows(lambda _: "", insert), now
        )
    assert versions[0] < versions[1] < versions[2]


def test_a_part_that_is_gone_takes_what_was_recorded_of_it_along() -> None:
    """What was begun of it is not waited for, and what replaces it is newer."""
    model = Model()
    branch = BranchCheckpoint(Seat(model, _at_once), TARGET)
    parts = PartSlice("part-0", None, "end"), PartSlice("part-1", None, "end", "old")
    intent = ClickhouseIntent("i1", utc_now(), 0, parts)
    branch.take(Run("r", "h", 1))
    state = branch.head(replace(branch.read().snapshot(), intent=intent))
    version = 1 << 62
    state = branch.propose(state, "part-1", Border("end", utc_now(), 0, version))
    span = Span(state.parts)
    kept = recovery.cut_parts(state, span, Cut({parts[1]: ("smaller", "parts")}))
    assert kept == parts
    assert branch.head(state.divide(kept)).pending
    cut = Cut({parts[1]: ("new",)}, gone=frozenset({parts[1]}))
    replaced = recovery.cut_parts(state, span, cut)
    state = branch.head(state.divide(replaced))
    assert state.parts == (parts[0], PartSlice("part-2", None, "end", "new"))
    assert not state.pending
    assert state.version == version


def test_a_read_that_is_left_without_parts_is_planned_again() -> None:
    """Earlier versions have recorded such a read, which nothing ended."""
    part = PartSlice("part-0", None, "end")
    head = ClickhouseHead(
        intent=ClickhouseIntent("i1", utc_now(), 0, ()),
        partitions={"wal": ClickhousePartition("begin")},
    )
    state = fold([ClickhouseEntry("head", dump(head), "a", 1)])
    assert recovery.unfinished_span(state, Span((part,))) is None
    (found,) = recovery.head_at_begin(state.snapshot(), Span((part,)), utc_now(), 0).intent.parts  # type: ignore[union-attr]
    assert found == part


def _at_once() -> None:
    pass


def _order(generation: str) -> tuple[int, ...]:
    return tuple(map(int, generation.split(".")))
