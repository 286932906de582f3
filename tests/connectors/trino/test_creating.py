"""Tables that several tasks or flows create at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

import pytest

import devservers
from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.rejected.error_sink import BESIDE, store
from dataflow_assets.connectors.trino.table import stage
from dataflow_assets.connectors.trino.table.checkpoint_table import TrinoCheckpointTable
from dataflow_assets.connectors.trino.table.table import TrinoPlace
from dataflow_assets.contracts import OffsetSlice, Rejection, Target
from dataflow_assets.sdk.record_ids import place_of
from tests.connectors.trino.driver import execute

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

AT_ONCE = 6


@pytest.fixture
def sink(trino: devservers.Trino, trino_schema: str) -> TrinoSink:
    config = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    return TrinoSink.model_validate(config)


def at_once(sink: TrinoSink, work: Callable[[TrinoClient, int], object]) -> None:
    """Each in a thread with a client of its own, all of which begin together."""
    ready = Barrier(AT_ONCE)

    def one(number: int) -> None:
        with closing(TrinoClient(sink, "tests")) as client:
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
    def work(client: TrinoClient, number: int) -> None:
        piece = OffsetSlice(str(number), 0, 5)
        store(client, sink, target(0), piece, [Rejection(0, "sink", "refused", b"{}")])

    at_once(sink, work)
    found = execute(trino, f"SELECT count(DISTINCT id) FROM lake.{trino_schema}.target_rejected")
    assert found == [[AT_ONCE]]


EARLIER = (
    "id varchar, flow varchar, reason varchar, error varchar, original_message varchar, "
    "_metadata varchar, reading bigint, replayed boolean, created_at timestamp(6)"
)


@pytest.mark.parametrize("columns", [EARLIER, ""], ids=["earlier", "new"])
def test_a_table_of_rejected_records_of_either_version_keeps_and_gives_back(
    sink: TrinoSink, trino: devservers.Trino, trino_schema: str, columns: str
) -> None:
    place = f"lake.{trino_schema}.target_rejected"
    if columns:
        execute(trino, f"CREATE TABLE {place} ({columns})")
    refused = [Rejection(n, "sink", "no \0", b"\xff\0", n=1, key=b"key", rows=3) for n in (10, 9)]
    with closing(TrinoClient(sink, "tests")) as client:
        store(client, sink, target(0), OffsetSlice("0", 0, 20), refused)
        store(client, sink, target(0), OffsetSlice("0", 0, 20), refused[:1])
    kept, found = sink.rejected_entries(), sink.rejected_entries().pending("ns/0", None, 10)
    assert sorted(place_of(one.id) or ("", 0) for one in found) == [("0", 9), ("0", 10)]
    assert {(one.body, one.key, one.n, one.rows, one.reading) for one in found} == {
        (b"\xff\0", b"key", 1, 3, 0)
    }
    kept.mark_replayed(found[:1])
    assert kept.pending("ns/0", None, 10) == found[1:]
    assert kept.pending("ns/other", None, 10) == []
    names = {name for name, *_ in execute(trino, f"DESCRIBE {place}")}
    assert names == ({text.split()[0] for text in EARLIER.split(", ")} if columns else set(BESIDE))


def test_tasks_that_need_the_stage_at_once(sink: TrinoSink) -> None:
    place = TrinoPlace("lake", sink.place()[0], stage.name("b", 1, "u"))
    at_once(sink, lambda client, _: stage.create(client, place))


def test_flows_that_need_the_table_of_checkpoints_at_once(sink: TrinoSink) -> None:
    at_once(sink, lambda client, n: TrinoCheckpointTable(client, sink, target(n)).create())
