"""SQL files: what they come to, and what is told of each mistake, with line and column."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from dataflow_assets.connectors.kafka import KafkaSink, KafkaSource
from dataflow_assets.flow import Flow
from dataflow_assets.languages.sql.engine.query import SqlQuery
from dataflow_assets.languages.sql.kafka_values import TableWriter
from dataflow_assets.languages.sql.reader.read import read
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.manifests.load import Loaded, load
from dataflow_assets.records.record import Record
from dataflow_assets.records.step import Context
from tests import ROOT
from tests.examples import examples
from tests.languages.sql.files import PAGE_TABLES
from tests.languages.sql.hostile import EVERYTHING, TEXTS, spoilt

WITH = "'topic' = 't', 'properties.bootstrap.servers' = 'k:9092'"
PLAIN = f"'connector' = 'kafka', {WITH}, 'format' = 'json'"
KEYED = f"'connector' = 'upsert-kafka', {WITH}, 'key.format' = 'json', 'value.format' = 'json'"
SOURCE = f"CREATE TABLE s (a BIGINT, b STRING) WITH ({PLAIN});"
TARGET = (
    "CREATE TABLE o (k BIGINT, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ("
    + KEYED.replace("'t'", "'o'")
    + ");"
)
UPSERTS = f"CREATE TABLE u (id BIGINT, b STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ({KEYED});"
SEED = PAGE_TABLES.replace("'...'", "'k:9092'")


def loaded(tmp_path: Path, *statements: str) -> Loaded:
    path = tmp_path / "one.sql"
    path.write_text("\n".join(statements))
    return load(path)


def one(found: Loaded) -> Flow:
    assert found.findings == ()
    (flow,) = found.flows
    return flow


def findings(found: Loaded) -> list[tuple[int, int, str, str]]:
    return [(one.line, one.column, one.path, one.message) for one in found.findings]


def step(flow: Flow) -> SqlQuery:
    (found,) = flow.transformations
    assert isinstance(found.step, SqlQuery)
    return found.step


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


@pytest.mark.parametrize("brokers", ["...", "${BROKERS}", "kafka"])
def test_brokers_that_are_none_are_told_once(tmp_path: Path, brokers: str) -> None:
    """Flink's page has `...` in their place."""
    source = SOURCE.replace("k:9092", brokers)
    (told,) = loaded(tmp_path, source, TARGET, "INSERT INTO o SELECT a, b FROM s").findings
    assert told.path == "bootstrap.servers"
    assert told.message.startswith("must be host:port")


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


DATABASE = (
    "CREATE TABLE p (k BIGINT, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = "
    "'postgresql', 'url' = 'postgresql://u@h/d', 'table-name' = 'p', {});"
)


def test_rows_of_deleted_keys_are_kept_where_the_table_says_so(tmp_path: Path) -> None:
    for options in ("'deleteMode' = 'soft', 'softDeleteColumn' = 'd'", "'softDeleteColumn' = 'd'"):
        insert = "INSERT INTO p SELECT a, b FROM s"
        flow = one(loaded(tmp_path, SOURCE, DATABASE.format(options), insert))
        sink: Any = flow.branches[0].sink
        assert sink.soft == "d"


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


COUNTED = """
INSERT INTO pageviews_per_region
SELECT
  user_region,
  COUNT(*),
  COUNT(DISTINCT user_id)
FROM pageviews
GROUP BY user_region;
"""


def test_the_seed_is_a_flow_with_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    flow = one(loaded(tmp_path, SEED, COUNTED))
    assert flow.id == "default/pageviews_per_region.pageviews"
    assert isinstance(flow.source, ViewSource)
    assert flow.source.location.path == f"{tmp_path}/_state"
    (step,) = flow.transformations
    assert [step.step.origins(name) for name in ("user_region", "pv", "uv")] == [
        frozenset({"user_region"}),
        frozenset(),
        frozenset({"user_id"}),
    ]
    plain = "INSERT INTO pageviews_per_region SELECT user_region, page_id, user_id FROM pageviews;"
    assert one(loaded(tmp_path, SEED, plain)).id == "default/pageviews_per_region.pageviews"


