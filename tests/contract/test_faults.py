"""What becomes of a server, done to each connector that has one: a retry, or one clear error.

Nothing is lost and nothing doubled, whatever it was; a sentence says what failed, where, and what
to do, and no secret.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import ValidationError
from pyspark.sql import SparkSession

from dataflow_assets import registry
from dataflow_assets.contracts import Rejects
from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from devservers import Proxy
from tests.contract import SINKS, SOURCES
from tests.contract.conftest import Case, numbered
from tests.contract.drivers import MemoryOffsets, MemorySlice
from tests.contract.remote import SECRET, Remote

End = tuple[str, str]
"""Its role, and the name of its driver."""
ENDS: list[End] = [
    (role, name)
    for role, drivers in (("source", SOURCES), ("sink", SINKS))
    for name, driver in sorted(drivers.items())
    if issubclass(driver, Remote)
]
CASES = [pytest.param(end, id="-".join(end)) for end in ENDS]


def _some(ends: Collection[End]) -> list[Any]:
    """Every case, of which those with other ends are for `make test-all`."""
    return [
        pytest.param(end, marks=() if end in ends else pytest.mark.full, id="-".join(end))
        for end in ENDS
    ]


WAITING = _some([("source", "kafka"), ("sink", "postgresql"), ("sink", "iceberg")])
"""What the others would add is held by the server that stays down, and by the one that dies."""
ON_SPARK = (("source", "kafka"), ("sink", "kafka"), ("sink", "postgresql"), ("sink", "iceberg"))
"""In workers of Spark the others break as they do here; `make test-all` has them there."""
IN_SINKS = _some([end for end in ENDS if end[0] == "sink"])
"""Of a source an answer that is lost is a connection that breaks."""
ROWS = 50
LIMIT = 10  # records of a slice: several micro-batches


@dataclass
class Faulty:
    """A flow of which one end has a server that fails; the other is in memory."""

    case: Case
    end: Remote
    proxies: tuple[Proxy, ...]

    @property
    def hits(self) -> int:
        return sum(proxy.hits for proxy in self.proxies)

    def refuse(self) -> None:
        for proxy in self.proxies:
            proxy.refuse()

    def restore(self) -> None:
        for proxy in self.proxies:
            proxy.restore()

    def expect_everything_once(self, upto: int = ROWS) -> None:
        self.case.expect(numbered(1, upto))
        assert self.case.totals().rows == upto - 1


@pytest.fixture(params=CASES)
def faulty(request: pytest.FixtureRequest, engine: SparkSession) -> Iterator[Faulty]:
    """For what happens while Spark reads and writes."""
    on_spark = request.param in ON_SPARK
    yield from _faulty(request, request.getfixturevalue("spark") if on_spark else engine)


@pytest.fixture(params=CASES)
def asked(request: pytest.FixtureRequest, engine: SparkSession) -> Iterator[Faulty]:
    """For what is the same wherever the pass runs."""
    yield from _faulty(request, engine)


def _faulty(request: pytest.FixtureRequest, session: SparkSession) -> Iterator[Faulty]:
    role, name = request.param
    source = SOURCES[name](request) if role == "source" else MemoryOffsets(request)
    sink = SINKS[name](request) if role == "sink" else MemorySlice(request)
    end = source if role == "source" else sink
    assert isinstance(end, Remote)
    proxies = end.through()
    source.seed(numbered(1, ROWS))
    yield Faulty(Case(source, sink, session, f"{role}-{name}", LIMIT), end, proxies)
    for proxy in proxies:
        proxy.restore()


def test_every_connector_with_a_server_has_the_verbs() -> None:
    kinds = (("source", registry.sources()), ("sink", registry.sinks()))
    known = {(role, name) for role, found in kinds for name in found}
    tried = {(role, (SOURCES if role == "source" else SINKS)[name].type) for role, name in ENDS}
    local = {("source", name) for name, driver in SOURCES.items() if not driver.has_server}
    assert tried == {end for end in known - local if not end[1].startswith("memory-")}


@pytest.mark.parametrize("asked", WAITING, indirect=True)
def test_a_server_down_at_connect_is_waited_for(asked: Faulty) -> None:
    asked.refuse()
    waiting = threading.Timer(1.5, asked.restore)
    waiting.start()
    asked.case.drain()
    waiting.join()
    asked.expect_everything_once()


def test_a_server_that_stays_down_ends_the_run_with_one_sentence(
    asked: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.refuse()
    asked.case.patience = 0.5
    with monkeypatch.context() as patch:
        asked.end.hasten(patch)
        with pytest.raises(TransientError, match=asked.end.down) as caught:
            asked.case.drain()
    assert "gave up after" in str(caught.value)
    assert "Nothing is lost: the next run continues from the checkpoint" in str(caught.value)
    asked.restore()
    asked.case.patience = 20
    asked.case.drain()
    asked.expect_everything_once()


def test_connections_that_break_in_the_middle(faulty: Faulty) -> None:
    for proxy in faulty.proxies:
        proxy.cut(after=faulty.end.busy, times=2)
    faulty.case.drain()
    assert faulty.hits >= 1
    faulty.expect_everything_once()


def test_a_server_that_dies_in_the_middle_and_comes_back(asked: Faulty) -> None:
    reports = asked.case.reports()
    next(reports)
    asked.refuse()
    waiting = threading.Timer(1.5, asked.restore)
    waiting.start()
    list(reports)
    waiting.join()
    asked.expect_everything_once()


@pytest.mark.parametrize("asked", WAITING, indirect=True)
def test_a_slow_server_is_waited_for(asked: Faulty) -> None:
    for proxy in asked.proxies:
        proxy.slow(0.005)
    asked.case.drain()
    asked.expect_everything_once()


@pytest.mark.parametrize("asked", IN_SINKS, indirect=True)
def test_an_answer_that_is_lost_after_the_commit(asked: Faulty) -> None:
    _lose_the_answer(asked, 1)


@pytest.mark.parametrize("asked", IN_SINKS, indirect=True)
def test_an_answer_that_is_lost_after_a_later_commit(asked: Faulty) -> None:
    _lose_the_answer(asked, 3)


def _lose_the_answer(faulty: Faulty, nth: int) -> None:
    final = _Nth(faulty, nth)
    for proxy in faulty.proxies:
        proxy.lose_answer(after=final)
    faulty.case.drain()
    assert faulty.hits == 1
    faulty.expect_everything_once()


@dataclass
class _Nth:
    """True for the n-th of the requests that commit."""

    faulty: Faulty
    left: int

    def __call__(self, request: bytes) -> bool:
        final = self.faulty.end.final(request)
        self.left -= final
        return final and self.left == 0


def test_wrong_credentials_end_the_run_with_one_sentence(asked: Faulty) -> None:
    asked.end.wrong_credentials()
    with pytest.raises((PermanentError, ValidationError), match=asked.end.denied) as caught:
        asked.case.drain()
    assert SECRET not in str(caught.value)


def test_what_is_altered_under_a_run(asked: Faulty) -> None:
    reports = asked.case.reports(rejects=Rejects("fail"))
    next(reports)
    asked.end.alter()
    if asked.end.altered is None:
        list(reports)
    else:
        with pytest.raises(DataflowError, match=asked.end.altered):
            list(reports)
    asked.end.mend()
    asked.case.drain()
    asked.expect_everything_once()


def test_what_is_dropped_under_a_run(asked: Faulty) -> None:
    reports = asked.case.reports()
    next(reports)
    asked.end.drop()
    with pytest.raises(PermanentError, match=asked.end.dropped):
        list(reports)
    with pytest.raises(PermanentError, match=asked.end.again or asked.end.dropped):
        asked.case.drain()
