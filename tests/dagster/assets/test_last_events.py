"""Which flow of a lane that ends comes next with its last events."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dataflow_assets.assets import flow_events, graph
from dataflow_assets.assets.flow_events import FlowEvents, LastEvents
from dataflow_assets.assets.metadata import QUIET_SECONDS
from dataflow_assets.contracts import Checkpoint, Lag, Totals
from dataflow_assets.flow import Flow
from dataflow_assets.runs.request import Report
from tests.dagster.assets.test_graph import flow


def _told(*flows: Flow) -> list[str]:
    """The names of the flows, in the order of their last events."""
    built, over = graph.build(flows), LastEvents()
    for one in flows:
        over.add(FlowEvents(built.of(one)))
    found = []
    while over:
        found.append(over.next().nodes[0].flow.name)
    return found


def test_a_table_comes_before_those_that_are_filled_from_it() -> None:
    """Also where it has many branches, and what is filled from it has one."""
    first, second = flow("first", "orders", "copy"), flow("second", "copy", "x", "y", "z")
    assert _told(flow("third", "z", "end"), second, first) == ["first", "second", "third"]


def test_flows_that_read_from_each_other_come_all_the_same() -> None:
    around = flow("around", "x", "y", "x"), flow("back", "y", "x")
    assert sorted(_told(*around)) == ["around", "back"]


def test_flows_that_end_later_come_where_they_belong() -> None:
    flows = flow("first", "orders", "copy"), flow("second", "copy", "end"), flow("other", "a", "b")
    built, over = graph.build(flows), LastEvents()
    first, second, other = (FlowEvents(built.of(one)) for one in flows)
    over.add(other)
    over.add(second)
    assert over.next() is other
    over.add(first)
    assert [over.next(), over.next()] == [first, second]


def test_all_flows_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, upstream = [], graph.upstream

    def counted(nodes: list[graph.AssetNode], node: graph.AssetNode) -> list[graph.AssetNode]:
        looks.append(node.key)
        return upstream(nodes, node)

    monkeypatch.setattr(graph, "upstream", counted)
    assert len(_told(*(flow(f"f{n}", f"a{n}", f"b{n}") for n in range(50)))) == 50
    assert len(looks) == 50


def test_the_check_of_rejected_records_passes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first answer comes with the first event, and another one with each turn."""
    now = [1_000.0]
    monkeypatch.setattr(flow_events, "time", SimpleNamespace(monotonic=lambda: now[0]))
    (node,) = graph.build([flow("first", "orders", "copy")]).nodes
    events, branch = FlowEvents([node]), node.branch

    def answers(rejected: int) -> list[bool]:
        delta = Totals(rows=1, rejected=rejected)
        events.take(
            Report(node.flow.id, branch, branch.address, Checkpoint(1), delta, Lag(0, 0.0, {}), 0.1)
        )
        return [one.passed for one in events.evaluations() if one.check_name == "rejected"]

    assert answers(1) == [False]
    now[0] += QUIET_SECONDS - 1
    assert answers(0) == []
    now[0] += 1
    assert answers(0) == [True]
    assert answers(2) == [False]
