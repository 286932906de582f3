"""A table that somebody drops or replaces under a run, at every moment that differs."""

from __future__ import annotations

import pytest

import devservers
from dataflow_assets.contracts import OffsetSlice, Receipt, Run, Span
from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from tests.connectors.postgresql.driver import TARGET, Place, chunk, start

MADE = "CREATE TABLE orders (id bigint PRIMARY KEY)"
DROPPED = (
    r"table s_\w+\.orders of postgresql/\S+ was dropped while the flow ran; create it again, or "
    r"set autoCreateTable: true: the next run fills it from the start$"
)
RECORDS = [{"id": number} for number in range(3)]

# An upsert's temporary table has locked the target by then.
append = pytest.mark.parametrize("place", [False], ids=["append"], indirect=True)


@pytest.fixture(params=[False, True], ids=["append", "upsert"])
def place(request: pytest.FixtureRequest, postgresql: devservers.PostgreSQL, schema: str) -> Place:
    place = Place(postgresql.dsn(), schema, options={"upsertMode": request.param})
    place.run(MADE)
    return place


def slice_during(place: Place, first: str = "", between: str = "") -> Receipt:
    """One slice; statements run before it, and between its look at the table and its first row."""
    sink = place.sink()
    session = start(sink)
    piece = session.begin(Span((OffsetSlice("0", 0, 4),))).slices[0]
    ticket = session.ticket()
    session.close()
    writer = sink.writer(ticket, piece)
    try:
        place.run(f"SET lock_timeout = '5s'; {first}")
        writer.write(chunk(ticket, [], seen=1))
        place.run(f"SET lock_timeout = '5s'; {between}")
        writer.write(chunk(ticket, RECORDS, 1))
        return writer.close(False)
    finally:
        writer.abort()


def test_a_dropped_table_ends_the_run_with_what_to_do(place: Place) -> None:
    with pytest.raises(PermanentError, match=DROPPED):
        slice_during(place, first="DROP TABLE orders")


@append
def test_so_does_one_dropped_between_look_and_rows(place: Place) -> None:
    with pytest.raises(PermanentError, match=DROPPED):
        slice_during(place, between="DROP TABLE orders")


def test_a_replaced_table_is_begun_anew(place: Place) -> None:
    with pytest.raises(TransientError, match="was replaced by another one of its name"):
        slice_during(place, first=f"DROP TABLE orders; {MADE}")
    _expect_another(place)


@append
def test_so_is_one_replaced_between_look_and_rows(place: Place) -> None:
    with pytest.raises(DataflowError, match="was replaced by another one of its name"):
        slice_during(place, between=f"DROP TABLE orders; {MADE}")
    _expect_another(place)


def _expect_another(place: Place) -> None:
    """Nothing was stored in it, and the next session sees that it is another one."""
    assert place.rows() == []
    session = place.sink().open(TARGET, Run())
    assert session.checkpoint.positions == {"0": 0}
    assert session.checkpoint.target != session.table.identity
    session.close()
