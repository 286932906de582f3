"""Statements that are refused or noted, and what a file full of mistakes comes to."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

from dataflow_assets.connectors.kafka import KafkaSink
from dataflow_assets.languages.sql.kafka_values import TableWriter
from dataflow_assets.languages.sql.reader.read import read
from dataflow_assets.manifests.load import load
from tests import ROOT
from tests.examples import examples
from tests.languages.sql.reader.hostile import EVERYTHING, TEXTS, spoilt
from tests.languages.sql.reader.reading import DATABASE, PLAIN, SOURCE, TARGET, WITH, loaded, one


@pytest.mark.parametrize("brokers", ["...", "${BROKERS}", "kafka"])
def test_brokers_that_are_none_are_told_once(tmp_path: Path, brokers: str) -> None:
    """Flink's page has `...` in their place."""
    source = SOURCE.replace("k:9092", brokers)
    (told,) = loaded(tmp_path, source, TARGET, "INSERT INTO o SELECT a, b FROM s").findings
    assert told.path == "bootstrap.servers"
    assert told.message.startswith("must be host:port")


@pytest.mark.parametrize("option", ["upsertMode", "conflictKey", "rawMode", "autoCreateTable"])
def test_what_the_declaration_says_is_no_option_of_a_database(tmp_path: Path, option: str) -> None:
    table = DATABASE.format(f"'{option}' = 'true'")
    found = loaded(tmp_path, SOURCE, table, "INSERT INTO p SELECT a, b FROM s")
    assert found.flows == ()
    assert option in {each.path for each in found.findings}


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("k INT, o BIGINT METADATA FROM 'offset'", "the column o is METADATA offset, which cannot"),
        (
            (
                "k INT, h MAP<STRING, BYTES> METADATA FROM 'headers', "
                "l ARRAY<ROW<key STRING, value BYTES>> METADATA FROM 'header-list'"
            ),
            "x has several columns of headers",
        ),
    ],
)
def test_metadata_that_cannot_be_written(tmp_path: Path, columns: str, says: str) -> None:
    other = PLAIN.replace("'t'", "'x'")
    table = f"CREATE TABLE x ({columns}) WITH ({other});"
    (told,) = loaded(tmp_path, SOURCE, table, "INSERT INTO x SELECT * FROM s").findings
    assert told.message.startswith(says)
    assert (told.line, told.column) == (3, 13)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE IF EXISTS s;",
        "DROP TEMPORARY VIEW IF EXISTS v;",
        "DROP DATABASE IF EXISTS demo CASCADE;",
        "CREATE DATABASE IF NOT EXISTS demo;",
        "CREATE DATABASE demo COMMENT 'x' WITH ('a' = 'b');",
        "CREATE CATALOG c WITH ('type' = 'generic_in_memory');",
        "USE demo;",
    ],
)
def test_statements_without_effect_are_notes(tmp_path: Path, statement: str) -> None:
    found = loaded(tmp_path, statement, SOURCE, TARGET, "INSERT INTO o SELECT a, b FROM s")
    assert one(found).id == "default/o.s"
    assert "has no effect" in found.hints[0].message


@pytest.mark.parametrize("type_", ["jdbc", "hive", "paimon"])
def test_a_catalog_that_brings_tables_is_refused(tmp_path: Path, type_: str) -> None:
    (told,) = loaded(tmp_path, f"CREATE CATALOG c WITH ('type' = '{type_}');").findings
    assert "write a CREATE TABLE for each of its tables" in told.message


@pytest.mark.parametrize("name", ["subject", "schema-registry.subject"])
def test_both_names_of_a_subject(tmp_path: Path, name: str) -> None:
    registry = "'value.format' = 'avro-confluent', 'value.avro-confluent.url' = 'http://r:1'"
    plain = "'connector' = 'kafka', " + WITH.replace("'t'", "'p'")
    table = (
        f"CREATE TABLE p (k BIGINT) WITH ({plain}, {registry}, 'value.avro-confluent.{name}' = 'x')"
    )
    flow = one(loaded(tmp_path, SOURCE, f"{table};", "INSERT INTO p SELECT a FROM s"))
    sink = flow.branches[0].sink
    assert isinstance(sink, KafkaSink)
    assert isinstance(sink.values, TableWriter)
    assert sink.values.layouts.value.subject == "x"