def test_the_third_table_of_the_seed_is_read_and_written(tmp_path: Path) -> None:
    """As it is on the page; for its `...` the topic and the brokers."""
    table = f"""
CREATE TABLE KafkaTable (
  `ts` TIMESTAMP(3) METADATA FROM 'timestamp',
  `user_id` BIGINT,
  `item_id` BIGINT,
  `behavior` STRING,
  PRIMARY KEY (`user_id`) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  {WITH},

  'key.format' = 'json',
  'key.json.ignore-parse-errors' = 'true',

  'value.format' = 'json',
  'value.json.fail-on-missing-field' = 'false',
  'value.fields-include' = 'EXCEPT_KEY'
)
;"""
    other = "CREATE TABLE other WITH ('topic' = 'other') LIKE KafkaTable;"
    flow = one(loaded(tmp_path, table, other, "INSERT INTO other SELECT * FROM KafkaTable"))
    assert flow.id == "default/other.KafkaTable"
    row = step(flow).compile(Context(datetime(2026, 7, 20, tzinfo=UTC)))
    at = datetime(2020, 12, 30, 12, tzinfo=UTC)
    found = row(Record({"behavior": "buy"}, {"key": '{"user_id":7}', "timestamp": at}))
    body = {"ts": 1609329600000, "user_id": 7, "item_id": None, "behavior": "buy"}
    assert isinstance(found, Record)
    assert found.body == body


def test_state_needs_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATAFLOW_FILES", "DATAFLOW_STATE"):
        monkeypatch.delenv(name, raising=False)
    (told,) = loaded(tmp_path, SEED, COUNTED).findings
    assert told.line == 29
    assert told.message.startswith("the query keeps state, and has no place for it: SET 'dataf")
    placed = "SET 'dataflow.stateLocation' = 's3://bucket/states';"
    source = one(loaded(tmp_path, placed, SEED, COUNTED)).source
    assert isinstance(source, ViewSource)
    assert source.location.on_s3
    (told,) = loaded(tmp_path, placed.replace("s3://bucket/", "/"), SEED, COUNTED).findings
    assert told.message.startswith("the place of the state, /states: the folder is not below t")
    monkeypatch.setenv("DATAFLOW_FILES", "data")
    (told,) = loaded(tmp_path, SEED, COUNTED).findings
    assert told.message.startswith("the place of the state, data/_state: must be s3://bucket/pref")
    assert told.message.endswith("(DATAFLOW_FILES says where the state is)")


def test_the_example_loads() -> None:
    found = load(ROOT / "examples" / "sql")
    assert [flow.id for flow in found.flows] == [
        "default/adults.users",
        "default/adults_in_postgresql.users",
    ]
    assert found.findings == ()


