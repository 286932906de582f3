"""What the driver reads of a spool whose folder changes while somebody lists it."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from dataflow_assets.connectors.kafka_connect.client import HostProcess
from dataflow_assets.connectors.kafka_connect.host.protocol import SPOOL_BYTES, ConnectOrder
from dataflow_assets.connectors.kafka_connect.parts import ConnectPart
from dataflow_assets.connectors.kafka_connect.source import session
from dataflow_assets.connectors.kafka_connect.source.position import ConnectPosition, Piece
from dataflow_assets.connectors.kafka_connect.source.session import CONNECT, KafkaConnectSession
from dataflow_assets.connectors.kafka_connect.source.source import KafkaConnectSource
from dataflow_assets.connectors.kafka_connect.spool import SCHEMA, ConnectOffset, Spool
from dataflow_assets.contracts import PART, Limit, PartSlice, Position, Positions, Span
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.spark import jars


class Running:
    """A process that has opened the spool and seals nothing more."""

    def __init__(self, spool: str) -> None:
        self._spool = spool

    def spool(self) -> str:
        return self._spool

    def check(self) -> None:
        pass


class Driver:
    """A session, and the spool that it reads."""

    def __init__(self, folder: Path) -> None:
        self.spool = Spool(folder / "spool")
        with self.spool.lock(0):
            self.id = self.spool.begin("C", {}).id
        given = {"class": "C", "plugins": [str(folder)], "spool": str(self.spool.folder)}
        self._session = KafkaConnectSession(KafkaConnectSource.model_validate(given))
        self.runs(Running(self.id))

    def runs(self, process: Running) -> None:
        self._session._host = cast("HostProcess", process)

    def end(self) -> Position:
        return self._session.end()[CONNECT]

    def lags(self, end: Position, part: int = 0) -> bool:
        return self._session.lags(CONNECT, self.at(part)[CONNECT], end)

    def release(self, part: int) -> None:
        self._session.acknowledge(self.at(part))

    def seal(self, *numbers: int, size: int = 10) -> None:
        for number in numbers:
            rows = pa.Table.from_pylist([{"record": b"{}"}], SCHEMA)
            part = ConnectPart(number, 0, 1, size, open=False, token="0123abcd")
            self.spool.seal(part, rows, {"{}": ConnectOffset(0, number)})

    def at(self, part: int, token: str = "") -> Positions:
        return {CONNECT: ConnectPosition(self.id, part, token).text}

    def plan(self, part: int = 0, token: str = "") -> Span:
        return self._session.plan(self.at(part, token), Limit(100, 1_000_000))

    def started(self, *branches: int | Positions, patch: pytest.MonkeyPatch) -> ConnectOrder:
        """What the process is told where the first of these branches plans first."""
        orders = list[ConnectOrder]()

        def start(order: ConnectOrder, _: object) -> Running:
            orders.append(order)
            return Running(self.id)

        self._session._host = None
        patch.setattr(session, "HostProcess", start)
        patch.setattr(jars, "fetch", lambda _: [])
        places = [self.at(one) if isinstance(one, int) else one for one in branches]
        self._session.begin_after(places)
        self._session.plan(places[0], Limit(100, 1_000_000))
        return orders[0]


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


def numbers(span: Span) -> list[int]:
    return [
        Piece.parse(piece.part).part.number for piece in span.slices if isinstance(piece, PartSlice)
    ]


def hide(patch: pytest.MonkeyPatch, *listings: Sequence[int]) -> None:
    """The numbers that the next listings of a folder do not show."""
    original, left = Spool.parts, [*listings]

    def parts(spool: Spool, after: int = 0) -> list[ConnectPart]:
        hidden = left.pop(0) if left else ()
        return [part for part in original(spool, after) if part.number not in hidden]

    patch.setattr(Spool, "parts", parts)


def test_parts_are_read_up_to_a_gap(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.seal(1, 2, 3)
    hide(monkeypatch, [2], [2], [2])
    assert numbers(driver.plan()) == [1]
    monkeypatch.undo()
    assert numbers(driver.plan(1)) == [2, 3]


class Busy(Running):
    """Its tasks are not quiet: nobody asks them while the spool is full."""

    def quiet_since(self, _: float) -> float:
        return 0.0


def test_a_run_waits_for_nobody_while_the_spool_is_full(driver: Driver) -> None:
    """A branch is away, so that nothing is released: with its error the run must come to an end."""
    driver.runs(Busy(driver.id))
    driver.seal(1, 2, size=SPOOL_BYTES)
    end = driver.end()
    assert driver.lags(end, 1), "a part waits"
    assert not driver.lags(end, 2)
    span = driver._session.plan(driver.at(2), Limit(), {CONNECT: end})
    assert span.empty
    assert driver._session.holds
    driver.release(2)
    assert driver.lags(end, 2), "the tasks go on"


def test_a_part_that_one_listing_lacks_is_not_lost(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.seal(1, 2)
    hide(monkeypatch, [1])
    assert numbers(driver.plan()) == [1, 2]


def test_a_part_that_every_listing_lacks_is_lost(driver: Driver) -> None:
    driver.seal(2, 3)
    with pytest.raises(PermanentError, match=r"part 1 of the spool \S+ is gone"):
        driver.plan()


def test_a_part_that_is_forgotten_is_lost(driver: Driver) -> None:
    driver.seal(1, 2)
    driver.spool.forget(1)
    with pytest.raises(PermanentError, match=r"part 1 of the spool \S+ is gone"):
        driver.plan()


def test_the_process_is_told_the_furthest_place_of_all_branches(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses a spool that ends before: an older copy, which another branch may be within."""
    assert driver.started(5, 10, 3, patch=monkeypatch).position == 10
    finished = {**driver.at(5), f"{PART}0": ConnectPosition(driver.id, 12).text}
    assert driver.started(finished, 10, patch=monkeypatch).position == 12


