"""Flows as one graph: shared tables, cycles, what only others write."""

from __future__ import annotations

from dataclasses import replace

from pydantic import SecretStr

from dataflow_assets.assets import graph
from dataflow_assets.connectors.memory import MemoryOffsetSource, MemorySliceSink
from dataflow_assets.connectors.postgresql import PostgresqlSink
from dataflow_assets.contracts import Rejects
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.location.resources.io_managers import _connections, io_managers


def flow(name: str, topic: str, *tables: str, errors: str | None = None) -> Flow:
    source = MemoryOffsetSource(store="s", topic=topic)
    branches = tuple(Branch(MemorySliceSink(store="s", table=table)) for table in tables)
    sink = MemorySliceSink(store="s", table=errors) if errors else None
    policies = Policies(rejects=Rejects("errors", sink) if sink else Rejects())
    return Flow("default", name, source, branches, policies)


def key(name: str, *more: str) -> tuple[str, ...]:
    return ("memory", "s", name, *more)


def test_a_topic_that_nobody_writes_is_external() -> None:
    built = graph.build([flow("a", "orders", "copy"), flow("b", "copy", "end")])
    assert set(built.topics) == {key("orders")}
    assert [(node.source, node.key) for node in built.nodes] == [
        (key("orders"), key("copy")),
        (key("copy"), key("end")),
    ]


def test_a_query_stands_behind_what_its_manifest_names() -> None:
    named = {"dataflow-assets/upstream": "memory/s/copy, lake/shop/orders@live, memory/s/end"}
    joined = replace(flow("b", "joined", "end"), annotations=named)
    built = graph.build([flow("a", "orders", "copy"), joined])
    assert built.upstream == {key("joined"): (key("copy"), ("lake", "shop", "orders_live"))}
    assert {node.flow.name: node.source for node in built.nodes} == {
        "a": key("orders"),
        "b": key("joined"),
    }


def test_what_a_source_that_a_flow_writes_is_made_of_is_upstream_of_its_readers() -> None:
    named = {"dataflow-assets/upstream": "memory/s/customers"}
    reader = replace(flow("b", "copy", "end"), annotations=named)
    built = graph.build([flow("a", "orders", "copy"), reader])
    assert built.upstream == {key("end"): (key("customers"),)}


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


def test_flows_share_an_error_sink() -> None:
    flows = [flow("a", "x", "y", errors="bad"), flow("b", "x", "z", errors="bad")]
    built = graph.build([*flows, flow("c", "w", "v", errors="bad")])
    (errors,) = built.errors.values()
    assert set(built.errors) == {key("bad")}
    assert [one.name for one in errors.flows] == ["a", "b", "c"]
    assert errors.sources == (key("x"), key("w"))


def test_an_error_sink_that_a_flow_reads_or_writes_is_one_node() -> None:
    read = graph.build([flow("a", "x", "y", errors="bad"), flow("b", "bad", "seen")])
    assert set(read.topics) == {key("x")}
    assert set(read.errors) == {key("bad")}
    written = graph.build([flow("a", "x", "y", errors="z"), flow("b", "w", "z")])
    assert not written.errors


def test_the_edge_to_an_error_sink_closes_no_cycle() -> None:
    flows = [flow("a", "x", "y", errors="bad"), flow("b", "bad", "x")]
    (errors,) = graph.build(flows).errors.values()
    assert errors.sources == ()


def test_an_error_sink_can_be_read_where_no_flow_writes() -> None:
    errors = PostgresqlSink(
        connection_string=SecretStr("postgresql://u@nowhere/errors"), table="bad"
    )
    policies = Policies(rejects=Rejects("errors", errors, connection="shop-errors"))
    built = graph.build([replace(flow("a", "x", "y"), policies=policies)])
    assert set(built.errors) == {("postgresql", "shop_errors", "public", "bad")}
    _, sink, connection = _connections(built, "postgresql")["shop_errors"]
    assert sink is errors
    assert connection == "shop-errors"
    assert set(io_managers(built)) == {
        "memory",
        "postgresql",
        "clickhouse",
        "iceberg",
        "nessie",
        "trino",
    }
