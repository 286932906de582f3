"""Flows as one graph: shared tables, cycles, what only others write."""

from __future__ import annotations

from dataflow_assets.assets import graph
from dataflow_assets.connectors.memory import MemoryOffsetSource, MemorySliceSink
from dataflow_assets.flow import Branch, Flow


def flow(name: str, topic: str, *tables: str) -> Flow:
    source = MemoryOffsetSource(store="s", topic=topic)
    branches = tuple(Branch(MemorySliceSink(store="s", table=table)) for table in tables)
    return Flow("default", name, source, branches)


def key(name: str, *more: str) -> tuple[str, ...]:
    return ("memory", "s", name, *more)


def test_a_topic_that_nobody_writes_is_external() -> None:
    built = graph.build([flow("a", "orders", "copy"), flow("b", "copy", "end")])
    assert set(built.topics) == {key("orders")}
    assert [(node.source, node.key) for node in built.nodes] == [
        (key("orders"), key("copy")),
        (key("copy"), key("end")),
    ]


def test_several_flows_into_one_table_get_a_key_each() -> None:
    built = graph.build([flow("b", "two", "t"), flow("a", "one", "t")])
    assert set(built.tables) == {key("t")}
    assert [node.key for node in built.writers(key("t"))] == [key("t", "a"), key("t", "b")]


def test_the_edge_that_closes_a_cycle_is_left_out() -> None:
    built = graph.build([flow("b", "y", "x"), flow("a", "x", "y"), flow("c", "y", "z")])
    assert {node.flow.name: node.source for node in built.nodes} == {
        "a": key("x"),
        "b": None,
        "c": key("y"),
    }


def test_a_topic_rewritten_in_place_is_a_cycle_of_one() -> None:
    (node,) = graph.build([flow("a", "x", "x")]).nodes
    assert node.source is None


def test_each_branch_is_a_node() -> None:
    built = graph.build([flow("a", "x", "y", "z")])
    assert [node.key for node in built.of(built.nodes[0].flow)] == [key("y"), key("z")]


def test_the_order_of_flows_does_not_matter() -> None:
    flows = [flow("b", "y", "x"), flow("a", "x", "y"), flow("c", "y", "z")]
    assert graph.build(flows) == graph.build(flows[::-1])
