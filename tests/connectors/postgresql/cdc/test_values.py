"""Values of the stream: those of the table's reader, changed keys, what is not logged."""

from __future__ import annotations

import json
from contextlib import closing

import pyarrow as pa
import pytest

from dataflow_assets.connectors.postgresql.cdc.layout import former_names
from dataflow_assets.connectors.postgresql.cdc.text_values import fit_column
from dataflow_assets.connectors.postgresql.source.types import TypeOf
from dataflow_assets.contracts import DELETE, INSERT, OP, UPDATE, Rejects, system_name
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.rows import objects
from dataflow_assets.records.chain import Transformation
from dataflow_assets.transforms.debezium_unwrap import DebeziumUnwrap
from dataflow_assets.transforms.insert_field import InsertField
from tests.connectors.postgresql.cdc.followed import UPSERTED, Followed, tuples, unmarked
from tests.connectors.postgresql.test_types_postgresql import OWN, TYPES

LARGE = "(SELECT string_agg(md5(i::text || {seed}), '') FROM generate_series(1, 300) i)"
WIDE = "id int PRIMARY KEY, n int, big text NOT NULL, small text"
MOST = max(len(values) for _, values in TYPES.values())


def _literal(name: str, row: int) -> str:
    declared, values = TYPES[name]
    if row >= len(values):
        return "NULL" if name != "domain_json" else _literal(name, 0)
    text = values[row].replace("'", "''")
    return f"'{text}'::{declared}"


def _insert(followed: Followed, first: int) -> None:
    for row in range(MOST + 1):
        values = ", ".join(_literal(name, row) for name in TYPES)
        followed.run(f"SET lc_monetary = 'C'; INSERT INTO source VALUES ({first + row}, {values})")


def test_every_type_is_read_from_the_log_as_from_the_table(followed: Followed) -> None:
    followed.run(OWN.format(s=followed.schema))
    followed.make("id int PRIMARY KEY, " + ", ".join(f"{n} {t}" for n, (t, _) in TYPES.items()))
    _insert(followed, 0)
    begin = followed.start()
    (loaded,) = followed.read()
    _insert(followed, 1000)
    (logged,) = followed.read(begin)
    assert loaded.num_rows == logged.num_rows == MOST + 1
    for name in TYPES:
        assert logged.schema.field(name).equals(loaded.schema.field(name), check_metadata=True)
        assert logged.column(name).equals(loaded.column(name)) or (
            str(logged.column(name).to_pylist()) == str(loaded.column(name).to_pylist())
        ), name
    followed.drain()
    followed.run("UPDATE source SET id = id")
    followed.drain()
    texts = ", ".join(f"quote_nullable({name})" for name in TYPES)
    assert followed.same(f"id, {texts}")


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("date[]", '{"0044-03-15 BC",0001-01-01,infinity}'),
        ("timestamp[]", '{"0044-03-15 12:00:00.5 BC","294276-12-31 23:59:59"}'),
        ("timestamp[]", '{"0044-03-15 12:00:00.5 BC","10000-01-01 00:00:00"}'),
        ("timestamptz[]", '{"0044-03-15 12:00:00.5+00 BC",-infinity}'),
        ("timestamptz[][]", '{{"10000-01-01 00:00:00+00",NULL}}'),
        ("jsonb[]", '{"null",NULL,"[null]"}'),
        ("int[]", "[0:1]={1,2}"),
    ],
)
def test_elements_of_arrays_come_from_the_log_as_from_the_table(
    followed: Followed, declared: str, value: str
) -> None:
    """And what no column has, as the same JSON."""
    followed.make(f"id int PRIMARY KEY, v {declared}")
    begin = followed.start()
    followed.run("INSERT INTO source VALUES (1, %s)", value)
    outcomes = [(str(b.column("v")), objects(b)) for at in (None, begin) for b in followed.read(at)]
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("declared", "value"),
    [("date[]", "{10000-01-01}"), ("timestamptz[]", '{"0044-03-15 12:00:00+00 BC"}')],
)
def test_a_year_in_an_array_is_stored_or_rejected_as_in_the_first_rows(
    followed: Followed, declared: str, value: str
) -> None:
    followed.rejects = Rejects("table")
    followed.make(f"id int PRIMARY KEY, v {declared}")
    followed.run("INSERT INTO source VALUES (1, %s)", value)
    loaded = [(one.delta.rows, one.delta.rejected) for one in followed.reports()]
    followed.run("INSERT INTO source VALUES (2, %s)", value)
    logged = [(one.delta.rows, one.delta.rejected) for one in followed.reports()]
    assert sum(map(sum, loaded)) == 1
    assert [sum(some) for some in zip(*loaded, strict=True)] == [
        sum(some) for some in zip(*logged, strict=True)
    ]


