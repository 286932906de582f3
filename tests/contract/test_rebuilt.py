"""A target of the same name that is another one: nothing is filled anew unless a person says so.

And `table: truncate`, which takes out no row of another flow. On the sessions of the sinks.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from dataflow_assets.contracts import Run, SinkSession
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.runs.request import Start
from dataflow_assets.runs.start_positions import settle
from tests.contract.drivers import MemoryOffsets, Row, SinkDriver

ROWS: list[Row] = [(1, "a"), (2, "b")]
STOOD = {"0": 3, "1": 4}
BEGINNING = {"0": 0, "1": 0}


class Settling:
    """One flow into the target, opened and settled as a run does, without Spark."""

    def __init__(self, request: pytest.FixtureRequest, sink: SinkDriver, name: str) -> None:
        self.flow = Flow(
            "contract",
            f"{name}-{uuid.uuid4().hex[:8]}",
            MemoryOffsets(request).declare(),
            (Branch(sink.declare()),),
            hash="h1",
        )

    @property
    def branch(self) -> Branch:
        return self.flow.branches[0]

    @contextmanager
    def open(self) -> Iterator[SinkSession]:
        target = self.flow.target(self.branch)
        with closing(self.branch.sink.open(target, Run())) as session:
            yield session

    def settle(self, start: Start | None = None) -> dict[str, object]:
        """Where the flow stands then, as the next run finds it."""
        source = self.flow.source.open(self.flow.id)
        with closing(source), self.open() as session:
            settle(self.flow, self.branch, source, session, start or Start())
        with self.open() as session:
            assert session.checkpoint.target == session.table.identity
            return dict(session.checkpoint.positions)

    def stand(self) -> None:
        """It has come to STOOD."""
        source = self.flow.source.open(self.flow.id)
        with closing(source), self.open() as session:
            session.restart(STOOD, source.identity)


@pytest.fixture
def settling(request: pytest.FixtureRequest, sink: SinkDriver) -> Settling:
    return Settling(request, sink, "first")


def test_a_rebuilt_table_that_holds_rows_waits_for_a_person(
    settling: Settling, sink: SinkDriver
) -> None:
    settling.stand()
    sink.rebuild(ROWS)
    for _ in range(2):  # what is not decided stays undecided
        with pytest.raises(PermanentError) as caught:
            settling.settle()
    assert f"flow {settling.flow.id}" in str(caught.value)
    assert "another table now" in str(caught.value) or "another topic now" in str(caught.value)
    assert "--table adopt" in str(caught.value)
    assert "--from earliest --table truncate" in str(caught.value)
    assert sink.rows() == ROWS


def test_a_rebuilt_table_is_adopted_when_a_person_says_so(
    settling: Settling, sink: SinkDriver
) -> None:
    settling.stand()
    sink.rebuild(ROWS)
    assert settling.settle(Start(table="adopt")) == STOOD
    assert settling.settle() == STOOD
    assert settling.settle(Start(table="adopt")) == STOOD  # what is known already
    assert sink.rows() == ROWS


def test_a_rebuilt_table_is_begun_again_when_a_person_says_so(
    settling: Settling, sink: SinkDriver
) -> None:
    settling.stand()
    sink.rebuild(ROWS)
    assert settling.settle(Start("earliest", table="truncate")) == BEGINNING
    assert sink.rows() == []


def test_an_empty_table_in_its_place_is_filled_anew(
    settling: Settling, sink: SinkDriver, caplog: pytest.LogCaptureFixture
) -> None:
    settling.stand()
    sink.rebuild([])
    assert settling.settle() == BEGINNING
    assert "and empty: starting over" in caplog.text


def test_only_the_checkpoint_adopts(settling: Settling) -> None:
    settling.stand()
    with pytest.raises(PermanentError, match="table: adopt goes on from the checkpoint"):
        settling.settle(Start("earliest", table="adopt", confirmed=True))
    assert settling.settle() == STOOD


def test_truncate_is_refused_while_another_flow_writes_to_the_table(
    request: pytest.FixtureRequest, settling: Settling, sink: SinkDriver
) -> None:
    other = Settling(request, sink, "other")
    sink.rebuild(ROWS)
    settling.stand()
    other.stand()
    with pytest.raises(PermanentError) as caught:
        settling.settle(Start("earliest", table="truncate"))
    assert f"flow {settling.flow.id}" in str(caught.value)
    assert other.flow.id in str(caught.value)
    assert "dataflow reset" in str(caught.value)
    assert sink.rows() == ROWS
    assert settling.settle() == STOOD
    assert other.settle() == STOOD
    with other.open() as session:
        session.forget()
    assert settling.settle(Start("earliest", table="truncate")) == BEGINNING
    assert sink.rows() == []


def test_a_flow_that_wrote_into_the_table_before_it_was_rebuilt_is_none_of_its_flows(
    request: pytest.FixtureRequest, settling: Settling, sink: SinkDriver
) -> None:
    """It is asked itself when it runs next."""
    other = Settling(request, sink, "other")
    other.stand()
    sink.rebuild(ROWS)
    settling.stand()
    assert settling.settle(Start("earliest", table="truncate")) == BEGINNING
    assert sink.rows() == []