def test_a_part_that_another_process_has_given_its_number_is_not_the_one_that_was_read(
    driver: Driver,
) -> None:
    """An older copy of the spool was written to while the branch was suspended."""
    driver.seal(1, 2, 3)
    with pytest.raises(PermanentError, match=r"part 2 of the spool \S+ is not the one"):
        driver.plan(2, "89abcdef")
    span = driver.plan(2, "0123abcd")
    assert numbers(span) == [3]
    (upto,) = {piece.upto for piece in span.slices}
    assert ConnectPosition.parse(upto).token == "0123abcd"
    assert numbers(driver.plan(2)) == [3], "positions of older versions have no token"


def test_the_name_of_a_part_is_durable_before_a_flow_has_read_the_part(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process renames a part first, and makes its folder durable then."""
    synced = list[Path]()
    monkeypatch.setattr(session, "sync", synced.append)
    assert numbers(driver.plan()) == []
    assert synced == []
    driver.seal(1)
    assert numbers(driver.plan()) == [1]
    assert synced == [driver.spool.folder]


def test_a_disk_without_space_is_named_where_parts_are_forgotten(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No part is deleted before that is noted."""
    driver.seal(1, 2)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            TransientError, match=r"the spool \S+ cannot be read or written \(No sp"
        ):
            driver.release(1)
    assert numbers(driver.plan()) == [1, 2]
    driver.release(1)
    assert [part.number for part in driver.spool.parts()] == [2]


class Clock:
    """Stands for the module `time`; somebody may set what people see."""

    def __init__(self) -> None:
        self.running, self.shown = 1_000.0, 1_750_000_000.0

    def monotonic(self) -> float:
        return self.running

    def time(self) -> float:
        return self.shown

    def passes(self, seconds: float) -> None:
        self.running, self.shown = self.running + seconds, self.shown + seconds


class Quiet(Running):
    """A process whose connector has delivered nothing for a long time."""

    def __init__(self, spool: str, clock: Clock) -> None:
        super().__init__(spool)
        self._clock = clock

    def quiet_since(self, moment: float) -> float:
        return self._clock.running - moment


@pytest.mark.parametrize("jump", [0.0, 3_600.0, -3_600.0], ids=["right", "forward", "back"])
@pytest.mark.parametrize("again", [False, True], ids=["one session", "another session"])
def test_a_clock_that_is_set_neither_ends_a_run_nor_keeps_it(
    jump: float, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends once nothing has come for five seconds since it has asked for the end."""
    clock = Clock()
    monkeypatch.setattr(session, "time", clock)
    driver = Driver(tmp_path)
    clock.passes(100)
    end = driver.end()
    clock.shown += jump
    if again:
        driver = Driver(tmp_path / "again")
    driver.runs(Quiet(driver.id, clock))
    clock.passes(session.QUIET - 0.1)
    assert driver.lags(end) or again
    clock.passes(0.2)
    assert not driver.lags(end)
