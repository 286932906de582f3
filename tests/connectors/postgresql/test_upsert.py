"""Upserts into PostgreSQL: one row per key, as if records were applied one after another."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import devservers
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.sink import copy_new_keys
from dataflow_assets.contracts import DELETE, OP, UPDATE
from dataflow_assets.errors import PermanentError
from tests.connectors.postgresql.driver import Place, start, store


@pytest.fixture(params=["few", "many"])
def place(
    postgresql: devservers.PostgreSQL,
    schema: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Place:
    """`many`: every upsert is taken for a large one of new keys, after a look at its first row."""
    if request.param == "many":
        monkeypatch.setattr(copy_new_keys, "LEAST", 1)
        monkeypatch.setattr(copy_new_keys, "SAMPLE", 1)
        monkeypatch.setattr(copy_new_keys, "PAUSE", 0)
    return Place(postgresql.dsn(), schema, options={"upsertMode": True})


def test_the_last_row_of_a_key_wins(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, name text)")
    session = store(
        place.sink(), [{"id": 2, "name": "a"}, {"id": 1, "name": "b"}], [{"id": 2, "name": "c"}]
    )
    assert place.rows() == [(1, "b"), (2, "c")]
    store(place.sink(), [{"id": 1, "name": None}, {"id": 3}], session=session)
    assert place.rows() == [(1, None), (2, "c"), (3, None)]
    assert session.checkpoint.totals.rows == 5
    session.close()


def test_absent_columns_are_filled_from_earlier_rows_and_left_alone_otherwise(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, a int DEFAULT 7, b int, c int)")
    session = store(place.sink(), [{"id": 1, "a": 1, "b": 1, "c": 1}])
    later: list[dict[str, Any]] = [
        {"id": 1, "b": 2},
        {"id": 1, "c": None},
        {"id": 2, "b": 5},
        {"id": 2, "c": 6},
    ]
    store(place.sink(), later, session=session)
    assert place.rows() == [(1, 1, 2, None), (2, 7, 5, 6)]
    session.close()


def test_a_row_without_a_required_column_updates_but_cannot_insert(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, name text NOT NULL, a int)")
    session = store(place.sink(), [{"id": 1, "name": "x", "a": 1}])
    store(place.sink(), [{"id": 1, "a": 2}, {"id": 2, "a": 3}], session=session)
    assert place.rows() == [(1, "x", 2)]
    ((offset, _, _, reason, _),) = place.rejected()
    assert offset == 2
    assert "23502" in reason
    session.close()


JUDGES = {
    "check": "w text CHECK (w IS NOT NULL)",
    "one of two": "w text, x text, CHECK (num_nonnulls(w, x) = 1)",
    "domain": "w given",
    "trigger": "w text",
    "computed": "w text, n text GENERATED ALWAYS AS (upper(w)) STORED NOT NULL",
}
_TRIGGER = """
CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF new.w IS NULL THEN RAISE 'no w'; END IF; RETURN new; END $$;
CREATE TRIGGER judge BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION judge()
"""


@pytest.mark.parametrize("options", [{}, {"upsertStrategy": "ifNewer"}], ids=["always", "newer"])
@pytest.mark.parametrize("judge", JUDGES)
def test_what_a_row_lacks_is_judged_by_the_stored_row(
    place: Place, judge: str, options: dict[str, Any]
) -> None:
    place.run("CREATE DOMAIN given AS text CHECK (value IS NOT NULL)")
    place.run(f"CREATE TABLE orders (id bigint PRIMARY KEY, a int, {JUDGES[judge]})")
    if judge == "trigger":
        place.run(_TRIGGER)
    sink = place.sink(**options, **({"upsertVersionColumn": "a"} if options else {}))
    session = store(sink, [{"id": 1, "a": 1, "w": "x"}])
    store(sink, [{"id": 1, "a": 2}, {"id": 2, "a": 3}], session=session).close()
    assert place.rows("id, a, w") == [(1, 2, "x")]
    assert [row[0] for row in place.rejected()] == [2]


@pytest.mark.parametrize("judge", ["w text CHECK (w IS NOT NULL)", "w text NOT NULL"])
def test_a_row_that_another_session_inserts_meanwhile_is_updated(
    place: Place, judge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two flows fill one row: neither may lose what it has because the other one was quicker."""
    place.run(f"CREATE TABLE orders (id bigint PRIMARY KEY, a int, {judge})")
    inserts, execute = ["INSERT INTO orders VALUES (1, 1, 'x')"], TextLink.execute

    def interrupted(link: TextLink, query: str, *parameters: object) -> Any:
        found = execute(link, query, *parameters)
        if " AS t SET " in query and inserts:
            place.run(inserts.pop())
        return found

    session = store(place.sink(), [{"id": 2, "a": 1, "w": "y"}])
    monkeypatch.setattr(TextLink, "execute", interrupted)
    store(place.sink(), [{"id": 1, "a": 2}, {"id": 2, "a": 3}], session=session).close()
    assert place.rows("id, a, w") == [(1, 2, "x"), (2, 3, "y")]
    assert place.rejected() == []


