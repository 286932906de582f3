"""Several queries into one table: which keys keep their rows apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataflow_assets.manifests.load import load
from tests.languages.sql.reader.reading import PLAIN, SOURCE, TARGET, UPSERTS, loaded

VS = UPSERTS.replace("TABLE u", "TABLE v")


FROM_U, FROM_V = (f"SELECT id, b FROM {name} WHERE id > 3" for name in "uv")


FROM_S = "SELECT a, b FROM s"


@pytest.mark.parametrize(
    "inserts",
    [
        (FROM_S, "SELECT id, b FROM u WHERE b <> 'x'"),
        (FROM_S, FROM_U),
        (FROM_U, FROM_S),
        (FROM_U, FROM_V),
        (f"{FROM_U} UNION ALL {FROM_V}",),
    ],
)
def test_upserts_beside_another_insert_need_one_more_column_in_the_key(
    tmp_path: Path, inserts: tuple[str, ...]
) -> None:
    """A delete of one would delete the row of the other one."""
    texts = [f"INSERT INTO o {one};" for one in inserts]
    together = f"EXECUTE STATEMENT SET BEGIN\n{chr(10).join(texts)}\nEND;"
    for statements in (texts, [together]):
        (told,) = loaded(tmp_path, SOURCE, TARGET, UPSERTS, VS, *statements).findings
        assert "writes into the same table, and its rows may have the same PRIMARY KEY (k)" in (
            told.message
        )
    wide = TARGET.replace("(k BIGINT", "(kind STRING, k BIGINT").replace("KEY (k)", "KEY (kind, k)")
    first, second = "\n".join(texts).split("SELECT")[1:]
    apart = f"INSERT INTO o SELECT 'a', {first} SELECT 'b', {second}"
    found = loaded(tmp_path, SOURCE, wide, UPSERTS, VS, apart)
    assert (len(found.flows), found.findings) == (2, ())
    (told,) = loaded(tmp_path, SOURCE, wide, UPSERTS, VS, apart.replace("'b'", "'a'")).findings
    assert "PRIMARY KEY (kind, k)" in told.message


def test_rows_that_only_come_may_go_into_one_key(tmp_path: Path) -> None:
    both = "INSERT INTO o SELECT a, b FROM s;INSERT INTO o SELECT a, b FROM w;"
    found = loaded(tmp_path, SOURCE, SOURCE.replace("TABLE s", "TABLE w"), TARGET, both)
    assert (len(found.flows), found.findings) == (2, ())


KINDS = """CREATE TABLE o (kind STRING, k BIGINT, n BIGINT, PRIMARY KEY (kind, k) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = 'o', 'properties.bootstrap.servers' = 'k:9092',
'key.format' = 'json', 'value.format' = 'json');"""


COUNTS = "SELECT {}, a, COUNT(*) FROM {} GROUP BY a"


def test_groups_of_several_queries_are_told_apart_by_a_constant_of_their_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    tables = (SOURCE, SOURCE.replace("TABLE s", "TABLE w"), KINDS)
    first, second = COUNTS.format("'x'", "s"), COUNTS.format("'y'", "w")
    both = loaded(tmp_path, *tables, f"INSERT INTO o {first} UNION ALL {second};")
    assert [one.id for one in both.flows] == ["default/o.s", "default/o.w"]
    again = COUNTS.format("'x'", "w")
    for inserts in (
        f"INSERT INTO o {first} UNION ALL {again};",
        f"INSERT INTO o SELECT b, a, a FROM w;INSERT INTO o {first};",
        f"INSERT INTO o {first};INSERT INTO o SELECT b, a, a FROM w;",
    ):
        (told,) = loaded(tmp_path, *tables, inserts).findings
        assert told.message.startswith("the INSERT in line 6 writes into the same table"), inserts
    twice = f"INSERT INTO o {first} UNION ALL {COUNTS.format(chr(39) + 'y' + chr(39), 's')};"
    (told,) = loaded(tmp_path, *tables, twice).findings
    assert told.message.endswith("declare the table again, CREATE TABLE another LIKE s")


INNER = "SELECT kind, a, COUNT(*) FROM (SELECT {} AS kind, a FROM {}) GROUP BY kind, a"


RANKED = (
    "SELECT kind, a, 1 FROM (SELECT {} AS kind, a, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) "
    "AS rn FROM {}) WHERE rn = 1"
)


@pytest.mark.parametrize("kind", ["'{}'", "UPPER('{}')", "CAST('{}' AS VARCHAR(3))", "'{}' || 'z'"])
@pytest.mark.parametrize("query", [COUNTS, INNER, RANKED])
def test_a_constant_of_the_key_may_be_computed_or_grouped_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, kind: str
) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    tables = (SOURCE, SOURCE.replace("TABLE s", "TABLE w"), KINDS)
    first, second = query.format(kind.format("x"), "s"), query.format(kind.format("y"), "w")
    found = loaded(tmp_path, *tables, f"INSERT INTO o {first};INSERT INTO o {second};")
    assert (len(found.flows), found.findings) == (2, ())
    same = query.format(kind.format("x"), "w")
    assert loaded(tmp_path, *tables, f"INSERT INTO o {first};INSERT INTO o {same};").findings


def test_the_present_keeps_no_rows_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    query = COUNTS.format("CAST(CURRENT_DATE AS STRING)", "s")
    (told,) = loaded(tmp_path, SOURCE, KINDS, f"INSERT INTO o {query};").findings
    assert "must be the columns of GROUP BY" in told.message


def test_all_rows_as_one_group_may_have_a_number_as_their_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which Flink casts by itself into the type of the column."""
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    found = loaded(tmp_path, SOURCE, KINDS, "INSERT INTO o SELECT 'all', 1, COUNT(*) FROM s;")
    assert (len(found.flows), found.findings) == (1, ())