MISTAKES: list[tuple[str, int, int, str]] = [
    ("SELCT 1;", 1, 1, "expected a statement, found SELCT; did you mean "),
    ("CREATE TABEL x (a INT)", 1, 8, "expected TABLE or VIEW, found TABEL"),
    ("DROP MODEL s;", 1, 1, "DROP is not supported: "),
    (f"CREATE TABLE x (a INTT) WITH ({PLAIN})", 1, 19, "INTT is not a type; did you mean INT?"),
    ("CREATE TABLE x (a INT", 1, 22, "expected , or ) behind a column, found the end of the"),
    ("CREATE TABLE x (a INT);", 1, 23, "table x: WITH is missing, and so the connector"),
    (f"CREATE TABLE x (a INT, a INT) WITH ({PLAIN})", 1, 24, "the column a is written twice"),
    (
        f"CREATE TABLE x (a INT, PRIMARY KEY (a)) WITH ({KEYED})",
        1,
        39,
        "a PRIMARY KEY is NOT ENFORCED in Flink",
    ),
    (
        f"CREATE TABLE x (a INT, PRIMARY KEY (b) NOT ENFORCED) WITH ({KEYED})",
        1,
        24,
        "PRIMARY KEY: no column b; allowed: a",
    ),
    (
        f"CREATE TABLE x (a INT, PRIMARY KEY (a) NOT ENFORCED) WITH ({PLAIN})",
        1,
        24,
        "a PRIMARY KEY needs the connector upsert-kafka",
    ),
    (
        f"CREATE TABLE x (a INT) WITH ({KEYED})",
        1,
        14,
        "PRIMARY KEY is required with upsert-kafka",
    ),
    (
        f"CREATE TABLE x (a TIMESTAMP(9)) WITH ({PLAIN})",
        1,
        28,
        "at most 6 digits of a second are kept, not 9",
    ),
    (
        f"CREATE TABLE x (a INT METADATA FROM 'headers') WITH ({PLAIN})",
        1,
        17,
        "METADATA headers is MAP<STRING, BYTES>, which cannot be cast to INT",
    ),
    (
        f"CREATE TABLE x (a INT METADATA FROM 'offst') WITH ({PLAIN})",
        1,
        17,
        "no METADATA offst; did you mean offset?",
    ),
    (
        f"CREATE TABLE x (a INT, WATERMARK FOR a AS a) WITH ({PLAIN})",
        1,
        24,
        "WATERMARK: a is INT, and no TIMESTAMP(3)",
    ),
    (
        "CREATE TABLE x (a INT) WITH (\n'connector' = 'kafak')",
        2,
        15,
        "is not supported; did you mean kafka?",
    ),
    (
        f"CREATE TABLE x (a INT) WITH (\n{PLAIN},\n'formt' = 'json')",
        3,
        1,
        "unknown option; did you mean format?",
    ),
    (
        f"CREATE TABLE x (a INT) WITH (\n{PLAIN.replace('json', 'jsn')})",
        2,
        93,
        "unknown format; did you mean json?",
    ),
    (
        f"CREATE TABLE x (a INT) WITH (\n{PLAIN},\n'scan.bounded.modes' = 'latest-offset')",
        3,
        1,
        "unknown option; did you mean scan.bounded.mode?",
    ),
    (
        f"CREATE TABLE x (a INT) WITH (\n{PLAIN},\n'csv.allow-comments' = 'true')",
        3,
        24,
        "is of the format csv, and the format is json",
    ),
    (
        f"CREATE TABLE x (a INT) WITH (\n{PLAIN},\n'key.fields' = 'a')",
        1,
        14,
        "is required with key.fields",
    ),
    (
        f"CREATE TABLE x (a INT) WITH (\n{PLAIN},\n'key.format' = 'json', 'key.fields' = 'z')",
        3,
        39,
        "no column z; allowed: a",
    ),
    (
        (
            f"CREATE TABLE x (a INT) WITH (\n{PLAIN},\n'json.fail-on-missing-field' = 'true',\n"
            "'json.ignore-parse-errors' = 'true')"
        ),
        3,
        32,
        "and json.ignore-parse-errors exclude each other: keep one",
    ),
    (
        f"CREATE TABLE x (a INT, b INT) WITH ({PLAIN.replace('json', 'raw')})",
        1,
        129,
        "raw is one column, and the value has 2",
    ),
    (f"{SOURCE}{SOURCE}", 1, None, "is declared twice in this file"),  # type: ignore[list-item]
    ("SET 'table.local-time-zone' = 'Berlin'", 1, 31, "is not a time zone"),
]


