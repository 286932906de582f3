"""Two attempts of one task at the same time: one of them counts, and the flow goes on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import devservers
from dataflow_assets.connectors.kafka.cluster import Cluster
from dataflow_assets.connectors.kafka.producer import KafkaTransaction
from dataflow_assets.connectors.kafka.sink.checkpoint_records import producer_of
from dataflow_assets.contracts import OffsetSlice, Receipt, Span
from tests.connectors.postgresql.driver import SOURCE, Place, chunk, start
from tests.contract.conftest import Case, numbered
from tests.contract.test_recreated import Draining, held

BRIEF = {"transaction.timeout.ms": 10_000}


@pytest.mark.parametrize("sink", ["kafka"], indirect=True)
def test_a_task_whose_producer_was_fenced_is_tried_again(
    sink_case: Case, kafka: devservers.Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink_case.source.seed(numbered(1, 9))
    flow = sink_case.flow()
    target = flow.target(flow.branches[0])
    with held(monkeypatch, tmp_path, "kafka.before-commit") as wait:
        draining = Draining(sink_case.reports())
        wait(draining)
        for partition in ("0", "1"):  # what a second attempt of either task begins with
            KafkaTransaction(
                Cluster(kafka.bootstrap), producer_of(target, partition), BRIEF
            ).close()
    assert draining.ended() is None
    sink_case.expect(numbered(1, 9))
    assert sink_case.totals().rows == 8


@pytest.fixture
def place(postgresql: devservers.PostgreSQL, schema: str) -> Place:
    place = Place(postgresql.dsn(), schema)
    place.run("CREATE TABLE orders (id bigint)")
    return place


@pytest.mark.parametrize("first_commits", [True, False], ids=["commits", "dies"])
def test_of_two_attempts_at_a_slice_one_stores_rows_in_postgresql(
    place: Place, first_commits: bool
) -> None:
    sink = place.sink()
    session = start(sink)
    piece = OffsetSlice("0", 0, 10)
    span, ticket = session.begin(Span((piece,))), session.ticket()
    rows = chunk(ticket, [{"id": number} for number in range(10)])
    first, second = sink.writer(ticket, piece), sink.writer(ticket, piece)
    found: list[Receipt] = []

    def late() -> None:
        second.write(rows)  # waits for the first, which has the partition's row
        found.append(second.close(complete=False))

    first.write(rows)
    attempt = threading.Thread(target=late)
    attempt.start()
    attempt.join(0.3)
    assert attempt.is_alive()
    if first_commits:
        found.append(first.close(complete=False))
    else:
        first.abort()
    attempt.join(30)
    assert [receipt.position for receipt in found] == [10] * len(found)
    assert sum(receipt.totals.rows for receipt in found) == 10
    assert session.finish(span, found, SOURCE).totals.rows == 10
    assert place.rows() == [(number,) for number in range(10)]
    session.close()