def test_an_array_of_char_has_no_blanks_as_in_the_first_rows() -> None:
    kind = TypeOf("_bpchar", "character(3)[]", "bpchar", 1)
    texts = pa.array(['{"ab ",NULL,abc}', None, '{"   "}'])
    assert fit_column(texts, kind, "c").values.to_pylist() == [["ab", None, "abc"], None, [""]]


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL", "USING INDEX source_pkey"])
def test_large_values_that_were_not_changed_stay(followed: Followed, identity: str) -> None:
    """Absent, not null: also in a column that must not be null."""
    followed.make(WIDE)
    followed.run("ALTER TABLE source ALTER big SET STORAGE EXTERNAL")
    followed.run(f"ALTER TABLE source REPLICA IDENTITY {identity}")
    for key in (1, 2):
        big = LARGE.format(seed=f"'{key}'")
        followed.run(f"INSERT INTO source SELECT {key}, 0, {big}, 'a'")
    followed.drain()
    begin = followed.position()
    followed.run(
        "UPDATE source SET n = 1 WHERE id = 1; UPDATE source SET small = NULL WHERE id = 2"
    )
    followed.run(f"INSERT INTO source SELECT 3, 3, {LARGE.format(seed='3')}, 'c'")
    followed.run("UPDATE source SET n = 4 WHERE id = 3")
    rows = [json.loads(body) for body in followed.bodies(begin)]
    assert [row["id"] for row in rows] == [1, 2, 3, 3]
    assert ["big" in row for row in rows] == [identity == "FULL", identity == "FULL", True,
                                              identity == "FULL"]  # fmt: skip
    assert rows[1]["small"] is None
    followed.drain()
    assert followed.same()


def test_a_type_that_was_dropped_behind_a_change(followed: Followed) -> None:
    """The log names types by their numbers, and has their values as text."""
    followed.run("CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE DOMAIN few AS int")
    followed.run("CREATE TABLE source (id int PRIMARY KEY, m mood, ms mood[], f few, n int)")
    followed.run("CREATE TABLE target (id int PRIMARY KEY, m text, ms text[], f int, n int)")
    followed.run("INSERT INTO source VALUES (1, 'good', '{good,bad}', 1, 1)")
    followed.drain()
    followed.run("INSERT INTO source VALUES (2, 'bad', '{bad,NULL}', 2, 2), (3, NULL, NULL, 3, 3)")
    followed.run(
        "ALTER TABLE source ALTER m TYPE text, ALTER ms TYPE text[] USING ms::text[], "
        "ALTER f TYPE int; DROP TYPE mood; DROP DOMAIN few; UPDATE source SET n = 30 WHERE id = 3"
    )
    assert followed.drain() == 3
    assert followed.same()


def test_an_enum_with_the_name_of_a_built_in_type_is_text(followed: Followed) -> None:
    """In the first rows, and in the log."""
    own = f"{followed.schema}.int4"
    followed.run(f"CREATE TYPE {own} AS ENUM ('low', 'high')")
    followed.make(f"id int PRIMARY KEY, v {own}, a {own}[]")
    followed.run("INSERT INTO source VALUES (1, 'low', '{high,low}')")
    followed.drain()
    followed.run("INSERT INTO source VALUES (2, 'high', '{low}'), (3, NULL, NULL)")
    assert followed.drain() == 2
    assert followed.same("id, v::text, a::text")


def test_a_table_that_is_renamed_inside_a_stretch(followed: Followed) -> None:
    """What becomes of it is not a change of the table that has its name from then on."""
    followed.make("id int PRIMARY KEY, name text, more text")
    name = followed.schema
    followed.run(f'CREATE PUBLICATION "{name}" FOR TABLES IN SCHEMA "{name}"')
    followed.run("INSERT INTO source VALUES (1, 'a', 'x')")
    followed.drain()
    begin = followed.position()
    followed.run("INSERT INTO source VALUES (2, 'b', 'y')")
    followed.run(
        "ALTER TABLE source RENAME TO old; CREATE TABLE source (LIKE target INCLUDING ALL)"
    )
    followed.run("UPDATE old SET name = 'archived'; DELETE FROM old WHERE id = 1")
    followed.run("ALTER TABLE old DROP COLUMN name; INSERT INTO old VALUES (3, 'z')")
    followed.run("INSERT INTO source VALUES (4, 'd', 'w')")
    found = tuples(followed.read(unmarked(begin)), ["id", "name", "more"])
    assert found == [(2, "b", "y"), (4, "d", "w")]


