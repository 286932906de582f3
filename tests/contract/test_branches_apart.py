"""Branches of one flow inside the same file or table, at different places of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from dataflow_assets.connectors.memory import MemoryPartSource, MemorySliceSink, MemorySpanSink
from dataflow_assets.connectors.memory.source.session import MemoryPartSession
from dataflow_assets.contracts import Positions, Run, SourceSession
from dataflow_assets.contracts.capabilities import FollowsBranches
from dataflow_assets.errors import TransientError
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Request
from tests.contract import SOURCES
from tests.contract.conftest import numbered
from tests.contract.drivers import MemoryParts
from tests.contract.test_branches import ODD, Branched, Flaky, router

PARTS = sorted(n for n, driver in SOURCES.items() if n not in ("kafka", "memory-offsets"))
DOWN = ("even", "odd")
BOTH_WAYS = ("files", "memory-parts")
MANY_QUERIES = pytest.mark.timeout(900)
"""Trino is asked 330 times in each of these tests, for a second each where others are at work."""


def _marks(name: str, *, full: bool) -> list[pytest.MarkDecorator]:
    return [*([pytest.mark.full] if full else []), *([MANY_QUERIES] if name == "trino" else [])]


def _either(both: Collection[str], one: Collection[str]) -> list[Any]:
    """Either branch is down of the sources `both`, the second one of the sources `one`."""
    always = {*((name, down) for name in both for down in DOWN), *((name, "odd") for name in one)}
    return [
        pytest.param(*each, marks=_marks(each[0], full=each not in always), id="-".join(each))
        for each in product(PARTS, DOWN)
    ]


EITHER = _either(BOTH_WAYS, PARTS)
"""Which branch is down is a matter of the loop; where in a part it lags is one of the source."""
IN_THE_SAME_RUN = _either(BOTH_WAYS, ["postgresql-cdc"])
"""Sources read on there as another run does, but for a log, which knows what its branches have."""


class Apart(Branched):
    """A branch for even numbers and one for odd ones, four records at a time."""

    def __init__(self, engine: SparkSession, source: MemoryParts, folder: Path) -> None:
        super().__init__(engine, source)
        self.flag = folder / "flag"
        self.limit = 4
        self.sinks = [
            MemorySliceSink(store=self.name, table="even"),
            MemorySpanSink(store=self.name, table="odd"),
        ]
        self.routes = (None, ODD)
        self.transformations = router(ODD)

    def flaky(self, table: str) -> None:
        """The sink of this branch is down while the flag stands."""
        self.sinks[DOWN.index(table)] = Flaky(store=self.name, table=table, flag=self.flag)

    def some(self, reports: int) -> None:
        """A run that is asked to end after so many reports; who is down does not come back."""
        seen = 0

        def stop() -> str | None:
            return "enough" if seen >= reports else None

        order = Request(run=Run(), patience=Patience(0.3, 60, 60), stop=stop)
        for _ in drain(self.flow(), lambda: self.engine, order):
            seen += 1

    def expect(self, top: int) -> None:
        assert self.rows("odd") == [n for n in range(1, top) if n % 2]
        assert self.rows("even") == [n for n in range(1, top) if n % 2 == 0]


@pytest.fixture(params=PARTS)
def apart(request: pytest.FixtureRequest, engine: SparkSession, tmp_path: Path) -> Iterator[Apart]:
    cloudpickle.register_pickle_by_value(sys.modules[Flaky.__module__])  # type: ignore[no-untyped-call]
    case = Apart(engine, SOURCES[request.param](request), tmp_path)  # type: ignore[arg-type]
    case.source.seed(numbered(1, 41))
    yield case
    case.store.remove()


@pytest.mark.parametrize(("apart", "down"), EITHER, indirect=["apart"])
def test_a_branch_that_was_down_gets_what_it_lacks(apart: Apart, down: str) -> None:
    """It stays behind inside a file, another run begins there."""
    apart.flaky(down)
    apart.some(2)
    apart.flag.write_text("task")
    with pytest.raises(TransientError, match="was suspended"):
        apart.some(4)
    apart.flag.unlink(missing_ok=True)
    apart.some(3)
    apart.source.seed(numbered(41, 50))
    apart.drain()
    apart.expect(50)


@pytest.mark.parametrize(("apart", "down"), IN_THE_SAME_RUN, indirect=["apart"])
def test_a_branch_that_comes_back_in_the_same_run(apart: Apart, down: str) -> None:
    apart.flaky(down)
    apart.flag.write_text("task")
    order = Request(run=Run(), patience=Patience(600, 0.01, 0.02))
    for count, _ in enumerate(drain(apart.flow(), lambda: apart.engine, order)):
        if count == 1:
            apart.flag.unlink(missing_ok=True)
    apart.expect(41)


@pytest.mark.parametrize("apart", ["memory-parts"], indirect=True)
def test_the_source_learns_where_all_branches_are_before_it_plans(
    apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart.flaky("odd")
    apart.flag.write_text("task")
    with pytest.raises(TransientError, match="was suspended"):
        apart.some(4)
    apart.flag.unlink(missing_ok=True)
    told, plan = list[Sequence[Positions]](), MemoryPartSession.plan

    def planned(self: MemoryPartSession, *given: Any) -> Any:
        assert told, "before it plans"
        return plan(self, *given)

    class Follows(MemoryPartSession, FollowsBranches):
        def begin_after(self, positions: Sequence[Positions]) -> None:
            told.append([dict(one) for one in positions])

    monkeypatch.setattr(MemoryPartSource, "open", lambda source, _: Follows(source))
    monkeypatch.setattr(MemoryPartSession, "plan", planned)
    apart.drain()
    ((even, odd),) = told
    assert even != odd
    apart.expect(41)


ADDED = [
    pytest.param(name, marks=_marks(name, full=name not in BOTH_WAYS))
    for name in PARTS
    if name != "postgresql-cdc"
]
"""Where branches are at different places of it is a matter of each source, in the first test."""


@pytest.mark.parametrize("apart", ADDED, indirect=True)
def test_a_route_that_is_added_inside_a_file_begins_at_its_beginning(apart: Apart) -> None:
    """Of a log its server has let go of what all other branches had."""
    odd, routes = apart.sinks.pop(), apart.routes
    apart.routes = routes[:1]
    apart.some(3)
    apart.sinks.append(odd)
    apart.routes = routes
    apart.drain()
    apart.expect(41)


def _level(*_: object) -> bool:
    return False


@pytest.mark.parametrize("apart", ["memory-parts", "files"], indirect=True)
def test_a_source_that_takes_branches_for_level_loses_nothing(
    apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    lags: Callable[..., bool] = _level
    apart.flaky("odd")
    apart.flag.write_text("task")
    with pytest.raises(TransientError, match="was suspended"):
        apart.some(6)
    apart.flag.unlink(missing_ok=True)
    session: SourceSession = apart.source.declare().open("f")
    monkeypatch.setattr(type(session), "lags", lags)
    session.close()
    apart.drain()
    apart.expect(41)
