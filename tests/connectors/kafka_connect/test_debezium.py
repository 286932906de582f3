"""Debezium for PostgreSQL: snapshot, COPY and single rows, each once, whatever is killed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

import devservers
from dataflow_assets.connectors.kafka_connect.source.session import QUIET
from dataflow_assets.connectors.postgresql.cdc.position import Lsn
from dataflow_assets.connectors.postgresql.cdc.walsender import Walsender
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from tests.connectors.kafka_connect.debezium import Followed, followed
from tests.connectors.kafka_connect.driver import Flow
from tests.drained import drain_apart, drain_file, follow_apart, follow_file

pytestmark = [pytest.mark.heavy, pytest.mark.crash]


@pytest.fixture
def table(postgresql: devservers.PostgreSQL) -> Iterator[Followed]:
    with followed(postgresql) as table:
        yield table


def expect(flow: Flow, table: Followed) -> None:
    found = [(row["record"]["op"], row["record"]["after"]["id"]) for row in flow.rows]
    assert [number for _, number in found] == list(range(table.count))
    assert {op for op, _ in found} == {"r", "c"}


def drain_all(flow: Flow, table: Followed) -> None:
    """A run that has an end may come to it before the connector is warm."""
    if len(flow.rows) < table.count:
        assert follow_apart(flow.manifest, table.count) == 0
    assert drain_apart(flow.manifest) == 0  # nothing comes behind that


def test_each_row_once(table: Followed, tmp_path: Path) -> None:
    """The process is killed inside of the snapshot, then behind each part of the stream.

    The first of these parts ends with the first of two rows that share an entry of the log, the
    next ones inside of an entry of many rows.
    """
    flow = Flow(tmp_path, table.source(tmp_path), maxRecordsPerBatch=1_000)
    table.insert(2_500)
    assert drain_apart(flow.manifest, failpoint="connect.sealed:kill") == 1
    assert flow.rows == []
    assert follow_apart(flow.manifest, table.count) == 0
    expect_snapshot = [row["record"]["op"] for row in flow.rows]
    assert expect_snapshot == ["r"] * 2_500
    table.copy(1_102)
    table.copy(2_003, width=0)
    table.insert(100)
    drain_apart(flow.manifest, failpoint="connect.told:kill:1+")
    drain_all(flow, table)
    expect(flow, table)


@pytest.mark.full
def test_a_run_does_not_end_while_another_one_reads_the_slot(
    table: Followed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The connector only says that there is nothing: it tries again by itself."""
    flow = Flow(tmp_path, table.source(tmp_path))
    table.insert(10)
    drain_file(flow.manifest)
    table.insert(10)
    taken, over = Event(), Event()
    other = Thread(target=read_slot, args=(table, caplog, taken, over), daemon=True)
    other.start()
    assert taken.wait(60)
    with caplog.at_level(logging.INFO, "dataflow_assets"):
        drain_file(flow.manifest)
    over.set()
    other.join()
    assert "is active for PID" in caplog.text
    expect(flow, table)


def read_slot(table: Followed, caplog: pytest.LogCaptureFixture, taken: Event, over: Event) -> None:
    """Until the connector has met it, for longer than a quiet source keeps a run."""
    with closing(Walsender(table.server.dsn())) as sender:
        while not taken.is_set():  # the run before has let go of it a moment ago
            with suppress(PostgresqlFailure):
                sender.start(table.name, table.name, Lsn(0))
                taken.set()
        while not over.wait(0.2) and "is active for PID" not in caplog.text:
            pass
        over.wait(2 * QUIET)


@pytest.mark.full
def test_each_row_once_where_the_server_ends_its_connection(
    table: Followed, tmp_path: Path
) -> None:
    """The connector begins again by itself, and asks where it is; its process stays the same."""
    flow = Flow(tmp_path, table.source(tmp_path))
    table.insert(100)
    drain_file(flow.manifest)
    changes = Thread(target=change_and_interrupt, args=(table,))
    changes.start()
    follow_file(flow.manifest, 100 + 3 * 110)
    changes.join()
    drain_file(flow.manifest)
    expect(flow, table)


def change_and_interrupt(table: Followed) -> None:
    for _ in range(3):
        table.insert(50)
        table.copy(10)
        table.interrupt()
        table.insert(50)