def test_a_key_that_changes_is_a_deletion_and_an_insert(followed: Followed) -> None:
    followed.make("id int PRIMARY KEY, name text")
    followed.run("INSERT INTO source VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    followed.drain()
    begin = followed.position()
    followed.run(
        "UPDATE source SET id = 10 WHERE id = 1; UPDATE source SET name = 'B' WHERE id = 2"
    )
    followed.run("BEGIN; DELETE FROM source WHERE id = 3; INSERT INTO source VALUES (3, 'new'); "
                 "UPDATE source SET id = 1 WHERE id = 3; COMMIT")  # fmt: skip
    batches = followed.read(begin, frozenset({"operation", "id"}))
    assert tuples(batches, [OP, "id", "name"]) == [
        (DELETE, 1, None), (INSERT, 10, "a"), (UPDATE, 2, "B"), (DELETE, 3, None),
        (INSERT, 3, "new"), (DELETE, 3, None), (INSERT, 1, "new"),
    ]  # fmt: skip
    followed.drain()
    assert followed.same()


@pytest.mark.parametrize("key", ["PRIMARY KEY", "NOT NULL"])
def test_a_table_whose_whole_rows_are_logged(followed: Followed, key: str) -> None:
    """By the primary key it is known whether the key was changed; without one any change may be."""
    followed.run(f"CREATE TABLE source (id int {key}, name text)")
    followed.run("CREATE TABLE target (id int PRIMARY KEY, name text)")
    followed.run("ALTER TABLE source REPLICA IDENTITY FULL")
    followed.run("INSERT INTO source VALUES (1, 'a'), (2, NULL), (3, 'c')")
    followed.drain()
    begin = followed.position()
    followed.run(
        "UPDATE source SET name = 'A' WHERE id = 1; UPDATE source SET id = 20 WHERE id = 2"
    )
    followed.run("DELETE FROM source WHERE id = 3")
    rows = tuples(followed.read(begin), [OP, "id", "name"])
    first = [(UPDATE, 1, "A")] if key == "PRIMARY KEY" else [(DELETE, 1, "a"), (INSERT, 1, "A")]
    assert rows == [*first, (DELETE, 2, None), (INSERT, 20, None), (DELETE, 3, "c")]
    followed.drain()
    assert followed.same()


def test_a_key_that_changes_beside_a_value_that_is_not_logged(followed: Followed) -> None:
    followed.make(WIDE)
    followed.run("ALTER TABLE source ALTER big SET STORAGE EXTERNAL")
    followed.run(f"INSERT INTO source SELECT 1, 0, {LARGE.format(seed=1)}, 'a'")
    followed.drain()
    followed.run("UPDATE source SET id = 2")
    with pytest.raises(
        PermanentError, match=r"value of big is not in the log.*REPLICA IDENTITY FULL"
    ):
        followed.drain()


LONG = "(SELECT string_agg(md5(i::text || {seed}), '') FROM generate_series(1, 75) i)"


def test_a_key_that_is_stored_apart(followed: Followed) -> None:
    """The log has the old key also of changes that leave the key as it was, and not the new one."""
    followed.make("url text, part int, n int, PRIMARY KEY (url, part)")
    followed.sink_options = {**UPSERTED, "conflictKey": ["url", "part"]}
    followed.run("ALTER TABLE source ALTER url SET STORAGE EXTERNAL")
    for part in (1, 2):
        followed.run(f"INSERT INTO source SELECT {LONG.format(seed=part)}, {part}, 0")
    followed.drain()
    begin = followed.position()
    followed.run("UPDATE source SET n = 1; UPDATE source SET part = 5 WHERE part = 1")
    followed.run(f"UPDATE source SET url = {LONG.format(seed=3)} WHERE part = 2")
    batches = followed.read(begin)
    assert tuples(batches, [OP, "part", "n"]) == [
        (UPDATE, 1, 1), (UPDATE, 2, 1), (DELETE, 1, None), (INSERT, 5, 1),
        (DELETE, 2, None), (INSERT, 2, 1),
    ]  # fmt: skip
    assert all(len(url) == 75 * 32 for (url,) in tuples(batches, ["url"]))
    followed.drain()
    assert followed.same()


def test_a_large_value_beside_a_key_that_is_stored_apart(followed: Followed) -> None:
    """Both were left alone: the key is known, the value is absent."""
    followed.make("url text PRIMARY KEY, n int, big text NOT NULL")
    followed.sink_options = {**UPSERTED, "conflictKey": "url"}
    for column in ("url", "big"):
        followed.run(f"ALTER TABLE source ALTER {column} SET STORAGE EXTERNAL")
    followed.run(f"INSERT INTO source SELECT {LONG.format(seed=1)}, 0, {LARGE.format(seed=1)}")
    followed.drain()
    begin = followed.position()
    followed.run("UPDATE source SET n = 1")
    (row,) = [json.loads(body) for body in followed.bodies(begin)]
    assert sorted(row) == ["n", "url"]
    followed.drain()
    assert followed.same()


def test_a_key_that_is_renamed_behind_a_change(followed: Followed) -> None:
    """The whole rows in the log have its old name."""
    followed.make("id int PRIMARY KEY, name text")
    followed.run("ALTER TABLE source REPLICA IDENTITY FULL; INSERT INTO source VALUES (1, 'a')")
    followed.drain()
    begin = followed.position()
    followed.run("UPDATE source SET name = 'A'; UPDATE source SET id = 2")
    followed.run("ALTER TABLE source RENAME id TO ident; UPDATE source SET name = 'B'")
    batches = followed.read(begin)
    assert tuples(batches[:1], [OP, "id", "name"]) == [
        (UPDATE, 1, "A"), (DELETE, 1, "A"), (INSERT, 2, "A")
    ]  # fmt: skip
    assert tuples(batches[1:], [OP, "ident", "name"]) == [(UPDATE, 2, "B")]


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE source DROP COLUMN note; ALTER TABLE source ADD COLUMN note int",
        "ALTER TABLE source RENAME note TO n; ALTER TABLE source RENAME amount TO note",
    ],
)
def test_a_name_that_is_used_again_behind_a_change(followed: Followed, change: str) -> None:
    """The rows in the log are still named by the primary key."""
    followed.run("CREATE TABLE source (id int PRIMARY KEY, note text, amount int)")
    followed.run("ALTER TABLE source REPLICA IDENTITY FULL; INSERT INTO source VALUES (1, 'a', 1)")
    begin = unmarked(followed.start())
    followed.run("UPDATE source SET amount = 2; UPDATE source SET id = 2")
    followed.run(change)
    assert tuples(followed.read(begin), [OP, "id", "note", "amount"]) == [
        (UPDATE, 1, "a", 2), (DELETE, 1, "a", 2), (INSERT, 2, "a", 2)
    ]  # fmt: skip


