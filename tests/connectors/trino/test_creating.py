"""Tables that several tasks or flows create at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

import pytest

import devservers
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import Client
from dataflow_assets.connectors.trino.rejected.table import store
from dataflow_assets.connectors.trino.table import stage
from dataflow_assets.connectors.trino.table.checkpoint_table import CheckpointTable
from dataflow_assets.connectors.trino.table.table import Place
from dataflow_assets.contracts import OffsetSlice, Rejection, Target
from tests.connectors.trino.driver import execute

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

AT_ONCE = 6


@pytest.fixture
def sink(trino: devservers.Trino, trino_schema: str) -> TrinoSink:
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    return TrinoSink.model_validate(config)


def at_once(sink: TrinoSink, work: Callable[[Client, int], object]) -> None:
    """Each in a thread with a client of its own, all of which begin together."""
    ready = Barrier(AT_ONCE)

    def one(number: int) -> None:
        with closing(Client(sink, "tests")) as client:
            client.run("SELECT 1")
            ready.wait(60)
            work(client, number)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, range(AT_ONCE)))


def target(number: int) -> Target:
    return Target(f"ns/{number}", f"trino:{number}", "h", "t")


def test_tasks_that_reject_their_first_records_at_once(
    sink: TrinoSink, trino: devservers.Trino, trino_schema: str
) -> None:
    def work(client: Client, number: int) -> None:
        piece = OffsetSlice(str(number), 0, 5)
        store(client, sink, target(0), piece, [Rejection(0, "sink", "refused", b"{}")])

    at_once(sink, work)
    found = execute(trino, f"SELECT count(DISTINCT id) FROM lake.{trino_schema}.target_rejected")
    assert found == [[AT_ONCE]]


def test_tasks_that_need_the_stage_at_once(sink: TrinoSink) -> None:
    place = Place("lake", sink.place()[0], stage.name("b", 1, "u"))
    at_once(sink, lambda client, _: stage.create(client, place))


def test_flows_that_need_the_table_of_checkpoints_at_once(sink: TrinoSink) -> None:
    at_once(sink, lambda client, n: CheckpointTable(client, sink, target(n)).create())