@pytest.mark.parametrize(
    ("text", "line", "column", "says"), MISTAKES, ids=[row[3][:40] for row in MISTAKES]
)
def test_a_mistake_in_a_declaration(
    tmp_path: Path, text: str, line: int, column: int | None, says: str
) -> None:
    found = loaded(tmp_path, text)
    assert found.flows == ()
    (told,) = found.findings
    assert told.message.startswith(says)
    assert (told.line, column or told.column) == (line, told.column)


TOP = "INSERT INTO o SELECT a, b FROM (SELECT *, ROW_NUMBER() OVER ("


@pytest.mark.parametrize(
    ("query", "column", "says"),
    [
        ("INSERT INTO o SELECT a FROM s", 15, "the query has 1 columns, and o takes 2: k, v"),
        ("INSERT INTO o SELECT a, B FROM s", 25, "no column B; did you mean b?"),
        ("INSERT INTO o SELECT 1.5, b FROM s", 22, "is DECIMAL(2, 1), and o.k is BIGINT"),
        ("INSERT INTO o SELECT b, b FROM s", 22, "is STRING, and o.k is BIGINT: write CAST(... AS"),
        (
            "INSERT INTO x SELECT a, b FROM s",
            13,
            "no table x above, or in another file of",
        ),
        (
            "INSERT INTO o SELECT a, b FROM t",
            32,
            "no table t above, or in another file of",
        ),
        ("INSERT INTO o (k, z) SELECT a, b FROM s", 13, "no column z in o; allowed: k, v"),
        ("INSERT INTO o (k, v, k) SELECT a, b, a FROM s", 13, "the column k is written twice"),
        ("INSERT INTO o SELECT a, b FROM s WHERE a", 40, "WHERE takes a condition, not BIGINT"),
        ("INSERT INTO o SELECT DISTINCT a, b FROM s", 13, "the PRIMARY KEY of o (k) must be the"),
        ("INSERT INTO o SELECT a, b FROM s GROUP BY a", 25, "b is neither in GROUP BY nor inside"),
        ("INSERT INTO o SELECT * FROM s GROUP BY a", 22, "* stands for columns that are not in GR"),
        ("INSERT INTO o SELECT a, LISTAGG(b) FROM s", 25, "LISTAGG is not supported; aggregates a"),
        (
            "INSERT INTO o SELECT a, SUM(b) FROM s GROUP BY a",
            25,
            "SUM: the argument is of type S",
        ),
        ("INSERT INTO o SELECT a, b FROM s WHERE COUNT(*) > 1", 40, "COUNT is an aggregate: it is"),
        (
            "INSERT INTO o SELECT MAX(MIN(a)), 'x' FROM s",
            26,
            "MIN is an aggregate: it is of",
        ),
        ("INSERT INTO o SELECT a, MAX(b, b) FROM s GROUP BY a", 25, "MAX takes 1 argument, not 2"),
        ("INSERT INTO o SELECT a, MAX(*) FROM s GROUP BY a", 29, "* is of COUNT(*) alone"),
        ("INSERT INTO o SELECT a + 1, MAX(b) FROM s GROUP BY a", 13, "the PRIMARY KEY of o (k) mu"),
        ("INSERT INTO o SELECT a, MAX(b) FROM s GROUP BY a, b", 13, "the PRIMARY KEY of o (k) mus"),
        ("INSERT INTO o SELECT a, MAX(b) FROM s GROUP BY CUBE (a)", 48, "CUBE is not sup"),
        ("INSERT INTO s SELECT a, MAX(b) FROM u GROUP BY a", 48, "no column a; allowed: id, b"),
        ("INSERT INTO s SELECT id, MAX(b) FROM u GROUP BY id", 13, "the query has updates and del"),
        ("INSERT INTO o SELECT a, b FROM s LIMIT 3", 34, "LIMIT is not sup"),
        ("INSERT INTO o SELECT s.a, s.b FROM s JOIN u ON TRUE", 38, "a join is not sup"),
        (
            "INSERT INTO o SELECT a, b FROM s UNION SELECT a, b FROM s",
            34,
            "UNION is not supported: write UNION ALL",
        ),
        (
            "INSERT INTO o SELECT a, b FROM s UNION ALL SELECT a, b FROM s",
            44,
            "a second query of s",
        ),
        (
            "INSERT INTO o SELECT a, b FROM s UNION ALL SELECT a FROM w",
            44,
            "the query has 1 columns",
        ),
        ("INSERT INTO o SELECT a, SUM(a) OVER (ORDER BY a) FROM s", 32, "OVER is supported with R"),
        ("INSERT INTO o SELECT a, ROW_NUMBER() OVER () FROM s", 44, "expected ORDER BY, found )"),
        (f"{TOP}ORDER BY b) AS n FROM s)", 43, "ROW_NUMBER() is supported for the first rows of"),
        (f"{TOP}ORDER BY b) AS n FROM s) WHERE n <= 3", 13, "the PRIMARY KEY of o (k) must have"),
        (f"{TOP}ORDER BY ROW(a)) AS n FROM s)", 71, "ORDER BY: ROW<EXPR$0 BIGINT> has no order"),
        (f"{TOP}ORDER BY a) AS n, ROW_NUMBER() OVER (ORDER BY b) AS m FROM s)", 80, "a second ROW"),
        ("INSERT INTO o SELECT 1 + ROW_NUMBER() OVER (ORDER BY b), b FROM s", 26, "ROW_NUMBER() "),
        ("INSERT INTO o SELECT a, b FROM TABLE(TUMBLE(TABLE s))", 52, "expected ,, found )"),
        ("INSERT OVERWRITE o SELECT a, b FROM s", 8, "INSERT OVERWRITE is not supported"),
        ("INSERT INTO s SELECT * FROM s", 13, "the flow reads what it writes: t is also its"),
        ("INSERT INTO s SELECT id, b FROM u", 13, "u has updates and deletes, and s takes inserts"),
        (
            "INSERT INTO o SELECT id + 1, b FROM u",
            13,
            "the PRIMARY KEY of o must be the columns of",
        ),
    ],
)
def test_a_mistake_in_a_query(tmp_path: Path, query: str, column: int, says: str) -> None:
    found = loaded(tmp_path, SOURCE + SOURCE.replace("TABLE s", "TABLE w"), TARGET, UPSERTS, query)
    assert found.flows == ()
    (told,) = found.findings
    assert told.message.startswith(says)
    assert (told.line, told.column) == (4, column)