def test_a_key_that_takes_over_the_name_of_another_column(followed: Followed) -> None:
    """In the log the name is that of the other one, which never named a row."""
    followed.run("CREATE TABLE source (uuid text PRIMARY KEY, id int, name text)")
    followed.run("ALTER TABLE source REPLICA IDENTITY FULL; INSERT INTO source VALUES ('a', 1, '')")
    begin = unmarked(followed.start())
    followed.run("UPDATE source SET uuid = 'b'")
    followed.run("ALTER TABLE source RENAME id TO legacy_id")
    followed.run("ALTER TABLE source RENAME uuid TO id")
    assert tuples(followed.read(begin), [OP, "uuid"]) == [(DELETE, "a"), (INSERT, "b")]


def test_another_primary_key_before_a_change_of_the_old_one_is_read(followed: Followed) -> None:
    """The log has whole rows, and nothing of either key: the position has the old one."""
    followed.make("id int PRIMARY KEY, code text NOT NULL, name text")
    followed.run("ALTER TABLE source REPLICA IDENTITY FULL")
    followed.run("INSERT INTO source VALUES (1, 'a', 'x'), (2, 'b', 'y')")
    followed.drain()
    followed.run("UPDATE source SET id = 10 WHERE id = 1")
    followed.run("ALTER TABLE source DROP CONSTRAINT source_pkey, ADD PRIMARY KEY (code)")
    followed.run("UPDATE source SET code = 'c' WHERE id = 2")
    followed.drain()
    assert followed.same()
    begin = followed.position()
    followed.run("UPDATE source SET name = 'z' WHERE id = 10")
    assert tuples(followed.read(begin), [OP, "id"]) == [(UPDATE, 10)]


GONE = "........pg.dropped.2........"


