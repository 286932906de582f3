"""Replays after the steps were changed: never another row than the one that was rejected."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dataflow_assets.connectors.memory import MemoryOffsetSource, MemorySliceSink, Store
from dataflow_assets.contracts import Entry, Rejects, Run
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.records.chain import Transformation
from dataflow_assets.runs.drain import drain
from dataflow_assets.runs.replay import replay
from dataflow_assets.runs.request import Patience, Request
from dataflow_assets.transforms.cast import Cast
from dataflow_assets.transforms.dedupe import Dedupe
from dataflow_assets.transforms.filter import Filter
from dataflow_assets.transforms.flatten import Flatten
from dataflow_assets.transforms.router import Router

FLATTEN = Transformation(Flatten.model_validate({"field": "items"}))
PAYING = Transformation(Filter.model_validate({"condition": "$.name != 'free'"}))
NOTHING = Transformation(Filter.model_validate({"condition": "$.name == 'x'"}))
FAILING = Transformation(Cast.model_validate({"spec": {"name": "int64"}}))
FIRST = Transformation(Dedupe.model_validate({"key": ["id"]}))
BAD = "$.name == 'bad'"
ITEMS = [{"id": 1, "name": "free"}, {"id": -2, "name": "bad"}, {"id": 3, "name": "paid"}]


def routed(condition: str) -> Transformation:
    routes = [{"condition": condition, "sink": {"type": "x", "config": {"a": 1}}}]
    return Transformation(Router.model_validate({"routes": routes}))


class Orders:
    """A message of three items, of which the table refuses the second."""

    def __init__(self, engine: SparkSession) -> None:
        self.engine = engine
        self.name = uuid.uuid4().hex
        self.store = Store(self.name)
        self.store.create()
        self.allowed: frozenset[int] = frozenset()
        self.steps: tuple[Transformation, ...] = (FLATTEN,)
        self.routes: tuple[str, ...] = ()

    @property
    def flow(self) -> Flow:
        branches = [Branch(self._sink("main"))]
        branches += [Branch(self._sink(f"to{n}"), routes=(r,)) for n, r in enumerate(self.routes)]
        source = MemoryOffsetSource(store=self.name, topic="t", partitions=1)
        policies = Policies(rejects=Rejects(), max_rejected_percent=100)
        return Flow("ns", "f", source, tuple(branches), policies, self.steps, hash="h")

    def _sink(self, table: str) -> MemorySliceSink:
        return MemorySliceSink(
            store=self.name,
            table=table,
            allowed=self.allowed,
            unknown_fields="ignore",
        )

    def drain(self, *messages: dict[str, Any]) -> None:
        self.store.produce("t", 0, [json.dumps(one).encode() for one in messages])
        order = Request(patience=Patience(5, 0.01, 0.05))
        list(drain(self.flow, lambda: self.engine, order))

    def replay(self) -> tuple[int, int, int]:
        (done,) = replay(self.flow, lambda: self.engine, Run())
        return done.entries, done.rows, done.rejected_again

    def ids(self, table: str = "main") -> list[int]:
        found = self.store.query("select row from rows where name = ?", table)
        return sorted(json.loads(row)["id"] for (row,) in found)

    def entry(self, branch: int = 0) -> Entry:
        (found,) = self.flow.branches[branch].sink.rejected_entries().pending("ns/f", None, 10)
        return found


@pytest.fixture
def empty(engine: SparkSession) -> Iterator[Orders]:
    orders = Orders(engine)
    yield orders
    orders.store.remove()


@pytest.fixture
def orders(empty: Orders) -> Orders:
    empty.drain({"items": ITEMS})
    assert empty.ids() == [1, 3]
    assert (empty.entry().n, empty.entry().rows) == (1, 3)
    empty.allowed = frozenset({-2})
    return empty


def test_as_many_records_as_before_and_the_same_one_goes_back(orders: Orders) -> None:
    assert orders.replay() == (1, 1, 0)
    assert orders.ids() == [-2, 1, 3]


CHANGED = {"one is filtered": (FLATTEN, PAYING), "no steps": (), "they fail": (FLATTEN, FAILING)}


@pytest.mark.parametrize("case", CHANGED)
def test_where_nobody_can_tell_which_record_it_was_it_waits_on(orders: Orders, case: str) -> None:
    first, orders.steps = orders.entry(), CHANGED[case]
    for attempt in (2, 3):
        assert orders.replay() == (1, 0, 1)
        assert orders.ids() == [1, 3]
        again = orders.entry()
        assert again.id == f"{first.id}#attempt-{attempt}.1"
        assert (again.stage, again.n, again.rows, again.body) == ("encode", 1, 3, first.body)
    orders.steps = (FLATTEN,)
    assert orders.replay() == (1, 1, 0)
    assert orders.ids() == [-2, 1, 3]


def test_the_reason_says_what_to_do(orders: Orders) -> None:
    orders.steps = (FLATTEN, PAYING)
    orders.replay()
    ((reason,),) = orders.store.query("select reason from rejected where id like '%attempt-2.1'")
    assert reason.startswith(
        "it was record 2 of 3 that its message became when it was rejected, and the steps make 2 of"
    )


def test_a_message_whose_records_are_all_filtered_is_done(orders: Orders) -> None:
    orders.steps = (FLATTEN, NOTHING)
    assert orders.replay() == (1, 0, 0)
    assert orders.ids() == [1, 3]
    assert orders.flow.branches[0].sink.rejected_entries().pending("ns/f", None, 10) == []


def test_a_message_that_was_one_record_goes_back_whole(empty: Orders) -> None:
    empty.steps = (PAYING,)
    empty.drain({"id": -1, "name": "bad", "items": [{"id": 5}, {"id": -6}, {"id": 7}]})
    assert (empty.ids(), empty.entry().rows) == ([], 1)
    empty.steps = (FLATTEN,)
    assert empty.replay() == (1, 2, 1)
    assert empty.ids() == [5, 7]
    assert (empty.entry().n, empty.entry().rows) == (1, 3)
    empty.allowed = frozenset({-6})
    assert empty.replay() == (1, 1, 0)
    assert empty.ids() == [-6, 5, 7]


def test_a_record_that_goes_into_another_branch_by_now_waits_on(empty: Orders) -> None:
    empty.steps, empty.routes = (FLATTEN, routed(BAD)), (BAD,)
    empty.drain({"items": ITEMS})
    assert (empty.ids(), empty.ids("to0"), empty.entry(1).n) == ([1, 3], [], 1)
    empty.allowed, empty.steps = frozenset({-2}), (FLATTEN,)
    assert empty.replay() == (1, 0, 1)
    empty.steps = (FLATTEN, routed(BAD))
    assert empty.replay() == (1, 1, 0)
    assert (empty.ids(), empty.ids("to0")) == ([1, 3], [-2])


def test_steps_that_fail_for_a_routed_record_do_not_lose_it(empty: Orders) -> None:
    empty.steps, empty.routes = (FLATTEN, routed(BAD)), (BAD,)
    empty.drain({"items": ITEMS})
    empty.allowed, empty.steps = frozenset({-2}), (FLATTEN, FAILING, routed(BAD))
    assert empty.replay() == (1, 0, 1)
    empty.steps = (FLATTEN, routed(BAD))
    assert empty.replay() == (1, 1, 0)
    assert (empty.ids(), empty.ids("to0")) == ([1, 3], [-2])


@pytest.mark.parametrize(("steps", "ids"), [((FLATTEN,), [-2, 1, 3]), ((), [1, 3])], ids=len)
def test_an_entry_of_an_earlier_version_goes_by_its_index(
    orders: Orders, steps: tuple[Transformation, ...], ids: list[int]
) -> None:
    orders.store.query("update errors set body = json_remove(body, '$.error.source.rows')")
    assert orders.entry().rows is None
    orders.steps = steps
    orders.replay()
    assert orders.ids() == ids


def test_entries_of_one_key_are_each_of_a_micro_batch_of_their_own(empty: Orders) -> None:
    empty.steps = (FIRST,)
    for name in ("first", "second"):
        empty.drain({"id": -2, "name": name})
    empty.allowed = frozenset({-2})
    assert empty.replay() == (2, 2, 0)
    assert empty.ids() == [-2, -2]


def test_inside_an_entry_steps_still_see_what_repeats(empty: Orders) -> None:
    empty.steps = (FLATTEN, FIRST)
    repeats = [{"id": -2, "name": "bad"}, {"id": -2, "name": "again"}, {"id": 3, "name": "paid"}]
    empty.drain({"items": repeats})
    assert empty.ids() == [3]
    empty.allowed = frozenset({-2})
    assert empty.replay() == (1, 1, 0)
    assert empty.ids() == [-2, 3]