def test_two_flows_must_not_begin_where_the_other_one_is(tmp_path: Path) -> None:
    grouped = SOURCE.replace(PLAIN, f"{PLAIN}, 'properties.group.id' = 'g'")
    other = TARGET.replace("TABLE o", "TABLE p").replace("'o'", "'p'")
    inserts = ("INSERT INTO o SELECT a, b FROM s;", "INSERT INTO p SELECT a, b FROM s;")
    (told,) = loaded(tmp_path, grouped, TARGET, other, *inserts).findings
    assert (told.line, told.path) == (5, "INSERT INTO p")
    assert told.message.startswith("the INSERT in line 4 reads this topic with the same prop")
    earliest = grouped.replace("'g'", "'g', 'scan.startup.mode' = 'earliest-offset'")
    assert len(loaded(tmp_path, earliest, TARGET, other, *inserts).flows) == 2
    found = loaded(tmp_path, SOURCE, TARGET, other, *inserts).flows
    assert len({getattr(flow.source, "consumer_group", "") for flow in found}) == 2


FAR = KINDS.replace("TABLE o", "TABLE other")


@pytest.mark.parametrize(
    "second", ["INSERT INTO other {};", "INSERT INTO other SELECT b, a, a FROM w;"]
)
@pytest.mark.parametrize("files", [1, 2])
def test_queries_with_state_into_one_topic_are_found_wherever_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, second: str
) -> None:
    """Under two names of its table, in one file or in two."""
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    first = [
        "-- one",
        SOURCE,
        KINDS,
        f"INSERT INTO o {COUNTS.format(chr(39) + 'x' + chr(39), 's')};",
    ]
    again = second.format(COUNTS.format("'x'", "w"))
    rest = [SOURCE.replace("TABLE s", "TABLE w"), FAR, again]
    parts = [first + rest] if files == 1 else [first, rest]
    for number, part in enumerate(parts):
        (tmp_path / f"{number}.sql").write_text("\n".join(part))
    found = load(tmp_path)
    assert found.flows == ()
    places = [f"{one.file}:{one.line}" for one in found.findings]
    line = "\n".join(first).count("\n") + 1
    here, there = f"{tmp_path / '0.sql'}:{line}", f"{tmp_path / f'{files - 1}.sql'}:"
    there += str((line if files == 1 else 0) + "\n".join(rest).count("\n") + 1)
    assert places == [here, there]
    told = [one.message for one in found.findings]
    assert told[0].startswith(f"the INSERT in {there} writes into o too, and its rows")
    assert told[1].startswith(f"the INSERT in {here} writes into o too, and its rows")


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        ("1", "2", True),
        ("1", "CAST('01' AS INT)", False),
        ("1", "CAST(1.4 AS INT)", False),
        ("1", "CAST('x' AS INT)", False),
        ("2", "CAST(CAST('1.4' AS DOUBLE) AS INT)", True),
    ],
)
def test_constants_of_a_key_are_compared_behind_their_casts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str, *, apart: bool
) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    counted, plain = COUNTS.format(first, "s"), f"SELECT {second}, a, a FROM s"
    for target, query in (("o", counted), ("other", plain)):
        into = KINDS.replace("TABLE o (kind STRING", f"TABLE {target} (kind INT")
        (tmp_path / f"{target}.sql").write_text(f"{SOURCE}{into}INSERT INTO {target} {query};")
    found = load([tmp_path / "o.sql", tmp_path / "other.sql"])
    assert len(found.flows) == (2 if apart else 0)
    assert len(found.findings) == (0 if apart else 2)


def test_queries_with_state_into_one_topic_may_have_keys_that_are_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    for name, into, kind in (("one", KINDS, "'x'"), ("two", FAR, "'y'")):
        insert = f"INSERT INTO {'o' if into is KINDS else 'other'} {COUNTS.format(kind, 's')};"
        (tmp_path / f"{name}.sql").write_text(f"{SOURCE}{into}{insert}")
    found = load([tmp_path / "one.sql", tmp_path / "two.sql"])
    assert [one.id for one in found.flows] == ["default/o.s", "default/other.s"]
