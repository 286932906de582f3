"""Constraints that look at other rows: a record is refused only where it would be by itself.

What a micro-batch comes to may break them though each of its records is fine in its turn: unique
values change hands, a row goes that another one has just ceased to refer to.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import devservers
from dataflow_assets.contracts import DELETE, OP
from tests.connectors.postgresql.driver import Place, store

PLAIN = "(id int PRIMARY KEY, u int UNIQUE)"
TWO = "(id int PRIMARY KEY, u int UNIQUE, v int, w int, UNIQUE (v, w))"
RANGES = "(id int PRIMARY KEY, u int4range, EXCLUDE USING gist (u WITH &&))"
FOREIGN = "(id int PRIMARY KEY, u int REFERENCES orders)"
HARD = {"deleteMode": "hard"}
Records = Sequence[dict[str, Any]]
Rows = list[tuple[Any, ...]]


@pytest.fixture
def place(postgresql: devservers.PostgreSQL, schema: str) -> Place:
    return Place(postgresql.dsn(), schema, options={"upsertMode": True})


def rows(*pairs: tuple[Any, ...], names: str = "id u v w") -> list[dict[str, Any]]:
    return [dict(zip(names.split(), pair, strict=False)) for pair in pairs]


def gone(id_: int) -> dict[str, Any]:
    return {"id": id_, OP: DELETE}


CASES: dict[str, tuple[str, Records, Records, Rows]] = {
    "a value changes hands": (
        *(PLAIN, rows((1, 1), (2, 2)), rows((1, 3), (2, 1), (1, 2))),
        [(1, 2), (2, 1)],
    ),
    "a swap by way of a third value": (
        *(PLAIN, rows((1, 1), (2, 2)), rows((1, 9), (2, 1), (1, 2))),
        [(1, 2), (2, 1)],
    ),
    "a swap by way of null": (
        *(PLAIN, rows((1, 1), (2, 2)), rows((1, None), (2, 1), (1, 2))),
        [(1, 2), (2, 1)],
    ),
    "a new row of a lower key takes it": (
        *(PLAIN, rows((2, 1)), rows((2, 9), (1, 1))),
        [(1, 1), (2, 9)],
    ),
    "a chain": (
        *(PLAIN, rows((1, 1), (2, 2), (3, 3)), rows((3, 4), (2, 3), (1, 2))),
        [(1, 2), (2, 3), (3, 4)],
    ),
    "taken behind a delete": (
        *(PLAIN, rows((1, 1)), [*rows((2, 2)), gone(1), *rows((2, 1), (1, 2))]),
        [(1, 2), (2, 1)],
    ),
    "two columns": (
        TWO,
        rows((1, 1, 1, 1), (2, 2, 2, 2)),
        rows((2, 3, 9, 9), (1, 2, 2, 2), (2, 1, 1, 1)),
        [(1, 2, 2, 2), (2, 1, 1, 1)],
    ),
    "partial rows": (
        TWO,
        rows((1, 1, 1, 1), (2, 2, 2, 2)),
        [{"id": 2, "u": 5}, {"id": 1, "u": 2}, {"id": 2, "v": 8}, {"id": 2, "u": 1}],
        [(1, 2, 1, 1), (2, 1, 8, 2)],
    ),
    "ranges": (
        *(RANGES, rows((1, "[1,5)"), (2, "[5,9)")), rows((2, "[20,30)"), (1, "[5,9)"))),
        [(1, "[5,9)"), (2, "[20,30)")],
    ),
    "a reference is dropped before its row": (
        *(FOREIGN, rows((1, None), (2, 1)), [*rows((2, None)), gone(1)]),
        [(2, None)],
    ),
}


@pytest.mark.parametrize(("columns", "before", "records", "after"), CASES.values(), ids=CASES)
def test_what_fits_in_its_turn_is_stored_in_one_batch(
    place: Place, columns: str, before: Records, records: Records, after: Rows
) -> None:
    place.run(f"CREATE TABLE orders {columns}")
    sink = place.sink(**HARD)
    session = store(sink, before)
    store(sink, records, session=session).close()
    names = [name for name in ("id", "u", "v", "w") if name in columns]
    texts = ", ".join(f"{n}::text" if "range" in columns and n == "u" else n for n in names)
    assert place.rows(texts) == after
    assert place.rejected() == []


def test_a_record_that_breaks_a_rule_in_its_turn_is_refused_alone(place: Place) -> None:
    place.run(f"CREATE TABLE orders {PLAIN}")
    session = store(place.sink(), rows((1, 1), (2, 2)))
    store(place.sink(), rows((1, 3), (2, 3), (2, 1), (1, 1), (3, 2)), session=session).close()
    assert place.rows() == [(1, 3), (2, 1), (3, 2)]
    assert [row[0] for row in place.rejected()] == [3, 5]
    assert all("orders_u_key" in row[3] for row in place.rejected())


def test_of_two_appended_rows_the_first_stays_whatever_columns_they_have(place: Place) -> None:
    place.run("CREATE TABLE orders (id int PRIMARY KEY, a int DEFAULT 7)")
    place.options = {}
    store(place.sink(), [{"id": 1, "a": 1}, {"id": 1}, {"id": 2}, {"id": 2, "a": 2}]).close()
    assert place.rows() == [(1, 1), (2, 7)]
    assert [row[0] for row in place.rejected()] == [1, 3]


MODES: dict[str, dict[str, Any]] = {
    "always": {},
    "hard": HARD,
    "soft": {"softDeleteColumn": "gone"},
    "newer": {"upsertStrategy": "ifNewer", "upsertVersionColumn": "ver"},
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", MODES)
def test_no_batch_refuses_what_single_records_do_not(place: Place, mode: str, seed: int) -> None:
    """A batch may take more: within it, what breaks a rule may be mended before it is stored.

    Until then both are the same. Where the batch has taken a record more, they may differ behind
    it, so the single records are compared up to there.
    """
    columns = "(id int PRIMARY KEY, u int UNIQUE, a int, ver int, gone timestamptz)"
    place.run(f"CREATE TABLE one {columns}; CREATE TABLE many {columns}")
    records = list(_random_records(random.Random(f"{mode}{seed}"), mode in ("hard", "soft")))
    sizes = {"one": len(records), "many": 1}
    found, refused = {}, {}
    for table, size in sizes.items():
        place.table = table
        place.run("DROP TABLE IF EXISTS dataflow_checkpoint, dataflow_checkpoint_partition")
        place.run("DROP TABLE IF EXISTS dataflow_rejected")
        session = None
        for at in range(0, len(records), size):
            sink = place.sink(**MODES[mode])
            session = store(sink, records[at : at + size], session=session)
        found[table] = place.rows("id, u, a, ver, gone IS NULL")
        refused[table] = [row[0] for row in place.rejected()]
    if refused["one"] == refused["many"]:
        assert found["one"] == found["many"]
    else:
        first = next(at for at in refused["many"] if at not in refused["one"])
        assert [at for at in refused["one"] if at < first] == [
            at for at in refused["many"] if at < first
        ]


def _random_records(dice: random.Random, deletes: bool) -> Iterator[dict[str, Any]]:
    """Few values in many hands; a permutation now and then by way of null."""
    for number in range(30):
        record: dict[str, Any] = {"id": dice.randrange(4), "ver": number}
        if dice.random() < 0.8:
            record["u"] = dice.choice([None, *range(6)])
        if dice.random() < 0.5:
            record["a"] = number
        if deletes and dice.random() < 0.2:
            record = {"id": record["id"], OP: DELETE}
        yield record