@pytest.mark.parametrize(
    ("statement", "column", "instead"),
    [
        ("WITH x AS (SELECT a FROM s) INSERT INTO o SELECT * FROM x", 1, "behind INSERT INTO"),
        ("CREATE CATALOG c", 8, "write a CREATE TABLE for each"),
        ("CREATE MATERIALIZED TABLE m AS SELECT 1", 8, "a CREATE TABLE and an INSERT INTO"),
        ("CREATE OR REPLACE TABLE x (a INT)", 8, "OR REPLACE is not supported: leave it out"),
        ("STOP JOB 'x'", 1, "SET 'dataflow.suspended' = 'true';"),
        ("CREATE TABLE x (a MULTISET<INT>)", 19, "docs/reference/sql.md lists all types"),
    ],
)
def test_each_refused_statement_says_what_to_write_instead(
    tmp_path: Path, statement: str, column: int, instead: str
) -> None:
    (told,) = loaded(tmp_path, statement).findings
    assert (told.line, told.column) == (1, column)
    assert instead in told.message


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    bad = "CREATE TABLE x (a INTT) WITH ('connector' = 'kafka');"
    found = loaded(tmp_path, bad, SOURCE, "SELCT;", "INSERT INTO nowhere SELECT q FROM s;")
    assert [one.line for one in found.findings] == [1, 3, 4, 4]


@pytest.mark.parametrize("part", ["(", "NOT ", "1 + ", "CASE WHEN TRUE THEN "])
def test_deep_nesting_is_a_finding(tmp_path: Path, part: str) -> None:
    query = f"INSERT INTO o SELECT a, b FROM s WHERE {part * 5000}a = 1"
    found = loaded(tmp_path, SOURCE, TARGET, query)
    assert found.flows == ()
    assert found.findings


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(text=spoilt() | spoilt((ROOT / "examples" / "sql" / "adults.sql").read_text()))
def test_no_text_breaks_the_reading(text: str) -> None:
    """Whatever is spoilt in a file is a finding, at a line of the file."""
    found = read(text, "one.sql")
    lines = text.count("\n") + 1
    assert all(1 <= each.line <= lines for one in found for each in one.findings)


def test_every_part_of_the_grammar_is_read() -> None:
    """What the test above spoils is right."""
    head, *flows = read(EVERYTHING, "one.sql")
    assert head.findings == ()
    assert len(flows) == 5


@pytest.mark.parametrize("value", TEXTS, ids=range(len(TEXTS)))
@pytest.mark.parametrize(
    "key",
    [
        *("csv.escape-character", "csv.field-delimiter", "csv.quote-character"),
        *("properties.transaction.timeout.ms", "scan.startup.timestamp-millis", "raw.charset"),
    ],
)
def test_no_value_of_an_option_breaks_the_reading(key: str, value: str) -> None:
    kind, mode = key.partition(".")[0], "'scan.startup.mode' = 'timestamp'"
    given = PLAIN.replace("json", kind if kind in ("csv", "raw") else "json")
    quoted = value.replace("'", "''")
    table = f"CREATE TABLE x (a STRING) WITH ({given}, {mode}, '{key}' = '{quoted}');"
    found = read(f"{table} {TARGET} INSERT INTO o SELECT 1, a FROM x;", "one.sql")
    assert all(each.line == 1 for one in found for each in one.findings)


SECRET = "hunter2-hunter2"
"""A password, wherever it may be written by mistake."""


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE TABLE x (a INT) WITH ('password' 'x' = '{SECRET}', '{SECRET}');",
        f"CREATE TABLE x (a INT) WITH ('password' = {SECRET});",
        f"CREATE TABLE x (a INT) WITH ('password' = 'it's {SECRET}');",
        f"SET 'table.local-time-zone' = '{SECRET}';",
        f"'{SECRET}'",
        f"SELECT 1 /*+ OPTIONS('password' = '{SECRET}') */",
        f"/*+ OPTIONS('password' = '{SECRET}') */ INSERT INTO x SELECT 1",
        f"INSERT INTO x /*+ OPTIONS('password' = '{SECRET}') */ SELECT 1",
        f"INSERT INTO x SELECT a FROM s /*+ OPTIONS('password' = {SECRET}) */",
        f"CREATE TABLE x (a INT) /*+ OPTIONS('password' = '{SECRET}') */ WITH ('a' = 'b')",
    ],
)
def test_a_value_is_never_in_a_message(tmp_path: Path, text: str) -> None:
    found = loaded(tmp_path, f"{text} {SOURCE} '{SECRET}'")
    assert found.findings
    assert not [one for one in found.findings if "hunter2" in str(one)]


