"""Appending to PostgreSQL: types, defaults, refused values."""

from __future__ import annotations

from datetime import date, time
from typing import Any

import pytest

import devservers
from dataflow_assets.connectors.postgresql.sink.writer import PostgresqlSliceStore
from dataflow_assets.contracts import OP, ChecksTarget, OffsetSlice, Rejection, Span
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.sdk import refused_rows
from tests.connectors.postgresql.driver import SOURCE, TARGET, Place, chunk, start, store, write


@pytest.fixture
def place(postgresql: devservers.PostgreSQL, schema: str) -> Place:
    return Place(postgresql.dsn(), schema)


def test_rows_and_checkpoint_arrive_together(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint, name text)")
    session = store(
        place.sink(), [{"id": 1, "name": "a"}, {"id": 2, "name": None}], [{"id": 3, "name": "c"}]
    )
    assert place.rows() == [(1, "a"), (2, None), (3, "c")]
    assert session.checkpoint.positions == {"0": 3}
    assert session.checkpoint.totals.rows == 3
    assert session.checkpoint.totals.bytes == 30
    assert session.checkpoint.committed_at is not None
    session.close()
    assert place.sink().peek(TARGET) == session.checkpoint


ALL_TYPES = {
    "b": ("boolean", True),
    "i2": ("smallint", -5),
    "i4": ("integer", 70_000),
    "i8": ("bigint", 2**62),
    "f4": ("real", 1.5),
    "f8": ("double precision", 0.1),
    "t": ("text", 'quote " comma , new\nline \\. é'),
    "e": ("text", ""),
    "v": ("varchar(3)", "äöü"),
    "c": ("char(3)", "ab"),
    "d": ("date", "2026-11-21"),
    "j": ("json", '{"a": 1}'),
    "jb": ("jsonb", '{"a":[1,null,"x"]}'),
    "u": ("uuid", "A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "mood": ("mood", "happy"),
    "n": ("numeric(20,4)", "12345678901234.5678"),
    "n0": ("numeric", "1.50"),
    "dom": ("positive", 3),
    "domj": ("document", '{"a": 1}'),
    "domu": ("identity", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "domn": ("price", "-0.50"),
}
TEXT_TYPES = {
    "ip": ("inet", "10.0.0.1/32"),
    "arr": ("text[]", '{a,"b c"}'),
    "iv": ("interval", "01:02:03"),
    "by": ("bytea", b"\x00\xff"),
    "tm": ("time", time(12, 34, 56)),
}


@pytest.mark.parametrize("with_text", [False, True], ids=["binary", "text"])
def test_every_type_is_stored_as_sent(place: Place, with_text: bool) -> None:
    place.run("CREATE TYPE mood AS ENUM ('sad', 'happy')")
    place.run("CREATE DOMAIN positive AS int CHECK (value > 0)")
    place.run("CREATE DOMAIN document AS jsonb")
    place.run("CREATE DOMAIN identity AS uuid")
    place.run("CREATE DOMAIN price AS numeric(12,2)")
    types = {"id": ("int", 1), **ALL_TYPES, **(TEXT_TYPES if with_text else {})}
    place.run(f"CREATE TABLE orders ({', '.join(f'{n} {t}' for n, (t, _) in types.items())})")
    values = {name: value for name, (_, value) in types.items()}
    session = start(place.sink())
    found = session.table.schema()
    assert found is not None
    assert found.metadata[b"dataflow.postgresql.driver"] == (b"text" if with_text else b"binary")
    nothing = dict.fromkeys(values) | {"id": 2}
    store(place.sink(), [_arrow(values), nothing], session=session)
    session.close()
    names = list(types)
    stored, empty = place.rows(", ".join(f"{name}::text" for name in names))
    shown = dict(zip(names, stored, strict=True))
    for name, (_, value) in types.items():
        assert shown[name] == _expected(name, value), name
    assert empty == ("2", *[None] * (len(names) - 1))


def _arrow(values: dict[str, object]) -> dict[str, object]:
    return {n: date.fromisoformat(str(v)) if n == "d" else v for n, v in values.items()}


def _expected(name: str, value: object) -> str:
    special = {
        "b": "true",
        "by": "\\x00ff",
        "jb": '{"a": [1, null, "x"]}',
        "u": str(value).lower(),
        "c": "ab",
    }
    return special.get(name, str(value))


def test_timestamps_keep_their_microseconds(place: Place) -> None:
    from datetime import UTC, datetime

    place.run("CREATE TABLE orders (a timestamptz, b timestamp)")
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    store(place.sink(), [{"a": moment, "b": moment.replace(tzinfo=None)}]).close()
    assert place.rows() == [(moment, moment.replace(tzinfo=None))]


@pytest.mark.parametrize("extra", ["", ", n inet"], ids=["binary", "text"])
def test_absent_columns_take_their_defaults_and_nulls_stay(place: Place, extra: str) -> None:
    place.run(f"CREATE TABLE orders (id bigint, a int DEFAULT 7, b int NOT NULL DEFAULT 8{extra})")
    store(place.sink(), [{"id": 1, "a": None, "b": 1}, {"id": 2}, {"id": 3, "b": 3}]).close()
    assert place.rows("id, a, b") == [(1, None, 1), (2, 7, 8), (3, 7, 3)]


def test_generated_columns_are_left_to_postgresql(place: Place) -> None:
    place.run(
        "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY, a int, "
        "twice int GENERATED ALWAYS AS (a * 2) STORED)"
    )
    store(place.sink(), [{"a": 4}, {"a": 5}]).close()
    assert place.rows() == [(1, 4, 8), (2, 5, 10)]


@pytest.mark.parametrize("extra", ["", ", n inet"], ids=["binary", "text"])
def test_refused_rows_are_set_aside_and_the_others_arrive(place: Place, extra: str) -> None:
    place.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY CHECK (id <> 40), v varchar(3), j jsonb"
        f"{extra})"
    )
    records = [{"id": i, "v": "ok", "j": "{}"} for i in range(100)]
    records[10] |= {"v": "too long"}
    records[20] |= {"v": "a\0b"}
    records[60] |= {"j": "{broken"}
    records[80] |= {"id": 3}
    session = store(place.sink(), records)
    wrong = {10, 20, 40, 60, 80}
    assert [row[0] for row in place.rows("id")] == [i for i in range(100) if i not in wrong]
    found = {row[0]: row for row in place.rejected()}
    assert set(found) == wrong
    assert "22001" in found[10][3]
    assert "column v" in found[10][3]
    assert "22021" in found[20][3]
    assert "constraint orders_id_check" in found[40][3]
    assert "22P02" in found[60][3]
    assert "constraint orders_pkey" in found[80][3]
    assert found[80][1:3] == (0, "sink")
    assert found[80][4] == "body 80"
    assert session.checkpoint.totals.rows == 95
    assert session.checkpoint.totals.rejected == 5
    session.close()


def test_a_constraint_checked_at_the_commit_is_found_all_the_same(place: Place) -> None:
    place.run("CREATE TABLE kinds (k int PRIMARY KEY); INSERT INTO kinds VALUES (1)")
    place.run(
        "CREATE TABLE orders (id bigint, k int REFERENCES kinds DEFERRABLE INITIALLY DEFERRED)"
    )
    store(place.sink(), [{"id": 1, "k": 1}, {"id": 2, "k": 2}, {"id": 3, "k": 1}]).close()
    assert place.rows("id") == [(1,), (3,)]
    assert "23503" in place.rejected()[0][3]


def test_a_trigger_that_raises_refuses_the_row(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint)")
    place.run(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF new.id = 2 THEN RAISE 'two is not welcome'; END IF; RETURN new; END $$"
    )
    place.run("CREATE TRIGGER no BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION no()")
    store(place.sink(), [{"id": i} for i in range(4)]).close()
    assert place.rows() == [(0,), (1,), (3,)]
    assert "two is not welcome" in place.rejected()[0][3]


def test_many_refusals_go_row_by_row(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_rows, "HALVED", 100)
    place.run("CREATE TABLE orders (id bigint CHECK (id % 2 = 0))")
    session = store(place.sink(), [{"id": i} for i in range(400)])
    assert place.rows("count(*)") == [(200,)]
    assert len(place.rejected()) == 200
    assert session.checkpoint.totals.rejected == 200
    session.close()


def test_rejections_of_the_decode_are_stored_once_with_their_bytes(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint)")
    sink = place.sink()
    session = start(sink)
    span = session.begin(Span((OffsetSlice("0", 0, 3),)))
    refused = [
        Rejection(1, "decode", "bad \0 json", b"\xff\x00", key=b"k"),
        Rejection(2, "decode", "why", None, n=1),
    ]
    receipt = write(
        sink, session.ticket(), span.slices[0], chunk(session.ticket(), [{"id": 1}], 0, refused)
    )
    assert receipt.position == 3
    assert session.finish(span, [receipt], SOURCE).totals.rejected == 2
    columns = 'id, body, body_encoding, key, reason, source, "offset"'
    where = f"{TARGET.flow}/{TARGET.branch}/{TARGET.source}"
    assert place.rows(columns, "dataflow_rejected") == [
        (
            f"{where}/0/1/0/decode",
            "/wA=",
            "base64",
            "k",
            "bad \\0 json",
            "orders",
            1,
        ),
        (f"{where}/0/2/1/decode", None, None, None, "why", "orders", 2),
    ]
    session.restart({"0": 0}, "t1")
    write(sink, session.ticket(), span.slices[0], chunk(session.ticket(), [{"id": 1}], 0, refused))
    assert len(place.rejected()) == 2
    session.close()


def test_a_delete_cannot_be_appended(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint)")
    store(place.sink(), [{"id": 1}, {"id": 1, OP: 2}]).close()
    assert place.rows() == [(1,)]
    assert "a delete needs upsertMode" in place.rejected()[0][3]


def test_a_missing_table_names_the_way_out(place: Place) -> None:
    session = start(place.sink())
    assert session.table.schema() is None
    assert session.table.identity is None
    assert isinstance(session.table, ChecksTarget)
    with pytest.raises(PermanentError, match=r"does not exist.*autoCreateTable"):
        session.table.check_target()
    session.close()


@pytest.mark.parametrize("upsert", [False, True], ids=["append", "upsert"])
@pytest.mark.parametrize(
    "change",
    [
        "ALTER a TYPE double precision",  # as wide as a bigint: its bytes would be a valid number
        "ALTER a TYPE timestamptz USING NULL",
        "ALTER a TYPE text",
        "ADD COLUMN b text",
        "DROP COLUMN a",
    ],
)
def test_a_table_altered_under_the_flow_is_described_again(
    place: Place, change: str, upsert: bool
) -> None:
    place.run("CREATE TABLE orders (id bigint PRIMARY KEY, a bigint)")
    session = store(place.sink(upsertMode=upsert), [{"id": 1}])
    place.run(f"ALTER TABLE orders {change}")
    with pytest.raises(TransientError, match="was altered while the flow ran"):
        store(place.sink(upsertMode=upsert), [{"id": 2}], session=session)
    session.close()
    assert place.rows("id") == [(1,)]
    store(place.sink(upsertMode=upsert), [{"id": 2}]).close()
    assert place.rows("id") == [(1,), (2,)]


def test_a_table_altered_before_the_commit_stores_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the look at the beginning of the slice, and before its rows lock the table."""
    place.run("CREATE TABLE orders (id bigint, a bigint)")
    altered = PostgresqlSliceStore._lock

    def locked(writer: PostgresqlSliceStore, link: Any) -> Any:
        found = altered(writer, link)
        place.run("ALTER TABLE orders ALTER a TYPE double precision")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(PostgresqlSliceStore, "_lock", locked)
        with pytest.raises(TransientError, match="was altered while the flow ran"):
            store(place.sink(), [{"id": 1, "a": 2}])
    assert place.rows() == []
    store(place.sink(), [{"id": 1, "a": 2}]).close()
    assert place.rows() == [(1, 2.0)]


@pytest.mark.parametrize("extra", ["", ", n inet"], ids=["binary", "text"])
@pytest.mark.parametrize("upsert", [False, True], ids=["append", "upsert"])
def test_names_need_no_care(place: Place, extra: str, upsert: bool) -> None:
    place.run(f'CREATE TABLE "Or""d er%s" ("Id" bigint PRIMARY KEY, "a ""b""; %s" text{extra})')
    place.table = 'Or"d er%s'
    store(place.sink(upsertMode=upsert), [{"Id": 1, 'a "b"; %s': "x"}]).close()
    assert place.rows('"Id", "a ""b""; %s"', '"Or""d er%s"') == [(1, "x")]


@pytest.mark.parametrize("extra", ["", ", n inet"], ids=["binary", "text"])
def test_a_session_ended_in_the_middle_of_a_copy_is_transient(place: Place, extra: str) -> None:
    place.run(f"CREATE TABLE orders (id bigint{extra})")
    place.run(
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF new.id = 20000 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; "
        "RETURN new; END $$"
    )
    place.run("CREATE TRIGGER die BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION die()")
    session = start(place.sink())
    records = [{"id": number} for number in range(60_000)]
    with pytest.raises(TransientError):
        store(place.sink(), records, session=session)
    place.run("DROP TRIGGER die ON orders")
    store(place.sink(), records, session=session).close()
    assert place.rows("count(*)") == [(60_000,)]
