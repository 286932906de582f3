from __future__ import annotations

import pytest

import devservers
from tests.postgresql_driver import Place, store


@pytest.fixture
def place(postgresql: devservers.PostgreSQL, schema: str) -> Place:
    return Place(postgresql.dsn(), schema)


def test_rows_and_checkpoint_arrive_together(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint, name text)")
    sink = place.sink()
    with_rows = store(
        sink, [{"id": 1, "name": "a"}, {"id": 2, "name": None}], [{"id": 3, "name": "c"}]
    )
    assert place.rows() == [(1, "a"), (2, None), (3, "c")]
    assert with_rows.checkpoint.positions == {"0": 3}
    assert with_rows.checkpoint.totals.rows == 3
    with_rows.close()


def test_the_last_row_of_a_key_wins(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, name text)")
    sink = place.sink(upsertMode=True)
    session = store(
        sink, [{"id": 2, "name": "a"}, {"id": 1, "name": "b"}], [{"id": 2, "name": "c"}]
    )
    assert place.rows() == [(1, "b"), (2, "c")]
    store(sink, [{"id": 1, "name": None}, {"id": 3}], session=session)
    assert place.rows() == [(1, None), (2, "c"), (3, None)]
    session.close()