def test_rows_of_rows_are_refused_before_they_fill_the_memory(tmp_path: Path) -> None:
    views = [f"CREATE VIEW v{n} AS SELECT (v, v) AS v FROM v{n - 1};" for n in range(1, 31)]
    found = loaded(tmp_path, SOURCE, "CREATE VIEW v0 AS SELECT a AS v FROM s;", *views)
    assert [each.message for each in found.findings] == [
        "ROW: the result is made of more than 1000 types"
    ]


def test_a_long_list_of_conditions_is_not_a_deep_one(tmp_path: Path) -> None:
    many = " OR ".join(f"a = {n}" for n in range(500))
    one(loaded(tmp_path, SOURCE, TARGET, f"INSERT INTO o SELECT a, b FROM s WHERE {many}"))
    deep = " + ".join(["a"] * 200)
    (told,) = loaded(tmp_path, SOURCE, TARGET, f"INSERT INTO o SELECT {deep}, b FROM s").findings
    assert told.message.startswith("an expression has more than 100 levels")


_INSERT = "INSERT INTO o SELECT a, b FROM s;"


@pytest.mark.parametrize(
    "mistake",
    [
        "SET 'table.local-time-zone' = 'Europe/Berln';",
        "SET 'table.exec.sink.type-length-enforcer' = 'ERROR';",
        "SET 'dataflow.suspended' = 'ture';",
        "SET 'dataflow.suspended' 'true';",
        "SETT 'dataflow.suspended' = 'true';",
        "ALTER TABLE s SET ('topic' = 'another');",
        "ALTER TABL s SET ('topic' = 'another');",
        "CREATE OR REPLACE TABLE s (a BIGINT, b STRING) WITH ('topic' = 'another');",
        "DROP TABLE s; CREATE TABLE s (a BIGINT, b STRING) WITH ('topic' = 'another');",
    ],
)
def test_no_flow_runs_with_what_a_mistake_in_front_of_it_leaves(
    tmp_path: Path, mistake: str
) -> None:
    """With the default zone, from the table's former topic, or although it is suspended."""
    found = loaded(tmp_path, SOURCE, TARGET, mistake, _INSERT)
    assert [one.line for one in found.findings] == [3]
    assert found.flows == ()
    if "TABLE" not in mistake:
        said = "no flow is made of it until line 3 is corrected"
        assert [(one.line, one.message) for one in found.hints] == [(4, said)]
        assert len(loaded(tmp_path, SOURCE, TARGET, _INSERT, mistake).flows) == 1


def test_a_table_that_is_altered_is_used_by_none_that_is_like_it(tmp_path: Path) -> None:
    altered, like = "ALTER TABLE s SET ('topic' = 'another');", "CREATE TABLE l LIKE s;"
    found = loaded(tmp_path, SOURCE, TARGET, altered, like, _INSERT.replace("s;", "l;"))
    assert [one.line for one in found.findings] == [3]
    assert found.flows == ()


def test_a_table_that_is_altered_is_used_by_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "tables.sql").write_text(f"{SOURCE}\nALTER TABLE s SET ('topic' = 'another');")
    (tmp_path / "one.sql").write_text(f"{TARGET}\n{_INSERT}")
    assert load(tmp_path).flows == ()


def test_a_set_that_shows_settings_is_noted(tmp_path: Path) -> None:
    found = loaded(tmp_path, "SET;", SOURCE, TARGET, _INSERT)
    assert (found.findings, len(found.flows)) == ((), 1)
    assert [one.message for one in found.hints] == ["SET has no effect here"]


@pytest.mark.parametrize("harmless", ["SELECT * FROM s;", "DELETE FROM o;", "CREATE TABLE x;"])
def test_what_changes_no_other_statement_stops_none(tmp_path: Path, harmless: str) -> None:
    found = loaded(tmp_path, SOURCE, TARGET, harmless, _INSERT)
    assert [flow.name for flow in found.flows] == ["o.s"]
    assert [one.line for one in found.findings] == [3]
