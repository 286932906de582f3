"""A row that PostgreSQL refuses, with whatever code, is set aside; what all rows meet stops."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import devservers
from dataflow_assets.connectors.postgresql.sink import encode_copy, load, upsert_staging
from dataflow_assets.errors import Defect, PermanentError
from dataflow_assets.sdk import refused_rows
from tests.connectors.postgresql.driver import Place, start, store

TRIGGER = """
CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN new; END $$;
CREATE TRIGGER judge BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION judge()
"""
WAYS = {"append": {}, "upsert": {"upsertMode": True, "conflictKey": ["id"]}}
VALUES = [
    ("hstore", '"a"=>"1"', "a=>", "42601"),
    ("ltree", "a.b", "a..b", "42601"),
    ("tsvector", "a b", "'a", "42601"),
    ("tsquery", "a & b", "a &", "42601"),
    ("jsonpath", "$.a", "$.", "42601"),
    ("regclass", "pg_class", "no_such_table", "42P01"),
    ("regtype", "int4", "no_such_type", "42704"),
    ("regproc", "now", "no_such_function", "42883"),
]


@pytest.fixture(params=WAYS)
def place(postgresql: devservers.PostgreSQL, schema: str, request: Any) -> Place:
    return Place(postgresql.dsn(), schema, options=dict(WAYS[request.param]))


@pytest.fixture
def role(place: Place) -> Iterator[str]:
    """A role that owns nothing."""
    name = f"poison_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        connection.execute(f"GRANT ALL ON SCHEMA {place.schema} TO {name}".encode())
        yield name
        connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


def of(place: Place, role: str) -> Place:
    return replace(place, dsn=make_conninfo(place.dsn, user=role))


def stored(place: Place, values: list[Any], **options: Any) -> None:
    records = [{"id": number, "v": value} for number, value in enumerate(values)]
    store(place.sink(**options), records).close()


def outcome(place: Place) -> tuple[list[int], list[int]]:
    """The ids in the table, and the offsets of the rejected records."""
    return [row[0] for row in place.rows("id")], [row[0] for row in place.rejected()]


@pytest.mark.parametrize(("kind", "good", "bad", "code"), VALUES, ids=lambda value: str(value)[:9])
def test_a_text_that_is_no_value_of_its_type(
    place: Place, kind: str, good: str, bad: str, code: str
) -> None:
    if kind in {"hstore", "ltree"}:
        place.run(f"CREATE EXTENSION IF NOT EXISTS {kind} SCHEMA public")
        kind = f"public.{kind}"
    place.run(f"CREATE TABLE orders (id bigint PRIMARY KEY, v {kind})")
    stored(place, [good, bad, good])
    assert outcome(place) == ([0, 2], [1])
    assert f"({code}, column v)" in place.rejected()[0][3]


def test_such_a_text_alone_in_its_micro_batch(place: Place) -> None:
    """Nothing else need come for the flow to go on: COPY says that it is the value."""
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v tsquery)")
    stored(place, ["a &"])
    assert outcome(place) == ([], [0])


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_code_of_a_triggers_own(place: Place, bad: int) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v text)")
    check = "IF new.v = 'bad' THEN RAISE 'not welcome' USING errcode = 'ZZ001'; END IF;"
    place.run(TRIGGER.format(body=check))
    stored(place, ["bad" if number == bad else "ok" for number in range(3)])
    assert outcome(place) == ([n for n in range(3) if n != bad], [bad])
    assert "not welcome (ZZ001)" in place.rejected()[0][3]


def test_a_triggers_own_code_alone_in_its_micro_batch(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v text)")
    place.run(TRIGGER.format(body="RAISE 'not welcome' USING errcode = 'ZZ001';"))
    stored(place, ["bad"])
    assert outcome(place) == ([], [0])


def test_a_statement_of_a_trigger_that_fails_at_some_rows(place: Place) -> None:
    """By the code alone it could be that a table is missing, for all rows."""
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v text); CREATE TABLE audit_a (id int)")
    body = f"EXECUTE format('INSERT INTO {place.schema}.%I VALUES (1)', 'audit_' || new.v);"
    place.run(TRIGGER.format(body=body))
    stored(place, ["a", "b", "a", "c"])
    assert outcome(place) == ([0, 2], [1, 3])
    assert 'relation "' in place.rejected()[0][3]


def test_many_rows_at_the_beginning_that_are_refused(place: Place) -> None:
    """What is stored lies behind them."""
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v text); CREATE TABLE audit_a (id int)")
    body = f"EXECUTE format('INSERT INTO {place.schema}.%I VALUES (1)', 'audit_' || new.v);"
    place.run(TRIGGER.format(body=body))
    stored(place, [*["b"] * 100, *["a"] * 100])
    assert outcome(place) == (list(range(100, 200)), list(range(100)))


def test_more_refusals_than_are_waited_for_with_good_rows_behind(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at the rows behind leaves nothing in the table: each good row is inserted once."""
    monkeypatch.setattr(refused_rows, "HALVED", 32)
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v text, n serial)")
    place.run("CREATE TABLE seen (id bigint)")
    check = "IF new.v = 'bad' THEN RAISE 'not welcome' USING errcode = 'ZZ001'; END IF;"
    place.run(TRIGGER.format(body=f"{check} INSERT INTO {place.schema}.seen VALUES (new.id);"))
    stored(place, [*["bad"] * 40, *["ok"] * 60])
    assert outcome(place) == (list(range(40, 100)), list(range(40)))
    assert place.rows("id", "seen") == [(n,) for n in range(40, 100)]


