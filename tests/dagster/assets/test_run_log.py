"""The log of a lane: an event has the lines of one flow, so that a filter shows no others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from dataflow_assets.assets.run_log import Lines
from dataflow_assets.connectors.memory import Store
from tests.dagster.flows import memory_flow

LOG = logging.getLogger("dataflow_assets.tests")


def within(name: str, work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work, name=f"flow default/{name}")
    thread.start()
    thread.join()


def test_lines_of_one_second_are_an_event_for_each_flow(store: Store) -> None:
    flows = {f"default/{name}": memory_flow(store, name) for name in ("orders", "orders-now")}
    lines = Lines(flows)
    with lines.collect():
        within("orders", lambda: LOG.info("flow default/orders stops"))
        within("orders-now", lambda: LOG.info("flow default/orders-now: is read"))
        within("orders", lambda: LOG.warning("a table is locked"))
        within("orders", lambda: LOG.info("goes on"))
        LOG.info("a job of all")
    said = ("stops", "a table is locked", "goes on")
    assert list(lines.take()) == [
        (logging.WARNING, "\n".join(f"flow default/orders: {text}" for text in said)),
        (logging.INFO, "flow default/orders-now: is read"),
        (logging.INFO, "a job of all"),
    ]
    assert list(lines.take()) == []


def test_of_many_flows_those_that_wait_longest_come_first() -> None:
    lines = Lines({})
    for name in "abc":
        lines.add(logging.INFO, name, "one")
    assert [text for _, text in lines.take(2)] == ["flow a: one", "flow b: one"]
    for name in "abc":
        lines.add(logging.INFO, name, "two")
    assert [text for _, text in lines.take(2)] == ["flow c: one\nflow c: two", "flow a: two"]
    assert [text for _, text in lines.take()] == ["flow b: two"]
