"""MySQL as a sink, on a server of MariaDB: what a table gets, and what it is spared."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

import devservers
from dataflow_assets.connectors.mysql import MysqlSink
from dataflow_assets.connectors.mysql.client import MysqlClient
from dataflow_assets.connectors.mysql.errors import MysqlFailure
from dataflow_assets.connectors.mysql.sink.writer import MysqlSliceStore
from dataflow_assets.connectors.mysql.table import create_table
from dataflow_assets.connectors.mysql.table.table import stage_columns
from dataflow_assets.connectors.mysql.types import MYSQL_TYPE
from dataflow_assets.contracts import OP, OffsetSlice, Run, Span, Target
from dataflow_assets.errors import Locked, PermanentError, TransientError
from dataflow_assets.sdk.server_failure import Fault
from dataflow_assets.sdk.sink.slice_commit import SliceWriter
from tests.connectors.mysql.driver import TARGET, Driving, Place
from tests.connectors.postgresql.driver import chunk

HARD = {"upsertMode": True, "deleteMode": "hard"}
SOFT = {"upsertMode": True, "softDeleteColumn": "gone"}
DELETE = {OP: 2}
MOMENT = datetime(2026, 2, 28, 1, 2, 3, 4)  # noqa: DTZ001 - as such columns have it


@pytest.fixture
def place(mariadb: devservers.MariaDB, mysql_database: str) -> Place:
    return Place(mariadb, mysql_database)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"table": ""}, "table or tableSecretRef is required"),
        ({"deleteMode": "hard"}, "deleteMode requires upsertMode: true"),
        ({"columns": {"a": "int); DROP TABLE x"}}, "not the name of a type of MySQL"),
        ({"upsertMode": True, "conflictKey": ["a", "a"]}, "names a column twice"),
    ],
)
def test_what_does_not_fit_together_is_a_finding(config: dict[str, Any], message: str) -> None:
    where = {"host": "db", "database": "shop", "user": "me", "password": "pw", "table": "orders"}
    with pytest.raises(ValidationError, match=message):
        MysqlSink.model_validate({**where, **config})


VALUES: list[tuple[str, Any, Any]] = [
    ("tinyint(1)", True, 1),
    ("bit(1)", True, b"\x01"),
    ("tinyint unsigned", 255, 255),
    ("bigint unsigned", 2**64 - 1, 2**64 - 1),
    ("decimal(38,4)", Decimal("-1234567890.1234"), Decimal("-1234567890.1234")),
    ("decimal(65,30)", "0.5", Decimal("0.5")),
    ("double", 0.1, 0.1),
    ("float", 0.5, 0.5),
    ("date", date(2026, 2, 28), date(2026, 2, 28)),
    ("datetime(6)", MOMENT, MOMENT),
    ("timestamp(6) null", MOMENT, MOMENT + timedelta(hours=2)),
    ("varchar(20)", "it's a \\ and\n\0 %s 🙂", "it's a \\ and\n\0 %s 🙂"),
    ("longtext", "é" * 9, "é" * 9),
    ("varbinary(9)", b"\x00'\\\xff", b"\x00'\\\xff"),
    ("longblob", b"", b""),
    ("json", '{"a": [1, "\\u00e9"]}', '{"a": [1, "\\u00e9"]}'),
    ("enum('a','b')", "b", "b"),
    ("enum('50%','1')", "1", "1"),
    ("set('a','b')", "a,b", "a,b"),
    ("time(1)", "25:00:00.500", timedelta(hours=25, seconds=0.5)),
    ("year", 2026, 2026),
]


@pytest.mark.parametrize("options", [{}, {"upsertMode": True}], ids=["append", "upsert"])
def test_values_arrive_as_they_are(place: Place, options: dict[str, Any]) -> None:
    names = [f"c {index} %" for index in range(len(VALUES))]
    kinds = ", ".join(f"`{n}` {kind}" for n, (kind, _, _) in zip(names, VALUES, strict=True))
    place.run(f"CREATE TABLE orders (id bigint primary key, {kinds})")
    given = {name: value for name, (_, value, _) in zip(names, VALUES, strict=True)}
    flow = Driving(place.sink(**options))
    flow.store({"id": 0} | given, {"id": 1} | dict.fromkeys(names))
    flow.store({"id": 2} | given)
    place.run("SET time_zone = '+02:00'")
    whole, empty, again = place.rows()
    assert list(whole[1:]) == list(again[1:]) == [found for _, _, found in VALUES]
    assert set(empty[1:]) == {None}
    assert place.rejected() == []


UNFIT: list[tuple[str, Any, str]] = [
    ("varchar(3)", "four", "Data too long"),
    ("tinyint unsigned", 255, ""),
    ("enum('a','b')", "c", "Data truncated"),
    ("enum('a','b')", "2", "not one of the values of column c"),
    ("enum('a','1')", " 0 ", "not one of the values of column c"),
    ("set('a','b')", "3", "not one of the values of column c"),
    ("time(1)", "01:02:03.25", "more digits of a second than column c keeps (1)"),
    ("decimal(65,2)", "1.234", "Data truncated"),
    ("double", float("nan"), "Data truncated|Incorrect double value"),
    ("timestamp(6) null", MOMENT.replace(year=2200), "Incorrect datetime value"),
    ("datetime(3)", MOMENT, "more digits of a second than column c keeps (3)"),
    ("json", "{", "CONSTRAINT"),
    ("varchar(9) character set latin1", "🙂", "Incorrect string value"),
]


@pytest.mark.parametrize(("kind", "value", "reason"), UNFIT)
@pytest.mark.parametrize("options", [{}, {"upsertMode": True}], ids=["append", "upsert"])
def test_a_value_that_does_not_fit_is_rejected_and_never_cut(
    place: Place, kind: str, value: Any, reason: str, options: dict[str, Any]
) -> None:
    place.run(f"CREATE TABLE orders (id bigint primary key, c {kind})")
    totals = Driving(place.sink(**options)).store(
        {"id": 1, "c": None}, {"id": 2, "c": value}, {"id": 3, "c": None}
    )
    found = place.rejected()
    if not reason:
        assert (found, totals.rows) == ([], 3)
        return
    assert [row[0] for row in place.rows()] == [1, 3]
    assert (totals.rows, totals.rejected) == (2, 1)
    assert [offset for offset, _ in found] == [1]
    assert any(word in found[0][1] for word in reason.split("|")), found


def test_what_a_record_lacks_the_table_fills(place: Place) -> None:
    place.run(
        "CREATE TABLE orders (id bigint auto_increment primary key, n int default 7, "
        "twice int as (n * 2) stored, at datetime(6) not null default current_timestamp(6))"
    )
    flow = Driving(place.sink())
    flow.store({"n": 1}, {"id": 0, "n": None}, {"id": 5})
    assert place.rows("id, n, twice, at is null") == [
        (0, None, None, 0),
        (1, 1, 2, 0),
        (5, 7, 14, 0),
    ]


def test_a_row_of_another_key_is_never_updated_by_a_second_unique_index(place: Place) -> None:
    """INSERT ... ON DUPLICATE KEY UPDATE would write the new row's values into the row of key 1."""
    place.run("CREATE TABLE orders (id bigint primary key, mail varchar(9) unique, n int)")
    flow = Driving(place.sink(**HARD))
    flow.store({"id": 1, "mail": "a", "n": 1}, {"id": 2, "mail": "b", "n": 2})
    totals = flow.store({"id": 3, "mail": "a", "n": 3}, {"id": 2, "mail": "a", "n": 9})
    assert place.rows() == [(1, "a", 1), (2, "b", 2)]
    assert [reason for _, reason in place.rejected()] == [
        "Duplicate entry 'a' for key 'mail' (error 1062)"
    ] * 2
    assert totals.rejected == 2
    flow.store({"id": 1, **DELETE}, {"id": 3, "mail": "a", "n": 3})
    assert place.rows() == [(2, "b", 2), (3, "a", 3)]