_NUMBERED = "number the rows in a subquery, ROW_NUMBER() OVER ("
_DATABASE = "write each table into a database by an INSERT of its own, and join them there"
_ASSET = "in an asset of PySpark over the target table"


@pytest.mark.parametrize(
    ("query", "column", "instead"),
    [
        ("SELECT s.a, s.b FROM s LEFT JOIN u ON s.a = u.id", 38, _DATABASE),
        ("SELECT s.a, s.b FROM s, u WHERE s.a = u.id", 37, _DATABASE),
        ("SELECT s.a, u.b FROM s JOIN u FOR SYSTEM_TIME AS OF s.c ON TRUE", 38, _DATABASE),
        ("SELECT id, b FROM u FOR SYSTEM_TIME AS OF PROCTIME()", 35, _DATABASE),
        ("SELECT a, b FROM s WHERE a IN (SELECT id FROM u)", 45, _DATABASE),
        ("SELECT a, b FROM s WHERE EXISTS (SELECT 1 FROM u)", 40, _DATABASE),
        ("SELECT a, (SELECT MAX(b) FROM u) FROM s", 26, _DATABASE),
        ("SELECT a, b FROM s, LATERAL TABLE(f(a)) AS x (e)", 33, "CROSS JOIN UNNEST(items), or"),
        ("SELECT a, b FROM UNNEST(c)", 32, "beside the row that has it: FROM t CROSS JOIN"),
        ("SELECT a, 'x' FROM s GROUP BY a, SESSION(c, INTERVAL '1' DAY)", 48, "windows are TUMBLE"),
        ("SELECT a, 'x' FROM TABLE(SESSION(TABLE s))", 40, f"compute the sessions {_ASSET}"),
        ("SELECT a, b FROM TABLE(TUMBLE(TABLE s PARTITION BY a))", 53, "windows are TUMBLE"),
        ("SELECT a, b FROM s ORDER BY a", 34, _NUMBERED),
        ("SELECT a, b FROM s FETCH FIRST 3 ROWS ONLY", 34, _NUMBERED),
        ("SELECT a, b FROM s OFFSET 3", 34, _NUMBERED),
        ("SELECT a, b FROM s WINDOW w AS (PARTITION BY a)", 34, "behind OVER"),
        ("SELECT a, b FROM s QUALIFY ROW_NUMBER() OVER (ORDER BY a) = 1", 34, "around this one"),
        ("SELECT a, b FROM s MINUS SELECT a, b FROM w", 34, "a table of its own, and compare"),
        (
            "SELECT a, MAX(b) FROM (SELECT a, b FROM s UNION ALL SELECT id, b FROM u) GROUP BY a",
            15,
            "one topic",
        ),
        ("SELECT a, MAX(b) FROM s GROUP BY ROLLUP (a)", 48, "an INSERT INTO with a GROUP BY for"),
        (
            "SELECT a, RANK() OVER (ORDER BY a) FROM s",
            32,
            f"write GROUP BY, or compute them {_ASSET}",
        ),
        ("SELECT a, LAST_VALUE(b) FROM s GROUP BY a", 25, _NUMBERED),
        ("SELECT a, LISTAGG(b) FROM s GROUP BY a", 25, f"compute it {_ASSET}"),
        ("SELECT a, b FROM s MATCH_RECOGNIZE (PATTERN (A B)) AS x", 34, f"find such rows {_ASSET}"),
        ("SELECT a, b FROM (VALUES (1, 'x')) AS x (a, b)", 32, "send such rows to its topic"),
        ("SELECT a, b FROM s WHERE CURRENT_WATERMARK(c) < c", 40, "windows leave out and count"),
    ],
)
def test_each_refusal_has_a_place_and_says_what_to_write_instead(
    tmp_path: Path, query: str, column: int, instead: str
) -> None:
    tables = SOURCE.replace("b STRING", "b STRING, c TIMESTAMP(3)")
    both = (tables + tables.replace("TABLE s", "TABLE w"), TARGET, UPSERTS)
    told, *_ = loaded(tmp_path, *both, f"INSERT INTO o {query}").findings
    assert (told.line, told.column) == (4, column)
    assert instead in told.message


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


def test_each_table_of_a_union_has_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    tables = []
    for name in ("s", "w"):
        monkeypatch.setenv(f"PASSWORD_{name}", f"of {name}")
        secured = (
            f"{PLAIN}, 'properties.security.protocol' = 'SASL_SSL', 'properties.sasl.mechanism' = "
            f"""'PLAIN', 'properties.sasl.jaas.config' = '{login} username="u" """
            f"""password="${{env:PASSWORD_{name}}}";'"""
        )
        tables.append(SOURCE.replace("TABLE s", f"TABLE {name}").replace(PLAIN, secured))
    query = "SELECT a, MAX(b) FROM (SELECT * FROM s UNION ALL SELECT * FROM w) GROUP BY a"
    flow = one(loaded(tmp_path, *tables, TARGET, f"INSERT INTO o {query}")).resolve()
    assert isinstance(flow.source, ViewSource)
    for source, name in zip(flow.source.sources, ("s", "w"), strict=True):
        assert isinstance(source, KafkaSource)
        assert source.sasl is not None
        assert source.sasl.password is not None
        assert source.sasl.password.get_secret_value() == f"of {name}"


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