@pytest.mark.parametrize(
    "columns",
    [
        "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int",
        "a int, id int GENERATED ALWAYS AS (a + 1) STORED PRIMARY KEY",
    ],
)
def test_a_key_that_the_server_computes_is_refused(place: Place, columns: str) -> None:
    place.run(f"CREATE TABLE orders ({columns})")
    session = start(place.sink())
    with pytest.raises(PermanentError, match=r"fills column id .*SET GENERATED BY DEFAULT"):
        session.ticket()
    session.close()


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each statement's rows: did they go straight into the table?"""
    found: list[bool] = []
    load = copy_new_keys.DirectCopy.load

    def spy(self: copy_new_keys.DirectCopy, *arguments: Any) -> bool:
        found.append(load(self, *arguments))
        return found[-1]

    monkeypatch.setattr(copy_new_keys.DirectCopy, "load", spy)
    return found


def _orders(first: int, count: int, value: int = 0) -> list[dict[str, Any]]:
    return [{"id": i, "v": value} for i in range(first, first + count)]


def test_many_new_keys_go_straight_into_the_table(
    place: Place, attempts: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_new_keys, "LEAST", 100)
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v int)")
    session = store(place.sink(), _orders(0, 300))
    few, known = _orders(300, 99), _orders(300, 200, 1)
    store(place.sink(), few, session=session)
    store(place.sink(), known, session=session)
    assert attempts == [True, False, False]
    assert place.run("SELECT v, count(*) FROM orders GROUP BY v ORDER BY v") == [(0, 300), (1, 200)]
    session.close()


def test_a_wrong_guess_leaves_nothing_and_is_not_soon_repeated(
    place: Place, attempts: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"LEAST": 100, "SAMPLE": 2, "PAUSE": 2}.items():
        monkeypatch.setattr(copy_new_keys, name, value)
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v int CHECK (v < 2))")
    session = store(place.sink(), [{"id": 150, "v": 0}])
    known = [*_orders(100, 100, 1), {"id": 200, "v": 2}, *_orders(201, 50, 1)]
    straights = []
    for batch in (known, *[_orders(first, 100) for first in (1000, 2000, 3000)]):
        attempts.clear()
        store(place.sink(), batch, session=session)
        straights.append(any(attempts))
    assert straights == [False, False, False, True]
    assert place.rows()[:150] == [(i, 1) for i in range(100, 251) if i != 200]
    assert len(place.rows()) == 450
    assert [row[0] for row in place.rejected()] == [101]
    session.close()


def test_composite_keys_in_any_order_of_columns(place: Place) -> None:
    place.run("CREATE TABLE orders (v text, b int, a text, PRIMARY KEY (a, b))")
    rows = [{"a": a, "b": b, "v": f"{a}{b}{n}"} for n in range(3) for a in "yx" for b in (2, 1)]
    store(place.sink(conflictKey=["b", "a"]), rows).close()
    assert sorted(place.rows("a, b, v")) == [(a, b, f"{a}{b}2") for a in "xy" for b in (1, 2)]


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("numeric", "1.0", "1"),
        ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc999c0b4ef8bb6d6bb9bd380a11"),
        ("char(4)", "a", "a  "),
        ("interval", "1 day", "24:00:00"),
        ("inet", "10.0.0.1", "10.0.0.1/32"),
    ],
)
def test_two_spellings_of_one_key_are_one_row(
    place: Place, kind: str, one: str, other: str
) -> None:
    place.run(f"CREATE TABLE orders (id {kind} PRIMARY KEY, v int)")
    rows = [{"id": one, "v": 1}, {"id": other, "v": 2}, {"id": one, "v": 3}, {"id": other, "v": 4}]
    store(place.sink(), rows).close()
    assert place.rows("v") == [(4,)]
    store(place.sink(), [{"id": other, "v": 5}, {"id": one, "v": 6}]).close()
    assert place.rows("v") == [(6,)]
    assert place.rejected() == []


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("numeric", "123456789012345678901234567890", "123456789012345678901234567891"),
        ("interval", "1 day", "-1 day"),
        ("text[]", "{a}", "{A}"),
    ],
)
def test_keys_that_only_look_alike_are_two_rows(
    place: Place, kind: str, one: str, other: str
) -> None:
    place.run(f"CREATE TABLE orders (id {kind} PRIMARY KEY, v int)")
    store(place.sink(), [{"id": one, "v": 1}, {"id": other, "v": 2}]).close()
    assert sorted(place.rows("v")) == [(1,), (2,)]
    assert not place.rejected()