def test_a_key_that_is_not_the_primary_key_finds_its_row_alone(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint primary key, mail varchar(9) not null unique)")
    flow = Driving(place.sink(**HARD, conflictKey="mail"))
    flow.store({"id": 1, "mail": "a"}, {"id": 2, "mail": "b"})
    flow.store({"id": 2, "mail": "a"}, {"id": 3, "mail": "b"})
    assert place.rows() == [(1, "a"), (3, "b")]
    assert len(place.rejected()) == 1


def test_a_change_of_some_columns_leaves_the_others(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint primary key, name text not null, n int default 7)")
    flow = Driving(place.sink(**HARD))
    flow.store({"id": 1, "name": "a", "n": 1}, {"id": 2, "name": "b"})
    flow.store({"id": 1, "n": None}, {"id": 2, "name": "c"}, {"id": 3, "n": 3}, {"id": 1, "n": 4})
    assert place.rows() == [(1, "a", 4), (2, "c", 7)]
    assert place.rejected() == [(4, "Field 'name' doesn't have a default value (error 1364)")]


def test_the_last_row_of_a_key_wins_and_a_delete_forgets_what_was_before_it(place: Place) -> None:
    place.run("CREATE TABLE orders (a int, b varchar(9), n int, m int, primary key (a, b))")
    flow = Driving(place.sink(**HARD))
    one, two = {"a": 1, "b": "x"}, {"a": 1, "b": "y"}
    flow.store({**one, "n": 1, "m": 1}, {**two, "n": 2}, {**one, "n": 3}, {**two, **DELETE})
    assert place.rows() == [(1, "x", 3, 1)]
    flow.store({**one, **DELETE}, {**one, "m": 5}, {**two, **DELETE}, {"a": None, "b": "z"})
    assert place.rows() == [(1, "x", None, 5)]
    assert [reason for _, reason in place.rejected()] == ["key column a is null or absent"]


