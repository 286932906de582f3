"""Fixtures of the contract suite: a flow of one source and one sink, drained on Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dataflow_assets.contracts import Limit, Run, Totals
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.request import Patience, Report, Request, Start
from tests.contract import CONNECTORS, SINKS, SOURCES, VARIANTS
from tests.contract.drivers import (
    MemoryOffsets,
    MemoryParts,
    OffsetSourceDriver,
    Row,
    SinkDriver,
    SourceDriver,
)

CHECKPOINT = Start()


@dataclass
class Case:
    """One flow under test."""

    source: SourceDriver
    sink: SinkDriver
    engine: SparkSession
    name: str
    limit: int = 1_000_000
    patience: float = 20

    def flow(self, **policies: object) -> Flow:
        rules = Policies(limit=Limit(records=self.limit), **policies)  # type: ignore[arg-type]
        branches = (Branch(self.sink.declare()),)
        return Flow("contract", self.name, self.source.declare(), branches, rules, hash="h1")

    def drain(self, start: Start = CHECKPOINT, **policies: object) -> list[Report]:
        return list(self.reports(start, **policies))

    def reports(self, start: Start = CHECKPOINT, **policies: object) -> Iterator[Report]:
        """A drain that waits between its commits."""
        order = Request(run=Run(), start=start, patience=Patience(self.patience, 0.01, 0.05))
        return drain(self.flow(**policies), lambda: self.engine, order)

    def expect(self, rows: list[Row]) -> None:
        """These rows, in this order within a partition where the sink keeps one."""
        assert self.sink.rows() == sorted(rows)
        if isinstance(self.source, OffsetSourceDriver):
            for sequence in self.sink.arrived():
                self._expect_order(sequence, rows, self.source.partitions)

    @staticmethod
    def _expect_order(sequence: list[Row], rows: list[Row], partitions: Mapping[int, int]) -> None:
        there = {*sequence}
        for partition in {*partitions.values()}:
            found = [row for row in sequence if partitions[row[0]] == partition]
            wanted = [row for row in rows if row in there and partitions[row[0]] == partition]
            assert found == wanted, f"partition {partition}"

    def totals(self) -> Totals:
        checkpoint = self.sink.declare().peek(self.flow().target(self.flow().branches[0]))
        assert checkpoint is not None
        return checkpoint.totals


MEMORY = "memory-"
PAIRS = [(source, sink) for source in sorted(SOURCES) for sink in sorted(SINKS)]


def _pairs(full: bool) -> list[tuple[str, str]]:
    """Each connector with both kinds of the other end, or with every one."""
    if full:
        return [*PAIRS, *((name, "memory-span") for name in CONNECTORS)]
    return [pair for pair in PAIRS if any(name.startswith(MEMORY) for name in pair)]


def _shared(pairs: Sequence[tuple[str, str]], full: bool) -> Iterator[tuple[str, str]]:
    """Those that two drivers may read at once; which sink of memory takes it is the same then."""
    for source, sink in pairs:
        if (SOURCES | CONNECTORS)[source].shared and (
            full or source.startswith(MEMORY) or sink == "memory-slice"
        ):
            yield source, sink


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every source and every sink, where a test does not name its own."""
    named = " ".join(str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize"))
    ends = [e for e in ("source", "sink") if e in metafunc.fixturenames and e not in named]
    if len(ends) == 2:
        pairs = _pairs(metafunc.config.getoption("--full"))
        if metafunc.definition.get_closest_marker("shared"):
            pairs = list(_shared(pairs, metafunc.config.getoption("--full")))
        metafunc.parametrize(("source", "sink"), pairs, indirect=True)
    for end in ends if len(ends) == 1 else ():
        metafunc.parametrize(end, sorted(SOURCES if end == "source" else SINKS), indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of VARIANTS only the laws of a drain are for `make test`."""
    for item in items:
        drains = item.path.name == "test_laws.py" and not item.get_closest_marker("crash")
        here = item.path.parent == Path(__file__).parent and not drains
        if here and isinstance(item, pytest.Function) and _is_variant(item):
            item.add_marker("full")


def _is_variant(item: pytest.Function) -> bool:
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(not VARIANTS.isdisjoint(v if isinstance(v, tuple) else [v]) for v in values)


@pytest.fixture
def source(request: pytest.FixtureRequest) -> SourceDriver:
    return (SOURCES | CONNECTORS)[request.param](request)


@pytest.fixture
def sink(request: pytest.FixtureRequest) -> SinkDriver:
    return SINKS[request.param](request)


@pytest.fixture
def case(source: SourceDriver, sink: SinkDriver, engine: SparkSession) -> Case:
    return Case(source, sink, engine, f"case-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def sink_case(request: pytest.FixtureRequest, sink: SinkDriver, engine: SparkSession) -> Case:
    return Case(MemoryOffsets(request), sink, engine, f"case-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def parts_case(request: pytest.FixtureRequest, sink: SinkDriver, engine: SparkSession) -> Case:
    return Case(MemoryParts(request), sink, engine, f"case-{uuid.uuid4().hex[:8]}")


def numbered(low: int, high: int) -> list[Row]:
    return [(number, f"name-{number}") for number in range(low, high)]