@pytest.mark.parametrize("number", ["1e1000000", "1e9999999999999999999", "-1e9999999999999999999"])
def test_a_key_beyond_every_number_is_refused_alone(place: Place, number: str) -> None:
    place.run("CREATE TABLE orders (id numeric PRIMARY KEY, v int)")
    store(place.sink(), [{"id": "7", "v": 1}, {"id": number, "v": 2}]).close()
    assert place.rows("v") == [(1,)]
    assert [row[0] for row in place.rejected()] == [1]


def test_soft_deletes_mark_and_keep_the_last_image(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v int, gone timestamptz)")
    sink = place.sink(softDeleteColumn="gone")
    session = store(sink, [{"id": 1, "v": 1}, {"id": 2, "v": 2}, {"id": 3, "v": 3}])
    rows = [
        {"id": 1, OP: DELETE},
        {"id": 2, "v": 20},
        {"id": 2, OP: DELETE},
        {"id": 9, OP: DELETE},
        {"id": 4, OP: DELETE},
        {"id": 4, "v": 4},
    ]
    store(sink, rows, session=session)
    marked = "id, v, gone IS NOT NULL"
    assert place.rows(marked) == [(1, 1, True), (2, 20, True), (3, 3, False), (4, 4, False)]
    store(sink, [{"id": 1, "v": 5}], session=session)
    assert place.rows(marked)[0] == (1, 5, False)
    assert place.rejected() == []
    session.close()


def test_hard_deletes_remove_and_forget(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v int, w int DEFAULT 7)")
    sink = place.sink(deleteMode="hard")
    session = store(sink, [{"id": i, "v": i, "w": i} for i in (1, 2, 3)])
    rows = [
        {"id": 1, OP: DELETE},
        {"id": 2, OP: DELETE},
        {"id": 2, "v": 9},
        {"id": 4, "v": 4},
        {"id": 4, OP: DELETE},
    ]
    store(sink, rows, session=session)
    assert place.rows() == [(2, 9, 7), (3, 3, 3)]
    session.close()


def test_a_delete_that_nothing_explains_is_rejected(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY)")
    store(place.sink(), [{"id": 1}, {"id": 1, OP: DELETE}]).close()
    assert place.rows() == [(1,)]
    assert "softDeleteColumn, or deleteMode: hard" in place.rejected()[0][3]


@pytest.mark.parametrize("kind", ["int", "numeric", "text", "timestamp"])
def test_if_newer_keeps_the_highest_version(place: Place, kind: str) -> None:
    from datetime import datetime

    def version(number: int) -> Any:
        if kind == "timestamp":
            return datetime(2026, 1, number)  # noqa: DTZ001 - a column without a zone
        return (
            number
            if kind == "int"
            else str(number).rjust(2, "0" if kind == "text" else " ").strip()
        )

    place.run(f"CREATE TABLE orders (id bigint PRIMARY KEY, version {kind}, v text)")
    sink = place.sink(upsertStrategy="ifNewer", upsertVersionColumn="version")

    def row(key: int, number: int | None, value: str) -> dict[str, Any]:
        return {"id": key, "version": version(number) if number else None, "v": value}

    session = store(sink, [row(1, 5, "a"), row(1, 10, "b"), row(1, 9, "c"), row(1, 10, "later")])
    assert place.rows("id, v") == [(1, "b")]
    more = [row(1, 9, "old"), row(2, 1, "x"), row(1, None, "none"), row(3, None, "first")]
    store(sink, more, session=session)
    assert place.rows("id, v") == [(1, "b"), (2, "x"), (3, "first")]
    store(sink, [row(1, 11, "new"), row(3, 1, "second")], session=session)
    assert place.rows("id, v") == [(1, "new"), (2, "x"), (3, "second")]
    session.close()