def test_a_soft_delete_marks_the_row_and_an_insert_brings_it_back(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint primary key, n int, gone datetime(6))")
    flow = Driving(place.sink(**SOFT))
    flow.store({"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 2, **DELETE}, {"id": 9, **DELETE})
    flow.store({"id": 1, **DELETE})
    assert place.rows("id, n, gone is null") == [(1, 1, 0), (2, 2, 0)]
    flow.store({"id": 1, **DELETE}, {"id": 1, "n": 5}, {"id": 2, "n": 6})
    assert place.rows("id, n, gone is null") == [(1, 5, 1), (2, 6, 1)]


def test_a_delete_without_a_way_to_delete_is_rejected(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint primary key)")
    Driving(place.sink(upsertMode=True)).store({"id": 1}, {"id": 1, **DELETE})
    assert place.rows() == [(1,)]
    assert "deleteMode: hard" in place.rejected()[0][1]


def test_keys_are_equal_as_the_table_compares_them(place: Place) -> None:
    """Two spellings of one key in one micro-batch, whether the key is stored or not."""
    place.run("CREATE TABLE orders (name varchar(9) collate utf8mb4_general_ci primary key, n int)")
    flow = Driving(place.sink(**HARD))
    flow.store({"name": "a", "n": 1}, {"name": "A", "n": 2}, {"name": "b", "n": 3})
    assert place.rows() == [("a", 2), ("b", 3)]
    flow.store({"name": "A", "n": 4}, {"name": "a ", "n": 5}, {"name": "B", **DELETE})
    assert place.rows() == [("a", 5)]
    assert place.rejected() == []


SPELLINGS: list[tuple[str, list[dict[str, Any]], list[tuple[Any, ...]]]] = [
    ("hard", [{"name": "a", "n": 2}, {"name": "A", **DELETE}], []),
    ("hard", [{"name": "A", **DELETE}, {"name": "a", "n": 2}], [("a", 2, None)]),
    ("hard", [{"name": "a", "n": 2, "m": 2}, {"name": "A ", "n": 3}], [("a", 3, 2)]),
    ("soft", [{"name": "a", "n": 2}, {"name": "A", **DELETE}], [("a", 2, None)]),
]


@pytest.mark.parametrize(("way", "rows", "found"), SPELLINGS)
def test_rows_of_one_key_in_several_spellings_keep_their_order(
    place: Place, way: str, rows: list[dict[str, Any]], found: list[tuple[Any, ...]]
) -> None:
    """Deletes, changes of some columns and changes of others are statements of their own."""
    place.run(
        "CREATE TABLE orders (name varchar(9) collate utf8mb4_general_ci primary key, n int, "
        "m int, gone datetime(6))"
    )
    flow = Driving(place.sink(**(HARD if way == "hard" else SOFT)))
    flow.store({"name": "a", "n": 1})
    flow.store(*rows)
    assert [(name.lower().strip(), n, m) for name, n, m in place.rows("name, n, m")] == found
    assert place.rows("gone is null") == [(int(way == "hard"),)] * len(found)


def test_a_row_that_another_session_inserts_meanwhile_is_updated(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two flows that fill one table: between "update what is there" and "insert what is new"."""
    place.run("CREATE TABLE orders (id int primary key, n int, m int)")
    flow, run = Driving(place.sink(**HARD)), MysqlClient.run
    others = ["INSERT INTO orders VALUES (1, 0, 7)"]

    def run_beside(client: MysqlClient, sql: str, *binds: Any) -> int:
        done = run(client, sql, *binds)
        if sql.startswith("UPDATE dataflow_stage") and others:
            place.run(others.pop())
        return done

    monkeypatch.setattr(MysqlClient, "run", run_beside)
    flow.store({"id": 1, "n": 5}, {"id": 2, "n": 6})
    assert others == []
    assert place.rows() == [(1, 5, 7), (2, 6, None)]


def test_the_stage_has_a_key_that_mysql_takes(place: Place) -> None:
    """MariaDB makes a key of a column that is declared NULL; MySQL refuses that (error 1171)."""
    place.run("CREATE TABLE orders (id bigint null unique, n int)")
    schema = Driving(place.sink(**HARD, conflictKey="id")).session.table.schema()
    assert schema is not None
    key, other = stage_columns(schema, ("id",))
    assert key.endswith(" NOT NULL")
    assert not other.endswith(" NOT NULL")


def test_a_column_that_the_flow_makes_keeps_the_values_of_its_enum(place: Place) -> None:
    flow = Driving(place.sink(autoCreateTable=True))
    fields = [pa.field(name, pa.string(), metadata={MYSQL_TYPE: b"enum('5%')"}) for name in "ab"]
    flow.session.table.create(pa.schema(fields[:1]))
    flow.session.table.add_columns(pa.schema(fields))  # type: ignore[attr-defined]
    flow.store({"a": "5%", "b": "5%"})
    assert place.rows("a, b") == [("5%", "5%")]


def test_tables_whose_names_differ_in_case_have_ids_of_their_own(place: Place) -> None:
    place.run("CREATE TABLE Orders (id int)", "CREATE TABLE orders (id int)")
    tables = [Driving(place.sink(table=name)).session.table for name in ("orders", "Orders")]
    assert tables[0].identity != tables[1].identity


def test_a_value_that_was_changed_is_seen_on_a_server_without_notes(place: Place) -> None:
    place.run("CREATE TABLE orders (n decimal(65,2))", "SET GLOBAL sql_notes = 0")
    try:
        Driving(place.sink()).store({"n": "1.234"})
    finally:
        place.run("SET GLOBAL sql_notes = 1")
    assert place.rows() == []
    assert "Data truncated" in place.rejected()[0][1]


def test_a_flow_of_the_same_name_in_another_database_is_left_alone(place: Place) -> None:
    other = Place(place.server, f"{place.database}_2")
    place.run(f"CREATE DATABASE {other.database}", "CREATE TABLE orders (id bigint)")
    other.run("CREATE TABLE orders (id bigint)")
    flow, piece = Driving(place.sink()), OffsetSlice("0", 0, 1)
    flow.session.begin(Span((piece,)))
    ticket = flow.session.ticket()
    writer = place.sink().writer(ticket, piece)
    writer.write(chunk(ticket, [{"id": 1}]))
    Driving(other.sink())
    writer.close(complete=True)
    place.run(f"DROP DATABASE {other.database}")
    assert place.rows() == [(1,)]


def test_keys_of_a_table_that_the_flow_makes_differ_in_every_character(place: Place) -> None:
    flow = Driving(place.sink(**HARD, autoCreateTable=True, conflictKey="name"))
    flow.session.table.create(
        pa.schema([("name", pa.string()), ("n", pa.int64()), ("ok", pa.bool_())])
    )
    names = ["a", "A", "a ", "á"]
    flow.store(*({"name": name, "n": 1, "ok": True} for name in names))
    assert sorted(row[0] for row in place.rows("name")) == sorted(names)
    flow.store({"name": "x" * 256, "n": 1})
    assert "Data too long for column 'name'" in place.rejected()[0][1]
    assert place.run(
        "SELECT engine, table_collation FROM information_schema.tables WHERE table_name = 'orders' "
        f"AND table_schema = '{place.database}'"
    ) == [("InnoDB", "utf8mb4_nopad_bin")]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("CREATE TABLE orders (id int primary key) ENGINE=MyISAM", {}, "ENGINE = InnoDB"),
    ("CREATE VIEW orders AS SELECT 1 AS id", {}, "is a view: name the table behind it"),
    ("CREATE TABLE orders (id int)", {"upsertMode": True}, "needs a key"),
    (
        "CREATE TABLE orders (id int, n int)",
        {"upsertMode": True, "conflictKey": "n"},
        r"run: ALTER TABLE `\w+`.`orders` ADD UNIQUE \(`n`\)",
    ),
    (
        "CREATE TABLE orders (id int, name text, unique (name(9)))",
        {"upsertMode": True, "conflictKey": "name"},
        "no unique index",
    ),
    (
        "CREATE TABLE orders (id int primary key)",
        {"upsertMode": True, "conflictKey": "ids"},
        "has no column ids that can be filled; did you mean id",
    ),
    ("CREATE TABLE orders (id int primary key)", SOFT, "has no column gone"),
    (
        "CREATE TABLE orders (id int primary key, gone int)",
        SOFT,
        r"make it a datetime\(6\)",
    ),
    ("CREATE TABLE other (id int)", {}, "does not exist"),
]


@pytest.mark.parametrize(("made", "options", "message"), REFUSED)
def test_a_table_that_does_not_fit_is_refused_with_what_to_do(
    place: Place, made: str, options: dict[str, Any], message: str
) -> None:
    place.run(made)
    with pytest.raises(PermanentError, match=message):
        Driving(place.sink(**options)).session.table.check_target()  # type: ignore[attr-defined]


def test_columns_are_added_and_the_flow_goes_on(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint primary key)")
    flow = Driving(place.sink(**HARD))
    flow.store({"id": 1})
    more = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
    for _ in range(2):
        flow.session.table.add_columns(more)  # type: ignore[attr-defined]
    flow.store({"id": 2, "name": "b"})
    assert place.rows() == [(1, None), (2, "b")]
    assert flow.session.checkpoint.target == flow.session.table.identity


def test_columns_that_one_flow_adds_stop_no_other_of_the_same_table(place: Place) -> None:
    """A table of compressed rows is rebuilt, and has another id then."""
    place.run("CREATE TABLE orders (id bigint primary key) ROW_FORMAT=COMPRESSED")
    other = Target("shop/others", "mysql:orders", "m1", "others")
    first, second = Driving(place.sink()), Driving(place.sink(), other)
    first.store({"id": 1})
    second.store({"id": 2})
    before = first.session.table.identity
    more = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
    first.session.table.add_columns(more)  # type: ignore[attr-defined]
    assert first.session.table.identity != before
    second = Driving(place.sink(), other)
    assert second.session.checkpoint.target == second.session.table.identity
    second.store({"id": 3, "name": "c"})
    assert place.rows() == [(1, None), (2, None), (3, "c")]


def test_a_column_that_another_flow_adds_meanwhile_is_taken_as_it_is(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.run("CREATE TABLE orders (id bigint primary key)")
    flow, adding = Driving(place.sink()), create_table.adding

    def add_too(*given: Any) -> str:
        statement = adding(*given)
        if statement:
            place.run(statement)
        return statement

    monkeypatch.setattr(create_table, "adding", add_too)
    more = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
    flow.session.table.add_columns(more)  # type: ignore[attr-defined]
    flow.store({"id": 1, "name": "a"})
    assert place.rows() == [(1, "a")]


def test_two_flows_write_into_one_table(place: Place) -> None:
    place.run("CREATE TABLE orders (id bigint primary key)")
    first = Driving(place.sink())
    second = Driving(place.sink(), Target("shop/others", "mysql:orders", "m1", "others"))
    first.store({"id": 1})
    second.store({"id": 2})
    assert place.rows() == [(1,), (2,)]
    assert first.session.checkpoint.positions == second.session.checkpoint.positions == {"0": 1}


@pytest.mark.parametrize("options", [{}, {"upsertMode": True}], ids=["append", "upsert"])
def test_of_two_attempts_at_a_slice_one_stores_rows(
    place: Place, options: Mapping[str, Any]
) -> None:
    place.run(f"CREATE TABLE orders (id bigint, {'primary ' if options else ''}key (id))")
    sink = place.sink(**options)
    flow = Driving(sink)
    piece = OffsetSlice("0", 0, 3)
    flow.session.begin(Span((piece,)))
    ticket = flow.session.ticket()
    first, second = sink.writer(ticket, piece), sink.writer(ticket, piece)
    rows = chunk(ticket, [{"id": number} for number in range(3)])
    first.write(chunk(ticket, []))
    second.write(rows)
    second.close(complete=True)
    first.write(rows)
    with pytest.raises(TransientError, match="another attempt was first"):
        first.close(complete=True)
    assert place.rows() == [(0,), (1,), (2,)]


@pytest.mark.parametrize("options", [{}, {"upsertMode": True}], ids=["append", "upsert"])
def test_a_task_of_an_older_driver_is_ended_and_holds_no_row(
    place: Place, options: dict[str, Any]
) -> None:
    place.run("CREATE TABLE orders (id bigint primary key, name text)")
    flow = Driving(place.sink(**options))
    flow.store({"id": 1, "name": "a"})
    piece = OffsetSlice("0", 1, 2)
    flow.session.begin(Span((piece,)))
    ticket = flow.session.ticket()
    store = MysqlSliceStore(place.sink(**options), ticket, piece)
    writer = SliceWriter(ticket, piece, store)
    writer.write(chunk(ticket, [{"id": 2, "name": "older"}], 1))
    store._loader.flush()
    later = Driving(place.sink(**options))
    later.store({"id": 2, "name": "newer"})
    with pytest.raises(TransientError, match=r"Lost connection|gone away|killed"):
        writer.close(complete=True)
    later.store({"id": 3, "name": "c"})
    assert place.rows() == [(1, "a"), (2, "newer"), (3, "c")]


def test_a_row_that_is_longer_than_the_server_takes_is_rejected(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MysqlClient, "longest_statement", 600_000)
    place.run("CREATE TABLE orders (id bigint primary key, body longtext)")
    flow = Driving(place.sink())
    flow.store({"id": 1, "body": "a"}, {"id": 2, "body": "x" * 600_000}, {"id": 3, "body": "b"})
    assert place.rows("id") == [(1,), (3,)]
    assert "max_allowed_packet of the server is 600,000" in place.rejected()[0][1]


def test_locks_and_deadlocks_are_tried_again() -> None:
    for code in (1205, 1213):
        failure = MysqlFailure("try restarting transaction", code)
        assert failure.fault is Fault.OUTSIDE
        assert isinstance(failure.error("writing to x"), Locked)


def test_a_user_without_rights_reads_what_to_grant(
    place: Place, mariadb: devservers.MariaDB
) -> None:
    name = place.database
    place.run(
        "CREATE TABLE orders (id bigint)",
        f"CREATE USER '{name}'@'%' IDENTIFIED BY 'pw'",
        f"GRANT SELECT, INSERT, UPDATE ON {name}.* TO '{name}'@'%'",
    )
    sink = place.sink(user=name, password="pw")
    with pytest.raises(
        PermanentError, match=r"run: CREATE TABLE IF NOT EXISTS .*dataflow_checkpoint"
    ):
        sink.open(TARGET, Run())
    Driving(place.sink()).session.forget()  # somebody with more rights has made the tables
    flow = Driving(sink)
    flow.store({"id": 1})
    assert place.rows() == [(1,)]
    assert f"{name}.orders made at " in str(flow.session.table.identity)
    mariadb.execute(f"DROP USER '{name}'@'%'")


def test_tables_that_were_made_in_one_second_are_two_for_a_user_without_rights(
    place: Place, mariadb: devservers.MariaDB
) -> None:
    name = place.database
    place.run(
        f"CREATE USER '{name}'@'%' IDENTIFIED BY 'pw'", f"GRANT ALL ON {name}.* TO '{name}'@'%'"
    )
    made = "SELECT COUNT(DISTINCT create_time) FROM information_schema.tables WHERE table_schema"
    while True:
        place.run("CREATE TABLE orders (id bigint)", "CREATE TABLE others (id bigint)")
        if place.run(f"{made} = '{name}' AND table_name IN ('orders', 'others')") == [(1,)]:
            break
        place.run("DROP TABLE orders, others")
    other = Target("shop/others", "mysql:others", "m1", "others")
    flow = Driving(place.sink(user=name, password="pw"))
    Driving(place.sink(user=name, password="pw", table="others"), other).store({"id": 1})
    flow.store({"id": 1})
    flow.session.restart({"0": 0}, "source", empty=True)
    assert place.rows() == []
    mariadb.execute(f"DROP USER '{name}'@'%'")