@pytest.mark.parametrize(
    ("key", "logged", "now", "former"),
    [
        (["id"], ["id", "name"], ["id", "name"], ("id",)),
        (["ident"], ["id", "name"], ["ident", "name"], ("id",)),
        (["ident"], ["id", "name"], ["ident", "name", "later"], ("id",)),
        (["ident", "name"], ["id", "no", "name"], ["ident", "nr", "name"], ("id", "name")),
        (["nr"], ["id", "no", "name"], ["ident", "nr", "name"], ("no",)),
        (["b"], ["a", "old", "c"], ["a", GONE, "b", "c"], ()),  # it may have been either
        (["b"], ["a", "c"], ["a", "b", "c"], ()),  # it is not published
        (["later"], ["id", "name"], ["id", "name", "later"], ()),
        (["b"], ["a", "b"], ["b", "a"], ()),  # they have exchanged their names
        (["id"], ["id", "a", "b"], ["id", "b", "a"], ("id",)),  # others have
        (["id"], ["id", "note", "n"], ["id", GONE, "n", "note"], ("id",)),  # one is another by now
        (["id"], ["note", "id", "n"], [GONE, "id", "n", "note", "x", "y"], ("id",)),
        (["id"], ["note", "id"], [GONE, "id", "note", "x"], ()),  # either name was used again
        (["id"], ["uuid", "id", "n"], ["id", "legacy_id", "n"], ("uuid",)),
        (["id"], ["uuid", "id", "n"], ["id", "legacy_id", "n", "x"], ("uuid",)),
        (["id"], ["uuid", "id"], ["id", "legacy_id", "x"], ()),
        (["id"], ["id", "uuid"], ["old_id", "id", "x"], ()),
        (["id"], ["n", "id", "uuid"], ["n", "old_id", "id", GONE], ()),
        (["a"], ["a", "b"], ["b", "a", "x"], ()),
        (["key"], ["a", "id"], ["a", "key", "new"], ()),  # `key` may be generated
        ([], ["id"], ["id"], ()),
        (["id"], ["id"], [], ()),  # the table is gone
    ],
)
def test_what_a_key_was_called_in_the_log(
    key: list[str], logged: list[str], now: list[str], former: tuple[str, ...]
) -> None:
    assert former_names(key, logged, {name: name == GONE for name in now}) == former


def test_partitions_come_under_the_name_of_their_root(followed: Followed) -> None:
    followed.run("CREATE TABLE source (id int, day date, name text, PRIMARY KEY (id, day)) "
                 "PARTITION BY RANGE (day)")  # fmt: skip
    followed.run(
        "CREATE TABLE old PARTITION OF source FOR VALUES FROM (MINVALUE) TO ('2026-01-01')"
    )
    followed.run("CREATE TABLE recent (name text, day date NOT NULL, id int NOT NULL)")
    followed.run("ALTER TABLE source ATTACH PARTITION recent FOR VALUES FROM ('2026-01-01') TO "
                 "(MAXVALUE)")  # fmt: skip
    followed.run("CREATE TABLE target (id int PRIMARY KEY, day date, name text)")
    followed.run("INSERT INTO source SELECT i, '2025-12-01'::date + i, 'x' FROM "
                 "generate_series(1, 60) i")  # fmt: skip
    followed.drain()
    assert followed.same()
    followed.run("UPDATE source SET day = day + 40 WHERE id > 50; DELETE FROM source WHERE id = 3; "
                 "UPDATE source SET day = '2026-06-01', name = 'moved' WHERE id = 1")  # fmt: skip
    batches = followed.read(followed.position(), frozenset({"table"}))
    assert {row for (row,) in tuples(batches, [system_name("table")])} == {
        f"{followed.schema}.source"
    }
    followed.drain()
    assert followed.same()