ROUNDS: dict[str, tuple[list[dict[str, Any]], list[tuple[int, str, int]], list[int]]] = {
    "a delete with all columns": (
        [
            {"id": 5, "version": "a", "v": 50, OP: UPDATE},
            {"id": 7, "version": "a", "v": 70, OP: DELETE},
            {"id": 7, "version": "a", "v": 71},
        ],
        [(5, "a", 50), (7, "a", 71)],
        [],
    ),
    "one key twice": (
        [
            {"id": 5, "version": "a", "v": 50},
            {"id": 7, "version": "a", "v": 70},
            {"id": 7, "version": "b", "v": 71},
        ],
        [(5, "a", 50), (7, "b", 71)],
        [],
    ),
    "a refused row of the other key": (
        [
            {"id": 5, "version": "a", "v": 50},
            {"id": 7, "version": "a", "v": 70},
            {"id": 7, "version": "b", "v": 100},
            {"id": 5, "version": "b", "v": 51},
        ],
        [(5, "b", 51), (7, "a", 70)],
        [2],
    ),
}


@pytest.mark.parametrize("kind", ROUNDS)
def test_if_newer_in_rounds(place: Place, kind: str) -> None:
    """Only the server orders the versions: each row of a key is a statement's, in its turn."""
    records, rows, rejected = ROUNDS[kind]
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, version text, v int CHECK (v < 100))")
    newer = {"upsertStrategy": "ifNewer", "upsertVersionColumn": "version", "deleteMode": "hard"}
    store(place.sink(**newer), records).close()
    assert place.rows() == rows
    assert [row[0] for row in place.rejected()] == rejected


def test_a_refused_last_row_does_not_take_the_earlier_ones_with_it(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v int CHECK (v < 100))")
    rows = [{"id": i % 10, "v": i} for i in range(102)]
    store(place.sink(), rows).close()
    assert place.rows() == [(i, 90 + i) for i in range(10)]
    assert [row[0] for row in place.rejected()] == [100, 101]
    assert place.rejected()[0][4] == "body 100"


def test_a_key_that_is_null_or_absent_is_rejected(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint UNIQUE, v int)")
    store(place.sink(conflictKey="id"), [{"id": None, "v": 1}, {"v": 2}, {"id": 3, "v": 3}]).close()
    assert place.rows() == [(3, 3)]
    assert [row[0] for row in place.rejected()] == [0, 1]


def test_only_the_key_does_nothing_twice(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY)")
    session = store(place.sink(), [{"id": 1}, {"id": 1}])
    store(place.sink(), [{"id": 1}], session=session).close()
    assert place.rows() == [(1,)]


def test_a_key_without_a_unique_index_names_the_statement_to_run(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint, a int, b int)")
    place.run("CREATE UNIQUE INDEX ON orders (id) WHERE a > 0")
    session = start(place.sink(conflictKey="id"))
    with pytest.raises(PermanentError, match=r'run: CREATE UNIQUE INDEX ON .*"orders" \("id"\)'):
        session.table.schema()
    session.close()
    session = start(place.sink())
    with pytest.raises(PermanentError, match="no primary key and the manifest no conflictKey"):
        session.table.schema()
    session.close()


MODES: dict[str, dict[str, Any]] = {
    "always": {},
    "soft": {"softDeleteColumn": "gone"},
    "hard": {"deleteMode": "hard"},
    "newer": {"upsertStrategy": "ifNewer", "upsertVersionColumn": "ver"},
    "newer-soft": {
        "upsertStrategy": "ifNewer",
        "upsertVersionColumn": "ver",
        "softDeleteColumn": "gone",
    },
    "newer-hard": {
        "upsertStrategy": "ifNewer",
        "upsertVersionColumn": "ver",
        "deleteMode": "hard",
    },
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("mode", MODES)
def test_one_commit_equals_the_records_one_by_one(place: Place, mode: str, seed: int) -> None:
    """The law of the fold, on random records with gaps, deletes and versions out of order."""
    columns = "(id bigint PRIMARY KEY, a int, b int DEFAULT 7, ver int, gone timestamptz)"
    place.run(f"CREATE TABLE one {columns}; CREATE TABLE many {columns}")
    records = list(
        _random_records(random.Random(f"{mode}{seed}"), "soft" in mode or "hard" in mode)
    )
    found = {}
    for table, batches in {"one": [records], "many": [[r] for r in records]}.items():
        place.table = table
        session = start(place.sink(**MODES[mode]))
        session.restart({"0": 0}, "t1")
        for batch in batches:
            store(place.sink(**MODES[mode]), batch, session=session)
        session.close()
        found[table] = place.rows("id, a, b, ver, gone IS NULL")
    assert found["one"] == found["many"]


def _random_records(dice: random.Random, deletes: bool) -> Iterator[dict[str, Any]]:
    for number in range(40):
        record: dict[str, Any] = {"id": dice.randrange(6)}
        for name in ("a", "b", "ver"):
            if dice.random() < 0.7:
                record[name] = dice.choice([None, number, dice.randrange(8)])
        if deletes and dice.random() < 0.2:
            record = {"id": record["id"], OP: DELETE}
        yield record
