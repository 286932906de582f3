"""What a publication leaves out is not in the log, and the server tells nobody: each plan looks."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.postgresql.cdc.position import parse
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.contracts import PartSlice, Run
from dataflow_assets.errors import PermanentError
from dataflow_assets.runs.news import news
from dataflow_assets.runs.request import Start
from dataflow_assets.runs.reset import load_again
from tests.connectors.postgresql.cdc.followed import Followed, unmarked

TRUNCATED = Start("earliest", table="truncate")
LOST = "INSERT INTO source VALUES (3, 3, 'lost'); DELETE FROM source WHERE id = 1"


@pytest.fixture
def table(followed: Followed) -> Followed:
    followed.make("id int PRIMARY KEY, n int, name text")
    followed.run("INSERT INTO source VALUES (1, 1, 'a'), (2, 2, 'b')")
    followed.drain()
    return followed


def _is_news(table: Followed) -> bool:
    """What a lane asks, which plans only where something is new."""
    with closing(table.source.open("followed/lane")) as session:
        ends = session.end()
        return news(session, table.position(), ends)


def _confirmed(table: Followed) -> list[tuple[Any, ...]]:
    return table.run(
        "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s", table.schema
    )


RENAMED = """
ALTER TABLE source RENAME TO old;
CREATE TABLE source (LIKE old INCLUDING ALL); INSERT INTO source TABLE old
"""
RENAMED_BACK = """
ALTER TABLE source RENAME TO other; ALTER TABLE old RENAME TO source;
DELETE FROM source; INSERT INTO source TABLE other
"""


@pytest.mark.parametrize(
    ("narrowed", "put_back", "reason"),
    [
        (
            "DROP PUBLICATION {p}",
            "CREATE PUBLICATION {p} FOR TABLE source WITH (publish_via_partition_root = true)",
            r"publication s_\w+ does not exist .*run CREATE PUBLICATION",
        ),
        (
            "ALTER PUBLICATION {p} DROP TABLE source",
            "ALTER PUBLICATION {p} ADD TABLE source",
            r"lacks table s_\w+\.source: run ALTER PUBLICATION",
        ),
        (
            "ALTER PUBLICATION {p} SET (publish = 'truncate')",
            "ALTER PUBLICATION {p} SET (publish = 'insert, update, delete, truncate')",
            "leaves out insert, update, delete: run ALTER PUBLICATION",
        ),
        (
            "ALTER PUBLICATION {p} SET TABLE source WHERE (id < 0)",
            "ALTER PUBLICATION {p} SET TABLE source",
            "the row filter or the column list was changed",
        ),
        (
            "ALTER PUBLICATION {p} SET TABLE source (id)",
            "ALTER PUBLICATION {p} SET TABLE source",
            "the row filter or the column list was changed",
        ),
        (
            RENAMED,
            RENAMED_BACK,
            r"lacks table s_\w+\.source",
        ),
    ],
    ids=["dropped", "table", "operations", "filter", "columns", "renamed"],
)
def test_what_is_not_published_stops_the_flow_though_nothing_is_new(
    table: Followed, narrowed: str, put_back: str, reason: str
) -> None:
    """Not the next change of the table, which does not come either."""
    name, before = f'"{table.schema}"', _confirmed(table)
    assert not _is_news(table)
    table.run(narrowed.format(p=name))
    table.run(LOST)
    assert _is_news(table)
    for _ in range(2):  # another run does not go on as if all were well
        with pytest.raises(PermanentError, match=f"{reason}.*--from earliest --table truncate"):
            table.drain()
    with closing(table.source.open("followed/lag")) as session, pytest.raises(PermanentError):
        session.lag(table.position())
    assert _confirmed(table) == before
    table.run(put_back.format(p=name))
    if "other" not in put_back:  # the same table is there again, and has lost nothing
        with pytest.raises(PermanentError, match="--from earliest --table truncate"):
            table.drain()
    table.drain(TRUNCATED)
    assert table.same()
    table.run("UPDATE source SET name = 'later' WHERE id = 3")
    table.drain()
    assert table.same()


@pytest.mark.parametrize("put_back", [False, True])
def test_partitions_that_get_a_name_of_their_own_in_the_log(
    followed: Followed, put_back: bool
) -> None:
    followed.run("CREATE TABLE source (id int PRIMARY KEY, name text) PARTITION BY RANGE (id)")
    followed.run("CREATE TABLE low PARTITION OF source FOR VALUES FROM (0) TO (100)")
    followed.run("CREATE TABLE target (id int PRIMARY KEY, name text)")
    followed.run("INSERT INTO source VALUES (1, 'a')")
    followed.drain()
    alter = f'ALTER PUBLICATION "{followed.schema}" SET (publish_via_partition_root = %s)'
    followed.run(alter % "false")
    followed.run("INSERT INTO source VALUES (3, 'c'); UPDATE source SET name = 'lost'")
    if put_back:
        followed.run(alter % "true")
    assert _is_news(followed)
    with pytest.raises(PermanentError, match=r"publish_via_partition_root.*--from earliest"):
        followed.drain()


@pytest.mark.parametrize("scope", ["ALL TABLES", 'TABLES IN SCHEMA "{}"'])
def test_another_table_that_has_the_name(
    followed: Followed, postgresql: devservers.PostgreSQL, engine: SparkSession, scope: str
) -> None:
    """It is published as well, and what was in it before is in no log."""
    followed.make("id int PRIMARY KEY, n int, name text")
    followed.run(f'CREATE PUBLICATION "{followed.schema}" FOR {scope.format(followed.schema)}')
    followed.run("INSERT INTO source VALUES (1, 1, 'a')")
    followed.drain()
    followed.run("CREATE TABLE new (LIKE source INCLUDING ALL); INSERT INTO new VALUES (5, 5, 'e')")
    followed.drain()
    followed.run("ALTER TABLE source RENAME TO old; ALTER TABLE new RENAME TO source")
    with pytest.raises(PermanentError, match=r"is another one than was read up to .* renamed"):
        followed.drain()
    followed.drain(TRUNCATED)
    assert followed.same()


def test_a_table_that_is_not_logged_any_more(followed: Followed) -> None:
    """A publication of all tables leaves it out without a word."""
    followed.make("id int PRIMARY KEY, n int, name text")
    followed.run(f'CREATE PUBLICATION "{followed.schema}" FOR TABLES IN SCHEMA "{followed.schema}"')
    followed.drain()
    followed.run("ALTER TABLE source SET UNLOGGED; INSERT INTO source VALUES (1, 1, 'lost')")
    with pytest.raises(PermanentError, match=r"UNLOGGED.*ALTER TABLE \S+ SET LOGGED.*--from earl"):
        followed.drain()


def test_a_partition_that_logs_otherwise_than_its_root_is_seen_by_a_session_that_is_open(
    followed: Followed,
) -> None:
    followed.run("CREATE TABLE source (id int PRIMARY KEY, name text) PARTITION BY RANGE (id)")
    begin = followed.start()
    with closing(followed.source.open("followed/late")) as session:
        session.plan(begin, followed.limit)
        followed.run("CREATE TABLE late PARTITION OF source DEFAULT")
        followed.run("ALTER TABLE late REPLICA IDENTITY FULL")
        with pytest.raises(PermanentError, match=r"replica identity is DEFAULT.*late is FULL"):
            session.plan(begin, followed.limit)


def test_one_table_that_was_taken_out_is_loaded_again(table: Followed) -> None:
    table.run(f'ALTER PUBLICATION "{table.schema}" DROP TABLE source')
    table.run("INSERT INTO source VALUES (3, 3, 'missed')")
    table.run(f'ALTER PUBLICATION "{table.schema}" ADD TABLE source')
    with pytest.raises(PermanentError, match="taken out and added again"):
        table.drain()
    load_again(table.flow, Run(), (f"{table.schema}.source",), confirmed=False)
    table.drain()
    assert table.same()


def test_what_takes_nothing_away_stops_nothing(table: Followed) -> None:
    """Other tables of the publication, its owner, and the same list once more."""
    name = f'"{table.schema}"'
    table.run("CREATE TABLE other (id int PRIMARY KEY)")
    table.run(f"ALTER PUBLICATION {name} ADD TABLE other")
    table.run(f"ALTER PUBLICATION {name} SET TABLE source, other")
    table.run(f"ALTER PUBLICATION {name} DROP TABLE other")
    table.run(f"CREATE ROLE {name} SUPERUSER; ALTER PUBLICATION {name} OWNER TO {name}")
    try:
        table.run("INSERT INTO source VALUES (3, 3, 'c'); ALTER TABLE source ALTER n SET NOT NULL")
        assert table.drain() == 1
        assert table.same()
    finally:
        table.run(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_a_position_of_an_earlier_version_is_gone_on_from(table: Followed) -> None:
    """From the next change on it says by what it was read."""
    with closing(table.source.open("followed/earlier")) as session:
        table.run("INSERT INTO source VALUES (3, 3, 'c')")
        span = session.plan(unmarked(table.position()), table.limit)
    (piece,) = span.slices
    assert isinstance(piece, PartSlice)
    found = parse(piece.upto)
    assert found is not None
    assert found.marks.keys() == {f"{table.schema}.source"}


def test_each_plan_asks_for_it_by_one_statement(
    table: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, execute = list[str](), TextLink.execute

    def noted(self: TextLink, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        asked.append(query)
        return execute(self, query, *parameters)

    at = table.position()
    with closing(table.source.open("followed/asked")) as session:
        session.plan(at, table.limit)
        monkeypatch.setattr(TextLink, "execute", noted)
        session.plan(at, table.limit)
    assert len([query for query in asked if "pg_publication" in query]) == 1


SWAPPED = """
ALTER TABLE source RENAME n TO x; ALTER TABLE source RENAME m TO n;
ALTER TABLE source RENAME x TO m
"""
CONTRACTED = """
ALTER TABLE source ADD n2 int; UPDATE source SET n2 = 10 * n;
ALTER TABLE source DROP n; ALTER TABLE source RENAME n2 TO n
"""
AGAIN = "ALTER TABLE source DROP n; ALTER TABLE source ADD n int"


@pytest.mark.parametrize("rule", ["fail", "add", "ignore"])
@pytest.mark.parametrize(
    ("change", "name"), [(SWAPPED, "m"), (CONTRACTED, "n"), (AGAIN, "n")],
    ids=["swapped", "expanded and contracted", "dropped and added"],
)  # fmt: skip
def test_a_name_that_becomes_that_of_another_column_stops_the_flow(
    followed: Followed, change: str, name: str, rule: str
) -> None:
    """The target would keep the values of the old column under it, and get those of the new."""
    followed.options = {"schemaChanges": rule}
    followed.make("id int PRIMARY KEY, n int, m int")
    followed.run("INSERT INTO source VALUES (1, 100, 119), (2, 1, 2)")
    followed.drain()
    followed.run(change)
    followed.run("INSERT INTO source (id, n) VALUES (3, 219)")
    with pytest.raises(PermanentError, match=f"column {name} of table .* is another one .*--from"):
        followed.drain()
    followed.drain(TRUNCATED)
    assert followed.same("id, n")


def test_a_name_of_a_dropped_column_is_remembered(table: Followed) -> None:
    """The target keeps its values, so a later column of this name would be mixed with them."""
    table.run("ALTER TABLE source DROP n; INSERT INTO source VALUES (3, 'c')")
    table.drain()
    table.run("ALTER TABLE source ADD n int; INSERT INTO source VALUES (4, 'd', 4)")
    with pytest.raises(PermanentError, match=r"column n of table .* (was dropped)"):
        table.drain()


def test_expanded_with_a_run_in_between_and_contracted(table: Followed) -> None:
    table.options = {"schemaChanges": "add"}
    table.run("ALTER TABLE source ADD n2 int; INSERT INTO source VALUES (3, 3, 'c', 30)")
    table.drain()
    table.run("ALTER TABLE source DROP n; ALTER TABLE source RENAME n2 TO n")
    with pytest.raises(PermanentError, match=r"column n of table .* was dropped"):
        table.drain()


def test_a_name_of_a_column_that_is_left_out_stops_nothing(followed: Followed) -> None:
    followed.options = {"excludeColumns": ["n"]}
    followed.make("id int PRIMARY KEY, n int, name text")
    followed.run("INSERT INTO source VALUES (1, 1, 'a')")
    followed.drain()
    followed.run("ALTER TABLE source DROP n; ALTER TABLE source ADD n int; UPDATE source SET n = 2")
    followed.drain()
    assert followed.same("id, name")


def test_two_columns_whose_names_have_one_digest_are_no_other_columns(followed: Followed) -> None:
    """Positions keep 24 bits of each name, which these two share."""
    followed.make("id int PRIMARY KEY, kind_10 text, comment_13 text")
    followed.drain()
    followed.run("INSERT INTO source VALUES (1, 'a', 'b')")
    followed.drain()
    assert followed.same()