def test_a_partition_that_comes_just_before_the_first_load(followed: Followed) -> None:
    """After the session has looked at the tables, and before it takes its snapshot."""
    followed.run("CREATE TABLE source (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    followed.run("CREATE TABLE low PARTITION OF source FOR VALUES FROM (0) TO (100)")
    followed.run("INSERT INTO source VALUES (1)")
    with closing(followed.source.open("followed/late")) as session:
        followed.run("CREATE TABLE high PARTITION OF source FOR VALUES FROM (100) TO (200)")
        followed.run("INSERT INTO source VALUES (101)")
        span = session.plan(session.start(), followed.limit)
        batches = [b for piece in span.slices for b in followed.source.batches(piece, frozenset())]
    assert tuples(batches, ["id"]) == [(1,), (101,)]


def test_a_partitioned_table_that_has_no_partition_yet(followed: Followed) -> None:
    followed.run("CREATE TABLE source (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    followed.run("CREATE TABLE target (id int PRIMARY KEY)")
    assert followed.drain() == 0
    followed.run("CREATE TABLE low PARTITION OF source FOR VALUES FROM (0) TO (100)")
    followed.run("INSERT INTO source VALUES (1), (2)")
    assert followed.drain() == 2
    assert followed.same()


@pytest.mark.crash
def test_partitions_that_are_dropped_when_nothing_of_them_is_stored(followed: Followed) -> None:
    """What a run that died had planned to load is gone, and nothing takes its place."""
    followed.run("CREATE TABLE source (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    followed.run("CREATE TABLE target (id int PRIMARY KEY)")
    followed.run("CREATE TABLE low PARTITION OF source FOR VALUES FROM (0) TO (100)")
    followed.run("INSERT INTO source VALUES (1), (2)")
    assert followed.killed_at("postgresql.begin")
    followed.run("DROP TABLE low")
    followed.patience = 2
    assert followed.drain() == 0
    followed.run("CREATE TABLE low PARTITION OF source DEFAULT; INSERT INTO source VALUES (3)")
    assert followed.drain() == 1
    assert followed.same()


@pytest.mark.parametrize("published", [False, True])
def test_generated_columns_are_copied_or_named(
    followed: Followed, caplog: pytest.LogCaptureFixture, published: bool
) -> None:
    followed.run(
        "CREATE TABLE source (id int PRIMARY KEY, stored int GENERATED ALWAYS AS (id * 2) STORED, "
        "virtual int GENERATED ALWAYS AS (id * 3) VIRTUAL)"
    )
    followed.run("CREATE TABLE target (id int PRIMARY KEY, stored int)")
    if published:
        followed.run(
            f'CREATE PUBLICATION "{followed.schema}" FOR TABLE source '
            "WITH (publish_generated_columns = stored)"
        )
    followed.run("INSERT INTO source VALUES (1)")
    followed.drain()
    followed.run("INSERT INTO source VALUES (2); UPDATE source SET id = 3 WHERE id = 1")
    followed.drain()
    (warning,) = [text for text in caplog.messages if "generated columns" in text]
    assert f"{followed.schema}.source: {'' if published else 'stored, '}virtual. " in warning
    assert followed.rows() == [(2, 4 if published else None), (3, 6 if published else None)]


def test_columns_are_chosen_and_generated_ones_are_left_out(followed: Followed) -> None:
    followed.run("CREATE TABLE source (id int PRIMARY KEY, Name text, secret text, "
                 "double int GENERATED ALWAYS AS (id * 2) STORED)")  # fmt: skip
    followed.run("CREATE TABLE target (id int PRIMARY KEY, name text)")
    followed.options = {"excludeColumns": ["SECRET"]}
    followed.run("INSERT INTO source VALUES (1, 'a', 's')")
    followed.drain()
    followed.run("INSERT INTO source VALUES (2, 'b', 's'); UPDATE source SET secret = 't'")
    followed.drain()
    assert followed.rows() == [(1, "a"), (2, "b")]
    followed.options = {"includeColumns": ["id", "secret"], "excludeColumns": ["Secret"]}
    (loaded,) = followed.read()
    assert loaded.schema.names[:-2] == ["id"]


@pytest.mark.parametrize("option", ["excludeColumns", "includeColumns"])
def test_a_column_that_no_table_has(
    followed: Followed, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt name would copy what is to be left out; later the column may have been dropped."""
    followed.make("id int PRIMARY KEY, name text, secret text")
    followed.run("CREATE TABLE other (id int PRIMARY KEY, extra int)")
    wrong = {option: ["secert"] if option == "excludeColumns" else ["id", "secert"]}
    followed.options = wrong
    with pytest.raises(PermanentError, match=rf"{option} names secert, .*did you mean secret\?"):
        followed.drain()
    with pytest.raises(PermanentError, match=rf"{option} names secert"):
        followed.start()
    assert not followed.run("SELECT FROM pg_publication WHERE pubname = %s", followed.schema)
    tables = [f"{followed.schema}.source", f"{followed.schema}.other"]
    several = followed.but(tables=tables, **{option: ["SECRET", "extra"]})
    assert several.plan().slices
    followed.options = {}
    followed.drain()
    followed.options = wrong
    followed.drain()
    assert f"{option} names secert" in caplog.text


def test_row_filters_and_column_lists_of_the_publication(followed: Followed) -> None:
    followed.make("id int PRIMARY KEY, name text")
    followed.run("ALTER TABLE source ADD more text")
    publish = f'CREATE PUBLICATION "{followed.schema}" FOR TABLE source (id, name) WHERE (id < 10)'
    followed.run(publish)
    followed.run("INSERT INTO source VALUES (1, 'a', 'x'), (11, 'b', 'x')")
    followed.drain()
    followed.run("INSERT INTO source VALUES (2, 'c', 'x'), (12, 'd', 'x'); "
                 "UPDATE source SET id = 13 WHERE id = 1; "
                 "UPDATE source SET id = 3 WHERE id = 11")  # fmt: skip
    followed.drain()
    assert followed.rows() == [(2, "c"), (3, "b")]


def test_debezium_s_envelope(followed: Followed) -> None:
    followed.make("id int PRIMARY KEY, name text")
    followed.run("ALTER TABLE source REPLICA IDENTITY FULL; INSERT INTO source VALUES (1, 'a')")
    followed.options = {"envelopeFormat": "debezium"}
    begin = followed.start()
    (row,) = [json.loads(body)["payload"] for body in followed.bodies()]
    assert (row["op"], row["before"], row["after"]) == ("r", None, {"id": 1, "name": "a"})
    followed.run("INSERT INTO source VALUES (2, 'b'); UPDATE source SET name = 'B' WHERE id = 2; "
                 "DELETE FROM source WHERE id = 1; TRUNCATE source")  # fmt: skip
    found = [json.loads(body)["payload"] for body in followed.bodies(begin)]
    assert [(one["op"], one["before"], one["after"]) for one in found] == [
        ("c", None, {"id": 2, "name": "b"}),
        ("u", {"id": 2, "name": "b"}, {"id": 2, "name": "B"}),
        ("d", {"id": 1, "name": "a"}, None),
        ("t", None, None),
    ]
    assert {one["source"]["table"] for one in found} == {"source"}
    assert {one["source"]["schema"] for one in found} == {followed.schema}
    lsns = {one["source"]["lsn"] for one in found}
    batches = followed.read(begin, frozenset({"lsn", "operation", "xid", "committed_at"}))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert {row[system_name("lsn")] for row in rows} == lsns
    assert [row[system_name("operation")] for row in rows] == [
        "insert",
        "update",
        "delete",
        "truncate",
    ]
    assert all(row[system_name("xid")] and row[system_name("committed_at")] for row in rows)


def test_the_envelope_is_unwrapped_by_the_step(followed: Followed) -> None:
    followed.make("id int PRIMARY KEY, name text")
    followed.run("INSERT INTO source VALUES (1, 'a'), (2, 'b')")
    followed.options = {"envelopeFormat": "debezium"}
    followed.steps = (Transformation(DebeziumUnwrap.model_validate({})),)
    followed.drain()
    followed.run("UPDATE source SET name = 'A' WHERE id = 1; DELETE FROM source WHERE id = 2")
    followed.drain()
    assert followed.rows() == [(1, "A")]


def test_steps_see_rows_and_their_operations(followed: Followed) -> None:
    followed.run("CREATE TABLE source (id int PRIMARY KEY, name text)")
    followed.run("CREATE TABLE target (id int PRIMARY KEY, name text, op text)")
    followed.steps = (
        Transformation(InsertField.model_validate({"fields": {"op": "${metadata.operation}"}})),
    )
    followed.run("INSERT INTO source VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    followed.drain()
    followed.run("UPDATE source SET name = 'A' WHERE id = 1; DELETE FROM source WHERE id = 2; "
                 "UPDATE source SET id = 4 WHERE id = 3")  # fmt: skip
    followed.drain()
    assert followed.rows() == [(1, "A", "update"), (4, "c", "insert")]


@pytest.mark.parametrize("steps", [True, False])
def test_a_deletion_is_never_appended_as_a_row(followed: Followed, steps: bool) -> None:
    """With steps it is JSON on its way, and must not look like a row of nulls."""
    followed.run("CREATE TABLE source (id int PRIMARY KEY, name text)")
    followed.run("CREATE TABLE target (id int, name text)")
    followed.sink_options, followed.rejects = {}, Rejects("skip")
    if steps:
        followed.steps = (Transformation(InsertField.model_validate({"fields": {"name": "seen"}})),)
    followed.drain()
    followed.run("INSERT INTO source VALUES (1, 'seen'), (2, 'seen')")
    followed.run("DELETE FROM source WHERE id = 1; UPDATE source SET id = 3")
    reports = [*followed.reports()]
    assert followed.rows() == [(1, "seen"), (2, "seen"), (3, "seen")]
    assert sum(one.delta.rejected for one in reports) == 2


@pytest.mark.parametrize("steps", [True, False])
def test_a_deletion_without_the_key_of_the_sink_deletes_nothing(
    followed: Followed, steps: bool
) -> None:
    """The log has `id` only, and another row's `code` may be the same number."""
    followed.make("id int PRIMARY KEY, code int UNIQUE, name text")
    followed.run("ALTER TABLE target DROP CONSTRAINT target_pkey")
    followed.sink_options = {**UPSERTED, "conflictKey": "code"}
    followed.rejects = Rejects("skip")
    if steps:
        followed.steps = (Transformation(InsertField.model_validate({"fields": {"name": "x"}})),)
    followed.run("INSERT INTO source VALUES (1, 3, 'x'), (3, 7, 'x')")
    followed.drain()
    followed.run("DELETE FROM source WHERE id = 3")
    reports = [*followed.reports()]
    assert followed.rows() == [(1, 3, "x"), (3, 7, "x")]
    assert sum(one.delta.rejected for one in reports) == 1


@pytest.mark.parametrize("raw", [True, False])
def test_every_change_is_kept_where_a_table_is_appended_to(followed: Followed, raw: bool) -> None:
    followed.run("CREATE TABLE source (id int PRIMARY KEY, name text)")
    followed.sink_options = {"autoCreateTable": True, **({"rawMode": True} if raw else {})}
    followed.options = {} if raw else {"envelopeFormat": "debezium"}
    followed.run("INSERT INTO source VALUES (1, 'a')")
    followed.drain()
    followed.run("UPDATE source SET name = 'A'; DELETE FROM source")
    followed.drain()
    if raw:
        found = followed.run("SELECT data, _metadata->>'operation' FROM target ORDER BY id")
        assert found == [({"id": 1, "name": "a"}, "insert"), ({"id": 1, "name": "A"}, "update"),
                         ({"id": 1}, "delete")]  # fmt: skip
    else:
        found = followed.run("SELECT payload->>'op' FROM target")
        assert found == [("r",), ("u",), ("d",)]


def test_a_soft_delete_marks_the_row(followed: Followed) -> None:
    followed.run("CREATE TABLE source (id int PRIMARY KEY, name text)")
    followed.run("CREATE TABLE target (id int PRIMARY KEY, name text, gone timestamptz)")
    followed.sink_options = {**UPSERTED, "deleteMode": "soft", "softDeleteColumn": "gone"}
    followed.run("INSERT INTO source VALUES (1, 'a'), (2, 'b')")
    followed.drain()
    followed.run("DELETE FROM source WHERE id = 1")
    followed.drain()
    assert followed.run("SELECT id, name, gone IS NOT NULL FROM target ORDER BY 1") == [
        (1, "a", True), (2, "b", False)]  # fmt: skip


def test_a_column_that_is_added_while_the_flow_runs(followed: Followed) -> None:
    """It stops at the change that has it, and goes on once the target has the column."""
    followed.make("id int PRIMARY KEY, name text")
    followed.drain()
    followed.run("INSERT INTO source VALUES (1, 'a')")
    followed.run("ALTER TABLE source ADD more int; INSERT INTO source VALUES (2, 'b', 7)")
    with pytest.raises(PermanentError, match="delivers columns that the target lacks: more"):
        followed.drain()
    followed.run("ALTER TABLE target ADD more int")
    followed.drain()
    assert followed.same()
    followed.run("ALTER TABLE source DROP name; INSERT INTO source VALUES (3, 8)")
    followed.drain()
    assert followed.rows()[-1] == (3, None, 8)


@pytest.mark.parametrize("steps", [True, False])
def test_a_deletion_that_was_rejected_is_none_other_in_a_replay(
    followed: Followed, steps: bool
) -> None:
    """Of the entry the body is left, which has the key like any other row."""
    followed.make("id int PRIMARY KEY, name text")
    followed.run("CREATE TABLE held (id int REFERENCES target DEFERRABLE)")
    followed.rejects = Rejects("table")
    if steps:
        followed.steps = (Transformation(InsertField.model_validate({"fields": {"name": "x"}})),)
    followed.run("INSERT INTO source VALUES (1, 'x'), (2, 'x')")
    followed.drain()
    followed.run("INSERT INTO held VALUES (1); DELETE FROM source WHERE id = 1")
    assert sum(one.delta.rejected for one in followed.reports()) == 1
    followed.run("DROP TABLE held")
    assert followed.replay() == (1, 0)
    assert followed.rows() == [(2, "x")]


@pytest.mark.parametrize("steps", [True, False])
def test_a_deletion_that_cannot_be_appended_is_not_appended_by_a_replay(
    followed: Followed, steps: bool
) -> None:
    followed.run("CREATE TABLE source (id int PRIMARY KEY, name text)")
    followed.run("CREATE TABLE target (id int, name text)")
    followed.sink_options, followed.rejects = {}, Rejects("table")
    if steps:
        followed.steps = (Transformation(InsertField.model_validate({"fields": {"name": "x"}})),)
    followed.run("INSERT INTO source VALUES (1, 'x')")
    followed.drain()
    followed.run("DELETE FROM source")
    assert sum(one.delta.rejected for one in followed.reports()) == 1
    assert followed.replay() == (0, 1)
    assert followed.rows() == [(1, "x")]
