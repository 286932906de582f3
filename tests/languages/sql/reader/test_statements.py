"""SQL files and the flows that they come to."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dataflow_assets.connectors.kafka import KafkaSink, KafkaSource
from dataflow_assets.languages.sql.kafka_values import TableWriter
from dataflow_assets.manifests.load import load
from dataflow_assets.records.record import Record
from dataflow_assets.records.step import Context
from tests import ROOT
from tests.languages.sql.reader.reading import (
    DATABASE,
    PLAIN,
    SOURCE,
    TARGET,
    UPSERTS,
    loaded,
    one,
    step,
)


def test_an_insert_is_a_flow(tmp_path: Path) -> None:
    flow = one(loaded(tmp_path, SOURCE, TARGET, "INSERT INTO o SELECT a, b FROM s WHERE a > 1;"))
    assert (flow.id, flow.line, flow.language) == ("default/o.s", 3, "sql")
    assert isinstance(flow.source, KafkaSource)
    assert flow.source.consumer_group == "KafkaSource-o.s"
    assert flow.source.starting_offsets == "group"
    sink = flow.branches[0].sink
    assert isinstance(sink, KafkaSink)
    assert isinstance(sink.values, TableWriter)
    assert (sink.topic, sink.upsert_mode, sink.values.layouts.key_columns) == ("o", True, ("k",))
    assert step(flow).origins("k") == frozenset({"a"})


def test_an_upsert_table_is_read_from_the_earliest_with_its_key(tmp_path: Path) -> None:
    flow = one(loaded(tmp_path, UPSERTS, TARGET, "INSERT INTO o SELECT id, b FROM u"))
    assert isinstance(flow.source, KafkaSource)
    assert flow.source.starting_offsets == "earliest"
    assert "key" in step(flow).reads()


def test_the_hash_is_of_what_a_flow_does_not_of_its_spelling(tmp_path: Path) -> None:
    def hashed(query: str) -> str:
        return one(loaded(tmp_path, SOURCE, TARGET, f"INSERT INTO o {query}")).hash

    first = hashed("SELECT a, b FROM s WHERE a > 1")
    assert hashed("select a, -- a comment\n  s.b from s\nwhere a > 1;") == first
    assert hashed("SELECT a, b FROM s WHERE a > 2") != first
    accepted = f"SET 'dataflow.acceptEqualKeys' = 'a'; {TARGET}"
    found = one(loaded(tmp_path, SOURCE, accepted, "INSERT INTO o SELECT a, b FROM s WHERE a > 1"))
    assert found.hash != first, "what an error has told to write is tried at once"


def test_views_subqueries_and_like(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        SOURCE,
        TARGET,
        "CREATE TABLE copy WITH ('topic' = 'c') LIKE o;",
        "CREATE VIEW w (x, y) AS SELECT a + 1, UPPER(b) FROM s WHERE a > 1;",
        "INSERT INTO copy SELECT x, n.y FROM (SELECT x, y FROM w WHERE y <> 'A') AS n;",
    )
    flow = one(found)
    assert flow.id == "default/copy.s"
    assert flow.branches[0].sink.address().name == "c"
    assert step(flow).plan.where is not None
    assert step(flow).origins("v") == frozenset({"b"})


WIDE = (
    f"CREATE TABLE w (a BIGINT, b STRING, c AS a + 1, p INT METADATA FROM 'partition' VIRTUAL, "
    f"ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ({PLAIN});"
)


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ("", "", ""),
        ("", "EXCLUDING GENERATED", ""),
        ("(c AS a * 2)", "OVERWRITING GENERATED", ""),
        ("(p BIGINT METADATA FROM 'offset' VIRTUAL)", "OVERWRITING METADATA", ""),
        ("(WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)", "OVERWRITING WATERMARKS", ""),
        ("(WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)", "", "both tables have a WATERMARK"),
        ("(c AS a * 2)", "", "the column c is in both tables"),
        ("(a BIGINT)", "OVERWRITING GENERATED", "the column a is in both tables"),
        ("", "INCLUDING OPTIONS", "the option topic is in both tables: write OVERWRITING OPTIONS"),
        ("", "EXCLUDING OPTIONS", "is required"),
    ],
)
def test_what_like_takes_over(tmp_path: Path, columns: str, options: str, says: str) -> None:
    like = f"CREATE TABLE x {columns} WITH ('topic' = 'x') LIKE w ({options});"
    found = loaded(tmp_path, WIDE, TARGET, like, "INSERT INTO o SELECT a, b FROM x")
    if says:
        assert found.findings[0].message.startswith(says)
    else:
        assert isinstance(one(found).source, KafkaSource)


def test_a_statement_set_is_a_flow_for_each_insert(tmp_path: Path) -> None:
    other = TARGET.replace("TABLE o", "TABLE p").replace("'o'", "'p'")
    inserts = "INSERT INTO o SELECT a, b FROM s; INSERT INTO p SELECT a, b FROM s;"
    for begin in ("EXECUTE STATEMENT SET BEGIN", "BEGIN STATEMENT SET;"):
        found = loaded(tmp_path, SOURCE, TARGET, other, f"{begin} {inserts} END;")
        assert found.findings == ()
        assert [flow.id for flow in found.flows] == ["default/o.s", "default/p.s"]


def test_each_query_of_a_union_is_a_flow(tmp_path: Path) -> None:
    other = SOURCE.replace("TABLE s", "TABLE w").replace("'t'", "'w'")
    query = "INSERT INTO o (v, k) (SELECT b, a FROM s) UNION ALL SELECT b, a FROM w WHERE a > 1;"
    found = loaded(tmp_path, SOURCE, other, TARGET, query)
    assert found.findings == ()
    first, second = found.flows
    assert [first.id, second.id] == ["default/o.s", "default/o.w"]
    assert step(first).plan.where is None
    assert step(second).plan.where is not None
    assert step(first).text == step(second).text == query.removesuffix(";")


def test_tables_of_another_file_of_the_folder(tmp_path: Path) -> None:
    insert = "CREATE TABLE copy WITH ('topic' = 'c') LIKE o; INSERT INTO copy SELECT a, b FROM s;"
    (tmp_path / "tables.sql").write_text(f"{SOURCE}{TARGET}")
    (tmp_path / "job.sql").write_text(insert)
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "job.sql").write_text(insert)
    for path in (tmp_path / "job.sql", tmp_path):
        found = load(path)
        assert [flow.id for flow in found.flows] == ["default/copy.s"]
        wrong = [Path(each.file).parent.name for each in found.findings]
        assert wrong == ([] if path.is_file() else ["deeper"] * 2)
    (tmp_path / "tables.sql").write_text(f"{SOURCE.replace('json', 'jsn')}{TARGET}")
    (told,) = load(tmp_path / "job.sql").findings
    assert told.message == "s is declared in tables.sql, which has findings about it"
    (tmp_path / "more.sql").write_text(SOURCE)
    (told,) = load(tmp_path / "job.sql").findings
    assert told.message.startswith("several files of this folder declare s: more.sql, tables.sql")


def test_a_folder_of_many_files_is_not_looked_up_for_each_pair_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        names = ((f"TABLE {one}", f"TABLE {one}{number}") for one in "so")
        text = f"{SOURCE}{TARGET}INSERT INTO o{number} SELECT a, b FROM s{number};"
        for name, new in names:
            text = text.replace(name, new)
        (tmp_path / f"{number}.sql").write_text(text)
    resolve, resolved = Path.resolve, list[Path]()

    def counted(path: Path) -> Path:
        resolved.append(path)
        return resolve(path)

    monkeypatch.setattr(Path, "resolve", counted)
    assert load(tmp_path).findings == ()
    assert len(resolved) <= 20


def test_files_that_a_new_release_has_kept_are_beside_those_that_it_has_changed(
    tmp_path: Path,
) -> None:
    """Releases share files that are the same, as `rsync --link-dest` leaves them."""
    insert = "INSERT INTO o SELECT a, b FROM s;"
    current, releases = tmp_path / "current", [tmp_path / "1", tmp_path / "2"]
    for release in releases:
        release.mkdir()
    (releases[0] / "tables.sql").write_text(f"{SOURCE}{TARGET}")
    (releases[1] / "tables.sql").hardlink_to(releases[0] / "tables.sql")
    (releases[0] / "job.sql").write_text(insert)
    (releases[1] / "job.sql").write_text(f"{insert} -- changed")
    for release in releases:
        current.unlink(missing_ok=True)
        current.symlink_to(release)
        assert [flow.id for flow in load(current).flows] == ["default/o.s"]


def test_settings_are_of_the_statements_behind_them(tmp_path: Path) -> None:
    other = TARGET.replace("TABLE o", "TABLE p").replace("'o'", "'p'")
    found = loaded(
        tmp_path,
        SOURCE,
        TARGET,
        other,
        "INSERT INTO o SELECT a, b FROM s;",
        "SET 'table.exec.sink.not-null-enforcer' = 'DROP';",
        "SET dataflow.onRejected = fail;",
        "SET 'dataflow.freshness' = '60'; SET 'pipeline.name' = 'x'; SET 'nonsense' = '1';",
        "INSERT INTO p SELECT a, b FROM s;",
    )
    first, second = found.flows
    assert not step(first).plan.drops_nulls
    assert step(second).plan.drops_nulls
    assert (first.policies.rejects.way, second.policies.rejects.way) == ("table", "fail")
    assert second.policies.freshness_seconds == 60
    notes = [(hint.path, hint.line) for hint in found.hints]
    assert notes == [("SET pipeline.name", 7), ("SET nonsense", 7)]


def test_properties_reach_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "x")
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    secured = (
        f"{PLAIN}, 'properties.security.protocol' = 'SASL_SSL', "
        "'properties.sasl.mechanism' = 'PLAIN', 'properties.sasl.jaas.config' = "
        f"""'{login} username="u" password="${{env:KAFKA_PASSWORD}}";', """
        "'properties.nonsense' = '1'"
    )
    source = SOURCE.replace(PLAIN, secured)
    found = loaded(tmp_path, source, TARGET, "INSERT INTO o SELECT a, b FROM s")
    flow = one(found)
    assert isinstance(flow.source, KafkaSource)
    assert flow.source.sasl is not None
    assert flow.source.sasl.username == "u"
    assert flow.source.sasl.password_secret_ref is not None
    assert flow.source.tls is not None
    said = [hint.message for hint in found.hints if hint.path == "nonsense"]
    assert said == ["has no effect: is not known here"]


def test_a_table_of_a_database_is_upserted_by_its_key(tmp_path: Path) -> None:
    table = (
        "CREATE TABLE p (k BIGINT, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = "
        "'postgresql', 'connectionString' = 'postgresql://u@h/d', 'table' = 'public.p');"
    )
    flow = one(loaded(tmp_path, SOURCE, table, "INSERT INTO p SELECT a, b FROM s"))
    sink: Any = flow.branches[0].sink
    assert (sink.upsert_mode, sink.conflict_key, sink.delete_mode) == (True, ("k",), "hard")
    keyless = table.replace(", PRIMARY KEY (k) NOT ENFORCED", "")
    flow = one(loaded(tmp_path, SOURCE, keyless, "INSERT INTO p SELECT a, b FROM s"))
    assert not flow.branches[0].sink.traits.upserts


def test_rows_of_deleted_keys_are_kept_where_the_table_says_so(tmp_path: Path) -> None:
    for options in ("'deleteMode' = 'soft', 'softDeleteColumn' = 'd'", "'softDeleteColumn' = 'd'"):
        insert = "INSERT INTO p SELECT a, b FROM s"
        flow = one(loaded(tmp_path, SOURCE, DATABASE.format(options), insert))
        sink: Any = flow.branches[0].sink
        assert sink.soft == "d"


def test_the_example_loads() -> None:
    found = load(ROOT / "examples" / "sql")
    assert [flow.id for flow in found.flows] == [
        "default/adults.users",
        "default/adults_in_postgresql.users",
    ]
    assert found.findings == ()


@pytest.mark.parametrize(
    "insert",
    [
        "INSERT INTO o WITH x AS (SELECT a, b FROM s WHERE a > 0) SELECT a, b FROM x",
        "INSERT INTO o (k, v) WITH x (k, v) AS (SELECT a, b FROM s) SELECT k, v FROM x WHERE k > 0",
        "INSERT INTO o WITH s AS (SELECT a, b FROM s WHERE a > 0) SELECT * FROM s",
        (
            "INSERT INTO o WITH x AS (SELECT * FROM s), o AS (SELECT a, b FROM x WHERE a > 0) "
            "SELECT y.a, y.b FROM o AS y"
        ),
        (
            "CREATE VIEW v AS WITH x AS (SELECT a, b FROM s WHERE a > 0) SELECT * FROM x; "
            "INSERT INTO o SELECT * FROM v"
        ),
    ],
)
def test_queries_of_with_have_names_in_their_statement(tmp_path: Path, insert: str) -> None:
    plain = one(loaded(tmp_path, SOURCE, TARGET, "INSERT INTO o SELECT a, b FROM s WHERE a > 0"))
    flow = one(loaded(tmp_path, SOURCE, TARGET, insert))
    assert (flow.id, flow.hash) == (plain.id, plain.hash)


def test_names_of_with_end_with_their_statement(tmp_path: Path) -> None:
    other = "CREATE TABLE copy WITH ('topic' = 'c') LIKE o;"
    insert = "INSERT INTO {} WITH x AS (SELECT a, b FROM s) SELECT * FROM {};"
    twice = loaded(
        tmp_path, SOURCE, TARGET, other, insert.format("o", "x"), insert.format("copy", "x")
    )
    assert (len(twice.flows), twice.findings) == (2, ())
    behind = loaded(
        tmp_path, SOURCE, TARGET, insert.format("o", "x"), "INSERT INTO o SELECT * FROM x"
    )
    assert "no table x above" in behind.findings[0].message
    again = insert.format("o", "x").replace(") SELECT *", "), x AS (SELECT a, b FROM s) SELECT *")
    assert "twice in this WITH" in loaded(tmp_path, SOURCE, TARGET, again).findings[0].message
    recursive = insert.format("o", "x").replace("WITH", "WITH RECURSIVE")
    assert "RECURSIVE" in loaded(tmp_path, SOURCE, TARGET, recursive).findings[0].message


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_the_text_of_an_insert_is_cut_where_it_begins_and_ends(tmp_path: Path, end: str) -> None:
    """Signs that some programs take for ends of lines do not move it into a table's options."""
    comment = f"-- a{end}b{end}c{end}d{end}e{end}f\n"
    insert = "INSERT INTO o\nSELECT a, b\nFROM s"
    flow = one(loaded(tmp_path, comment, SOURCE, TARGET, f"{insert};", "-- password = x"))
    assert step(flow).text == insert


def test_views_over_views_cost_no_more_at_each_level(tmp_path: Path) -> None:
    """40 levels, each of which uses the one below twice, are 40 parts and not 2^40."""
    views = [
        f"CREATE VIEW v{n} AS SELECT v + v AS v, b FROM v{n - 1} WHERE v <> {n};"
        for n in range(1, 41)
    ]
    first = "CREATE VIEW v0 AS SELECT a AS v, b FROM s;"
    flow = one(loaded(tmp_path, SOURCE, TARGET, first, *views, "INSERT INTO o SELECT * FROM v40"))
    assert len(step(flow).plan.shared) < 41
    row = step(flow).compile(Context(datetime(2026, 7, 20, tzinfo=UTC)))(
        Record({"a": 3, "b": "x"}, {})
    )
    assert row == Record({"k": 3 * 2**40, "v": "x"}, {})
