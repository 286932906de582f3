"""A message that was rejected before and after a rewind is put back once, whatever the stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dataflow_assets import failpoints
from dataflow_assets.connectors.memory import MemorySliceSink, MemorySpanSink
from dataflow_assets.contracts import Address, Rejection
from dataflow_assets.flow import Flow
from dataflow_assets.sdk.rejected_records import error_record
from tests.runs.test_replaying import SLICE, TRUNCATE, Stores


class Loosened(Stores):
    """The flow's first table, which rejects unknown keys until a person allows them."""

    unknown: Any = "reject"

    @property
    def flow(self) -> Flow:
        flow = super().flow
        branch = flow.branches[0]
        assert isinstance(branch.sink, MemorySliceSink | MemorySpanSink)
        sink = branch.sink.model_copy(update={"unknown_fields": self.unknown})
        return replace(flow, branches=(replace(branch, sink=sink),))


class Hidden(MemorySliceSink):
    """Its table is named by a Secret: entries know it by what the Secret holds."""

    def address(self) -> Address:
        return replace(super().address(), name="secret/key")

    def resolved_address(self) -> Address:
        return super().address()


@pytest.fixture(params=[MemorySliceSink, MemorySpanSink, Hidden])
def one(engine: SparkSession, request: pytest.FixtureRequest) -> Iterator[Loosened]:
    stores = Loosened(engine)
    stores.branched = False
    stores.kinds = [request.param, MemorySpanSink]
    yield stores
    stores.remove()
    failpoints.arm(None)


def test_rejected_by_decoding_and_then_by_the_table(one: Loosened) -> None:
    one.stores[0].produce("topic", 0, [b'{"id": 1}', b'{"id": -2, "more": 1}'])
    one.drain()
    assert (one.ids(0), one.waiting()) == ([1], 1)  # decoding has rejected it
    one.unknown = "ignore"
    one.drain(TRUNCATE)  # and now the table does
    assert one.ids(0) == [1]
    one.allowed = frozenset({-2})
    assert one.replay() == [(1, 1, 0)]
    assert one.ids(0) == [-2, 1]
    assert one.waiting() == 0


def test_of_a_branch_that_alone_began_again_it_is_put_back_once(engine: SparkSession) -> None:
    """Decoding has rejected it for both; then the first branch read it again by itself."""
    two = Stores(engine)
    try:
        for reading, stage in ((1, "decode"), (2, "sink")):
            _reject(two, stage, reading)
        two.replay()
        assert two.replay() == []
        assert (two.ids(0), two.ids(1)) == ([7], [7])
    finally:
        two.remove()


def _reject(two: Stores, stage: str, reading: int) -> None:
    flow = two.flow
    branch = flow.branches[0]
    target = replace(flow.target(branch), source_id="topic-1", reading=reading)
    found = Rejection(5, stage, "", b'{"id": 7, "name": "a"}')
    kept = branch.sink.rejected_entries()
    kept.store([error_record(target, SLICE, found)])  # type: ignore[attr-defined]