def test_rows_that_were_never_tried_are_not_left_behind(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first load of the slice gives up; a later one meets a doubt, and stores rows."""
    monkeypatch.setattr(load, "ENOUGH_ROWS", 60)
    monkeypatch.setattr(load, "FOLDED_BYTES", 1)
    monkeypatch.setattr(refused_rows, "HALVED", 32)
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v text)")
    check = "IF new.v = 'bad' THEN RAISE 'not welcome' USING errcode = 'ZZ001'; END IF;"
    place.run(TRIGGER.format(body=check))
    first = [{"id": n, "v": "bad"} for n in range(60)]
    later = [{"id": 60 + n, "v": "ok" if n else "bad"} for n in range(10)]
    with pytest.raises(PermanentError, match="not welcome"):
        store(place.sink(), first, later)
    assert outcome(place) == ([], [])


@pytest.mark.parametrize("rows", [1, 3, 500])
def test_what_every_row_meets_stops_with_the_first_of_them(place: Place, rows: int) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v text)")
    place.run(TRIGGER.format(body=f"INSERT INTO {place.schema}.audit VALUES (new.id);"))
    with pytest.raises(PermanentError) as caught:
        stored(place, ["a"] * rows)
    assert "orders, partition 0, offset 0: relation" in str(caught.value)
    assert "42P01" in str(caught.value)
    assert place.rows() == []


def test_a_right_that_is_missing_stops_at_once(place: Place, role: str) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v text)")
    place.run(f"GRANT ALL ON orders TO {role}")
    session = start(of(place, role).sink())
    place.run(f"REVOKE INSERT ON orders FROM {role}")
    with pytest.raises(PermanentError, match=r"permission denied for table orders \(42501\)"):
        store(of(place, role).sink(), [{"id": 1, "v": "a"}], session=session)
    session.close()


def test_a_row_policy(place: Place, role: str) -> None:
    place.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, v text);"
        "ALTER TABLE orders ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY mine ON orders USING (true) WITH CHECK (v <> 'bad');"
        f"GRANT ALL ON orders TO {role}"
    )
    if not place.options:
        with pytest.raises(PermanentError, match="COPY writes to no such table"):
            stored(of(place, role), ["a", "bad", "b"])
        return
    stored(of(place, role), ["a", "bad", "b"])
    assert outcome(place) == ([0, 2], [1])
    reason = place.rejected()[0][3]
    assert "row-level security policy" in reason
    assert "grant" not in reason


def test_a_mistake_of_an_encoder_at_one_row(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v text)")
    break_at(monkeypatch, lambda values: "bad" in values)
    stored(place, ["a", "bad", "b", "c"])
    assert outcome(place) == ([0, 2, 3], [1])
    assert "ArrowInvalid: beyond me" in place.rejected()[0][3]


def test_a_mistake_of_an_encoder_at_every_row(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, v text)")
    break_at(monkeypatch, bool)
    with pytest.raises(Defect, match="orders, partition 0, offset 0: ArrowInvalid: beyond me"):
        stored(place, ["a", "b"])
    assert place.rows() == []


def break_at(monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:
    """Rows with such values cannot be written by our code."""
    true = encode_copy.copy_rows

    def copy(link: Any, where: Any, fields: Any, rows: pa.RecordBatch) -> None:
        if broken(rows.column("v").to_pylist()):
            raise pa.ArrowInvalid("beyond me")
        true(link, where, fields, rows)

    monkeypatch.setattr(load, "copy_rows", copy)
    monkeypatch.setattr(upsert_staging, "copy_rows", copy)
