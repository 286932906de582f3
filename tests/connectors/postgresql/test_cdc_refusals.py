"""What stands in the way of following a table, each in one sentence with what to run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from pydantic import ValidationError
from pyspark.sql import SparkSession
from typing_extensions import override

import devservers
from dataflow_assets import registry
from dataflow_assets.connectors.postgresql import PostgresqlCdcSource, PostgresqlSink
from dataflow_assets.connectors.postgresql.cdc import errors, started_reader, tables
from dataflow_assets.connectors.postgresql.cdc import slot as slot_module
from dataflow_assets.connectors.postgresql.cdc.position import Lsn, Reached, dump
from dataflow_assets.connectors.postgresql.cdc.snapshot import check_readable
from dataflow_assets.connectors.postgresql.cdc.walsender import Walsender
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.pool import lent_to_source
from dataflow_assets.contracts import Limit, PartSlice
from dataflow_assets.errors import DataflowError, Outdated, PermanentError, TransientError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.records.chain import Transformation
from dataflow_assets.runs.request import Start
from dataflow_assets.transforms.router import Router
from tests.connectors.clickhouse.system import Clickhouse
from tests.connectors.iceberg.system import Iceberg
from tests.connectors.kafka.system import Kafka
from tests.connectors.postgresql.followed import UPSERTED, Elsewhere, Followed
from tests.connectors.postgresql.system import Postgresql
from tests.systems import System

KEYED = "id int PRIMARY KEY, name text"


def test_a_role_without_the_right_to_replicate(followed: Followed) -> None:
    followed.make(KEYED)
    followed.start()
    role = followed.schema
    followed.run(f'CREATE ROLE "{role}" LOGIN; GRANT ALL ON SCHEMA "{role}" TO "{role}"')
    followed.run(f'GRANT ALL ON ALL TABLES IN SCHEMA "{role}" TO "{role}"')
    try:
        followed.dsn = followed.dsn.replace("postgres@", f"{role}@")
        with pytest.raises(PermanentError, match=f'run: ALTER ROLE "{role}" REPLICATION'):
            followed.plan()
    finally:
        followed.dsn = followed.dsn.replace(f"{role}@", "postgres@")
        followed.run(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


def test_a_role_that_may_replicate_and_select_is_enough(followed: Followed) -> None:
    """Where the publication is there already; else the owner of the tables is told what to run."""
    followed.make(KEYED)
    followed.run("INSERT INTO source VALUES (1, 'a')")
    role = followed.schema
    followed.run(
        f'CREATE ROLE "{role}" LOGIN REPLICATION; GRANT USAGE ON SCHEMA "{role}" TO "{role}"'
    )
    followed.run(f'GRANT SELECT ON source TO "{role}"')
    owner = followed.dsn
    try:
        followed.dsn = owner.replace("postgres@", f"{role}@")
        with pytest.raises(PermanentError, match=r"Let the owner run: CREATE PUBLICATION") as said:
            followed.read()
        followed.dsn = owner
        followed.run(str(said.value).split("Let the owner run: ")[1])
        followed.dsn = owner.replace("postgres@", f"{role}@")
        assert [batch.num_rows for batch in followed.read()] == [1]
    finally:
        followed.dsn = owner
        followed.run(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


def test_a_policy_that_hides_rows_from_the_role(followed: Followed) -> None:
    """Changes would come of all rows, and the first load would have some of them."""
    followed.make(KEYED)
    followed.run("INSERT INTO source VALUES (1, 'a'), (2, 'b')")
    followed.run("ALTER TABLE source ENABLE ROW LEVEL SECURITY")
    followed.run("CREATE POLICY few ON source USING (id = 1)")
    followed.start()
    role, owner = followed.schema, followed.dsn
    followed.run(
        f'CREATE ROLE "{role}" LOGIN REPLICATION; GRANT USAGE ON SCHEMA "{role}" TO "{role}"'
    )
    followed.run(f'GRANT SELECT ON source TO "{role}"')
    try:
        followed.dsn = owner.replace("postgres@", f"{role}@")
        with pytest.raises(PermanentError, match="affected by row-level security policy"):
            followed.read()
    finally:
        followed.dsn = owner
        followed.run(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


def test_a_table_that_is_missing(followed: Followed) -> None:
    with pytest.raises(PermanentError, match=r"table s_\w+\.source does not exist at \S+: create"):
        followed.plan()
    followed.run("CREATE VIEW source AS SELECT 1 AS id")
    with pytest.raises(PermanentError, match="is not a table: only tables have a log"):
        followed.plan()


@pytest.mark.parametrize("system", [Postgresql, Kafka, Clickhouse, Iceberg])
def test_no_slot_is_created_for_a_target_that_is_missing(
    followed: Followed, request: pytest.FixtureRequest, system: type[System]
) -> None:
    """A slot that nobody reads holds the log of the whole server."""
    config = system(request).at("sink", {})
    name = "topic" if system is Kafka else "table"
    config[name] += "-missing"
    sink = registry.sinks()[system.type].model_validate(config)
    flow = Elsewhere(followed.dsn, followed.schema, followed.engine, into=sink)
    flow.run(f"CREATE TABLE source ({KEYED})")
    with pytest.raises(PermanentError, match=r"-missing does not exist"):
        flow.drain()
    assert not _created(flow)


def test_no_slot_is_created_for_a_target_that_takes_no_rows(followed: Followed) -> None:
    followed.make(KEYED)
    followed.run("INSERT INTO source VALUES (1, 'a')")
    role = followed.schema
    followed.run(f'CREATE ROLE "{role}" LOGIN; GRANT USAGE, CREATE ON SCHEMA "{role}" TO "{role}"')
    followed.run(f'GRANT SELECT ON target TO "{role}"')
    followed.sink_options = {"connectionString": followed.dsn.replace("postgres@", f"{role}@")}
    try:
        with pytest.raises(PermanentError, match="may not insert rows") as said:
            followed.drain()
        assert not _created(followed)
        followed.run(str(said.value).split("Let the owner run: ")[1].split(" (")[0])
        assert followed.drain() == 1
        assert len(_created(followed)) == 2
    finally:
        followed.run(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


def _created(followed: Followed) -> list[tuple[object, ...]]:
    """The slot and the publication of the flow, as far as they exist."""
    return followed.run(
        "SELECT slot_name FROM pg_replication_slots WHERE slot_name = %s "
        "UNION ALL SELECT pubname FROM pg_publication WHERE pubname = %s",
        *(followed.schema, followed.schema),
    )


class AllRouted(Followed):
    """All changes are routed away from the sink."""

    @property
    @override
    def flow(self) -> Flow:
        found = super().flow
        condition = f"metadata.table == '{self.schema}.source'"
        config = {"connectionString": self.dsn, "table": f"{self.schema}.copy", **UPSERTED}
        route = {"condition": condition, "sink": {"type": "postgresql", "config": config}}
        copy = Branch(PostgresqlSink.model_validate(config), routes=(condition,))
        steps = (Transformation(Router.model_validate({"routes": [route]})),)
        return replace(found, branches=(*found.branches, copy), transformations=steps)


def test_a_missing_table_that_nothing_reaches_holds_up_nothing(followed: Followed) -> None:
    flow = AllRouted(followed.dsn, followed.schema, followed.engine, {"snapshotMode": "never"})
    flow.run(f"CREATE TABLE source ({KEYED}); CREATE TABLE copy ({KEYED})")
    flow.start()
    confirmed = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s"
    before = flow.run(confirmed, flow.schema)
    flow.run("INSERT INTO source VALUES (1, 'a')")
    flow.drain()
    assert flow.rows("copy") == [(1, "a")]
    assert flow.run(confirmed, flow.schema) > before


@pytest.mark.parametrize("identity", ["NOTHING", "DEFAULT"])
def test_a_table_whose_log_does_not_say_which_row_was_changed(
    followed: Followed, identity: str
) -> None:
    followed.run("CREATE TABLE source (id int, name text)")
    followed.run(f"ALTER TABLE source REPLICA IDENTITY {identity}")
    with pytest.raises(PermanentError, match=r"Run: ALTER TABLE \S+ REPLICA IDENTITY FULL"):
        followed.plan()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("ALTER TABLE source REPLICA IDENTITY USING INDEX by_code; DROP INDEX by_code",
         "the index of its replica identity was dropped"),
        ("ALTER TABLE source DROP CONSTRAINT source_pkey, ADD PRIMARY KEY (id) DEFERRABLE",
         "a deferrable one, which is no replica identity"),
    ],
)  # fmt: skip
def test_an_index_by_which_the_log_names_no_rows(
    followed: Followed, change: str, reason: str
) -> None:
    """Nothing is published: the server would refuse the application's own updates."""
    followed.make("id int PRIMARY KEY, code int NOT NULL")
    followed.run("CREATE UNIQUE INDEX by_code ON source (code); INSERT INTO source VALUES (1, 1)")
    followed.run(change)
    with pytest.raises(PermanentError, match=reason):
        followed.drain()
    followed.run("UPDATE source SET code = 2; DELETE FROM source")


def test_nothing_is_made_that_the_manifest_does_not_allow(followed: Followed) -> None:
    followed.make(KEYED)
    followed.options = {"createPublicationIfNotExists": False, "createSlotIfNotExists": False}
    with pytest.raises(PermanentError, match=r"run CREATE PUBLICATION \S+ FOR TABLE .* or set cre"):
        followed.plan()
    followed.run(f'CREATE PUBLICATION "{followed.schema}" FOR TABLE source')
    with pytest.raises(PermanentError, match=r"run SELECT pg_create_logical_replication_slot\('"):
        followed.plan()


@pytest.mark.parametrize("begin", [Followed.plan, Followed.start])
def test_a_slot_that_is_older_than_its_publication(
    followed: Followed, begin: Callable[[Followed], object]
) -> None:
    """What it keeps was not published: a new server skips that without a word."""
    followed.make(KEYED)
    followed.options = {"snapshotMode": "never"}
    followed.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", followed.schema)
    followed.run("INSERT INTO source VALUES (1, 'a')")
    with pytest.raises(
        PermanentError,
        match=r"exists, and publication \S+ does not: .*Correct publicationName; or drop the slot",
    ):
        begin(followed)
    assert len(_created(followed)) == 1
    followed.run("SELECT pg_drop_replication_slot(%s)", followed.schema)
    followed.drain()
    followed.run("INSERT INTO source VALUES (2, 'b')")
    followed.drain()
    assert followed.rows() == [(2, "b")]


def test_an_older_slot_is_taken_where_the_tables_are_loaded(followed: Followed) -> None:
    followed.make(KEYED)
    followed.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", followed.schema)
    followed.run("INSERT INTO source VALUES (1, 'a')")
    followed.drain()
    followed.run("INSERT INTO source VALUES (2, 'b')")
    followed.drain()
    assert followed.rows() == [(1, "a"), (2, "b")]


def test_a_publication_that_older_servers_look_for_in_vain(followed: Followed) -> None:
    with (
        pytest.raises(PermanentError, match=r"correct publicationName, or drop the slot") as said,
        errors.explain_errors(followed.source, "reading changes"),
    ):
        raise PostgresqlFailure('publication "orders" does not exist', "42704")
    assert "columns" not in str(said.value)


LOCKED_AWAY = """
ALTER TABLE low ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON low USING (id = 1);
GRANT SELECT ON source, low TO "{role}"
"""


@pytest.mark.parametrize(
    ("rights", "said"),
    [
        ("", "permission denied for table source"),
        ('GRANT SELECT (id) ON source, low TO "{role}"', "permission denied for table source"),
        ('GRANT SELECT ON source TO "{role}"', "permission denied for table low"),
        (LOCKED_AWAY, "row-level security policy"),
    ],
)
def test_no_slot_is_created_for_a_table_that_cannot_be_loaded(
    followed: Followed, rights: str, said: str
) -> None:
    followed.run(f"CREATE TABLE source ({KEYED}) PARTITION BY RANGE (id)")
    followed.run("CREATE TABLE low PARTITION OF source DEFAULT; INSERT INTO source VALUES (1, 'a')")
    role, owner = followed.schema, followed.dsn
    followed.run(
        f'CREATE PUBLICATION "{role}" FOR TABLE source WITH (publish_via_partition_root = true); '
        f'CREATE ROLE "{role}" LOGIN REPLICATION; GRANT USAGE ON SCHEMA "{role}" TO "{role}"'
    )
    if rights:
        followed.run(rights.format(role=role))
    try:
        followed.dsn = owner.replace("postgres@", f"{role}@")
        with pytest.raises(PermanentError, match=said):
            followed.plan()
        followed.dsn = owner
        assert len(_created(followed)) == 1
        followed.run("ALTER TABLE low DISABLE ROW LEVEL SECURITY")
        followed.run(f'GRANT SELECT ON source, low TO "{role}"')
        followed.dsn = owner.replace("postgres@", f"{role}@")
        assert followed.plan().slices
    finally:
        followed.dsn = owner
        followed.run(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


def test_a_table_is_checked_without_a_scan(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL 13 would look at all its rows to find those of no block."""
    copied, queries = TextLink.copy_out, list[str]()

    def noted(self: TextLink, query: str) -> Iterator[memoryview]:
        queries.append(query)
        return copied(self, query)

    monkeypatch.setattr(TextLink, "copy_out", noted)
    followed.make(KEYED)
    followed.run(f'CREATE PUBLICATION "{followed.schema}" FOR TABLE source WHERE (id > 1)')
    with lent_to_source(followed.dsn) as link:
        found = tables.tables(link, followed.source)
    check_readable(followed.source, found)
    (query,) = queries
    plan = followed.run(f"EXPLAIN {query.removeprefix('COPY (').rsplit(') TO STDOUT', 1)[0]}")
    assert "(id > 1)" in query
    assert not any("Scan" in line for (line,) in plan)


def test_a_partition_that_is_dropped_before_its_table_is_checked(followed: Followed) -> None:
    followed.run("CREATE TABLE source (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    followed.run("CREATE TABLE low PARTITION OF source FOR VALUES FROM (0) TO (100)")
    followed.run("CREATE TABLE high PARTITION OF source FOR VALUES FROM (100) TO (200)")
    with closing(followed.source.open("followed/dropped")) as session:
        followed.run("DROP TABLE low")
        assert len(session.plan(session.start(), followed.limit).slices) == 1


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("", "raise max_slot_wal_keep_size"),
        ("wal_removed", "removed log .* raise max_slot_wal_keep_size"),
        ("idle_timeout", "nobody has read the slot .* raise idle_replication_slot_timeout"),
        ("rows_removed", "rows of the catalog .* set hot_standby_feedback = on"),
        ("wal_level_insufficient", "another wal_level .* keep wal_level = logical"),
        ("of_another_time", "the server does not read it, so changes are gone.* one moment$"),
    ],
)
def test_a_slot_that_is_lost_says_for_which_reason(
    followed: Followed, reason: str, said: str
) -> None:
    error = str(errors.slot_lost(followed.source, reason))
    assert re.search(said, error)
    assert reason in error
    assert ("max_slot_wal_keep_size" in error) == (reason in {"", "wal_removed"})


@pytest.mark.parametrize(
    ("reason", "said"),
    [("idle_timeout", "nobody has read the slot"), ("", "removed log that the flow has not read")],
)
def test_a_slot_that_is_lost_between_plan_and_read_says_so_too(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, reason: str, said: str
) -> None:
    monkeypatch.setattr(Walsender, "execute", lambda *_: [("0/1", "lost", reason)])
    with (
        closing(Walsender(followed.dsn)) as sender,
        pytest.raises(PermanentError, match=f"is lost.*{said}"),
    ):
        started_reader.begin(followed.source, sender, Lsn(1))


def test_a_slot_that_another_process_creates_is_not_lost(followed: Followed) -> None:
    """Until all who write have ended it has no place in the log."""
    followed.make(KEYED)
    make = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
    with (
        closing(psycopg.connect(followed.dsn)) as writing,
        ThreadPoolExecutor(1) as other,
        lent_to_source(followed.dsn) as link,
    ):
        writing.execute("SELECT pg_current_xact_id()")
        made = other.submit(followed.run, make, followed.schema)
        try:
            while not _created(followed):
                time.sleep(0.01)
            with pytest.raises(TransientError, match="is being created by another process"):
                slot_module.find(link, followed.source)
        finally:
            writing.rollback()
        made.result()
        assert slot_module.find(link, followed.source) is not None


def test_a_publication_that_lacks_something(followed: Followed) -> None:
    followed.make(KEYED)
    name = followed.schema
    followed.run("CREATE TABLE other (id int PRIMARY KEY)")
    followed.run(f"CREATE PUBLICATION \"{name}\" FOR TABLE other WITH (publish = 'insert')")
    with pytest.raises(PermanentError, match=r"leaves out update, delete, truncate: run ALTER"):
        followed.plan()
    followed.run(f"ALTER PUBLICATION \"{name}\" SET (publish = 'insert, update, delete')")
    with pytest.raises(PermanentError, match=r"leaves out truncate: run ALTER PUBLICATION"):
        followed.plan()
    with pytest.raises(PermanentError, match=r"lacks table \S+: run ALTER"):
        followed.but(onTruncate="skip").plan()
    followed.run(f"ALTER PUBLICATION \"{name}\" SET (publish = 'insert, update, delete, truncate')")
    with pytest.raises(
        PermanentError, match=r"lacks table \S+: run ALTER PUBLICATION .* ADD TABLE"
    ):
        followed.plan()


def test_partitions_that_are_published_by_themselves(followed: Followed) -> None:
    followed.run("CREATE TABLE source (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    followed.run("CREATE TABLE all_of_it PARTITION OF source DEFAULT")
    followed.run(f'CREATE PUBLICATION "{followed.schema}" FOR TABLE source')
    with pytest.raises(PermanentError, match=r"SET \(publish_via_partition_root = true\)"):
        followed.plan()


@pytest.mark.parametrize("changed", ["source", "all_of_it"])
def test_a_partition_whose_log_names_rows_otherwise(followed: Followed, changed: str) -> None:
    """The server announces the root's replica identity, and logs by the partition's."""
    followed.run("CREATE TABLE source (id int PRIMARY KEY, big text) PARTITION BY RANGE (id)")
    followed.run("CREATE TABLE all_of_it PARTITION OF source DEFAULT")
    followed.plan()
    followed.run(f"ALTER TABLE {changed} REPLICA IDENTITY FULL")
    with pytest.raises(PermanentError, match=r"replica identity is .* of its partition"):
        followed.plan()
    followed.run("ALTER TABLE source REPLICA IDENTITY FULL")
    followed.run("ALTER TABLE all_of_it REPLICA IDENTITY FULL")
    followed.plan()


def test_a_partition_that_comes_under_a_session_and_logs_less_than_its_root(
    followed: Followed,
) -> None:
    """A large value that its old row lacks is not null: nothing is stored without it."""
    followed.run("CREATE TABLE source (id int PRIMARY KEY, big text) PARTITION BY RANGE (id)")
    followed.run("ALTER TABLE source ALTER big SET STORAGE EXTERNAL, REPLICA IDENTITY FULL")
    begin = followed.start()
    with closing(followed.source.open("followed/late")) as session:
        followed.run("CREATE TABLE late PARTITION OF source DEFAULT")
        followed.run("ALTER TABLE late ALTER big SET STORAGE EXTERNAL")
        followed.run("INSERT INTO source SELECT 1, repeat(md5('x'), 300)")
        followed.run("UPDATE source SET id = 2; ALTER TABLE late REPLICA IDENTITY FULL")
        span = session.plan(begin, followed.limit)
    with pytest.raises(PermanentError, match=r"key of a row was changed.*value of big"):
        list(followed.source.batches(span.slices[0], frozenset()))


def test_a_slot_that_was_dropped_or_made_again(followed: Followed) -> None:
    followed.make(KEYED)
    followed.drain()
    followed.run("SELECT pg_drop_replication_slot(%s)", followed.schema)
    followed.run("INSERT INTO source VALUES (1, 'lost')")
    with pytest.raises(PermanentError, match=r"is gone: it was dropped.*--from earliest --table"):
        followed.drain()
    followed.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", followed.schema)
    with pytest.raises(PermanentError, match="has let go what lies before"):
        followed.drain()


def test_a_server_that_has_lost_the_end_of_its_log(followed: Followed) -> None:
    """Restored, or promoted while it was behind: its new log would be skipped."""
    followed.make(KEYED)
    followed.drain()
    beyond = {"wal": dump(Reached(Lsn(1 << 60)))}
    with closing(followed.source.open("followed/restored")) as session:
        for until in (None, session.end()):
            with pytest.raises(PermanentError, match=r"the log ends at .* Load the tables again"):
                session.plan(beyond, followed.limit, until)


def test_a_slot_of_another_plugin(followed: Followed) -> None:
    followed.make(KEYED)
    followed.run("SELECT pg_create_physical_replication_slot(%s)", followed.schema)
    with pytest.raises(PermanentError, match=r"its plugin is none .* Choose another slotName"):
        followed.plan()


def test_a_slot_that_somebody_else_reads(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_module, "FREE_SECONDS", 0.2)
    followed.make(KEYED)
    begin = followed.start()
    info = psycopg.conninfo.make_conninfo(followed.dsn, replication="database")
    with closing(psycopg.connect(info, autocommit=True, application_name="somebody")) as other:
        other.pgconn.exec_(
            f'START_REPLICATION SLOT "{followed.schema}" LOGICAL 0/0 '
            f"(proto_version '1', publication_names '{followed.schema}')".encode()
        )
        with pytest.raises(TransientError, match=r"read by process \d+ of the server \(somebody\)"):
            followed.plan(begin)


def test_a_table_that_is_emptied(followed: Followed) -> None:
    """Both ways out that the error names; changes before the TRUNCATE are in the same stretch."""
    followed.make(KEYED)
    followed.run("INSERT INTO source VALUES (1, 'a')")
    followed.drain()
    followed.run("INSERT INTO source VALUES (2, 'b')")
    followed.run("TRUNCATE source; INSERT INTO source VALUES (3, 'c')")
    with pytest.raises(PermanentError, match=r"emptied by TRUNCATE.*set onTruncate: skip, and whe"):
        followed.drain()
    assert followed.rows() == [(1, "a")]
    followed.but(onTruncate="skip").drain()
    assert followed.rows() == [(1, "a"), (2, "b"), (3, "c")]
    followed.run("DELETE FROM target WHERE id NOT IN (SELECT id FROM source)")
    followed.run("TRUNCATE source; INSERT INTO source VALUES (4, 'd')")
    with pytest.raises(
        PermanentError, match=r"load the tables again \(dataflow run --from earlies"
    ):
        followed.drain()
    followed.drain(Start("earliest", table="truncate"))
    assert followed.same()
    assert followed.rows() == [(4, "d")]


def test_a_snapshot_that_is_gone_where_rows_are_appended(followed: Followed) -> None:
    """Never a row twice: what is stored of it stays, and the flow stops."""
    followed.run("CREATE TABLE source (id int PRIMARY KEY, name text)")
    followed.run("CREATE TABLE target (id int, name text)")
    followed.run("INSERT INTO source SELECT i, repeat('x', 500) FROM generate_series(1, 900) i")
    followed.limit, followed.sink_options = Limit(bytes=64 * 1024), {}
    assert followed.killed_at("postgresql.after-commit")
    before = followed.rows()
    assert 0 < len(before) < 900
    with pytest.raises(Outdated, match=r"would repeat rows .* --from earliest --table truncate"):
        followed.drain()
    assert followed.rows() == before


def test_a_snapshot_that_is_gone_before_anything_is_stored(followed: Followed) -> None:
    followed.run("CREATE TABLE source (id int PRIMARY KEY, name text)")
    followed.run("CREATE TABLE target (id int, name text)")
    followed.run("INSERT INTO source SELECT i, repeat('x', 500) FROM generate_series(1, 900) i")
    followed.limit, followed.sink_options = Limit(bytes=64 * 1024), {}
    assert followed.killed_at("postgresql-cdc.snapshot")
    assert followed.drain() == 900
    assert followed.same()


def test_a_snapshot_of_the_same_name_is_another_one(followed: Followed) -> None:
    """A server that was restarted begins its names anew."""
    followed.make(KEYED)
    with closing(followed.source.open("followed/names")) as session:
        span = session.plan(session.start(), followed.limit)
        held = [piece for piece in span.slices if isinstance(piece, PartSlice)]
        assert [session.smaller(piece, followed.limit) for piece in held] == [
            (piece.part,) for piece in held
        ]
        earlier = replace(held[0], part=json.dumps({**json.loads(held[0].part), "lsn": "0/1"}))
        with pytest.raises(Outdated):
            session.smaller(earlier, followed.limit)
        assert list(session.renewed(earlier, followed.limit)) == [piece.part for piece in held]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[devservers.PostgreSQL]:
    """A server with room for one slot, which keeps little log for it."""
    config = {"max_replication_slots": "1", "max_wal_senders": "2",
              "max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB",
              "max_wal_size": "32MB"}  # fmt: skip
    with devservers.PostgreSQL(tmp_path / "small", config=config) as server:
        yield server


def test_a_server_without_room_for_slots_and_one_that_gave_the_slot_up(
    small: devservers.PostgreSQL, engine: SparkSession
) -> None:
    followed = Followed(small.dsn(), "public", engine)
    followed.make(KEYED)
    with pytest.raises(PermanentError, match=r"two replication slots.* and 1 of the .*drop one"):
        followed.drain()
    assert not _created(followed)
    with pytest.raises(PermanentError, match="does not exist: run SELECT pg_create_logical_repl"):
        followed.but(createSlotIfNotExists=False).plan()
    followed.options = {"snapshotMode": "never"}
    followed.drain()
    followed.run("INSERT INTO source VALUES (1, 'a')")
    info = psycopg.conninfo.make_conninfo(followed.dsn, replication="database")
    with (
        psycopg.connect(info),
        psycopg.connect(info),
        pytest.raises(TransientError, match=r"all WAL senders are in use.* SET max_wal_senders"),
    ):
        followed.plan(followed.position())
    followed.run("CREATE TABLE noise (t text)")
    for _ in range(4):
        followed.run("INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 20000)")
        followed.run("SELECT pg_switch_wal()")
        followed.run("CHECKPOINT")
    with pytest.raises(PermanentError, match=r"is lost.*Two ways out: drop the slot"):
        followed.drain()


@pytest.mark.parametrize("said", ["sorry, too many clients already", "remaining connection slots"])
def test_a_server_that_is_full_for_a_moment(followed: Followed, said: str) -> None:
    """Its code is that of too many WAL senders."""
    with (
        pytest.raises(TransientError, match=said) as caught,
        errors.explain_errors(followed.source, "reading"),
    ):
        raise PostgresqlFailure(said, "53300")
    assert "wal_senders" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "code", "advised"),
    [
        ("permission denied to use replication slots", "42501", True),
        ("permission denied to start WAL sender", "42501", True),
        ("permission denied for table replication_log", "42501", False),
        ("all replication slots are in use", "53400", True),
        ("temporary file size exceeds temp_file_limit (1kB)", "53400", False),
    ],
)
def test_advice_is_given_on_what_the_server_has_said(
    followed: Followed, said: str, code: str, advised: bool
) -> None:
    with (
        pytest.raises(DataflowError, match=re.escape(said)) as caught,
        errors.explain_errors(followed.source, "reading"),
    ):
        raise PostgresqlFailure(said, code)
    assert advised == ("REPLICATION" in str(caught.value) or "drop one" in str(caught.value))


def test_a_name_of_a_slot_from_a_secret_that_is_none(followed: Followed) -> None:
    followed.make(KEYED)
    source = followed.source.model_copy(update={"slot_name": "orders\n"})
    with pytest.raises(PermanentError, match=r"not the name of a slot.*spaces and line ends"):
        source.open("followed/secret")


def test_a_disk_that_is_full_says_what_to_make_room_for(followed: Followed) -> None:
    said = "could not write to data file for XID 755: No space left on device"
    with (
        pytest.raises(TransientError, match=r"slot \S+ of .*XID 755.*make room.*pg_replslot"),
        errors.explain_errors(followed.source, "planning"),
    ):
        raise PostgresqlFailure(said, "53100")


class Cramped(devservers.PostgreSQL):
    """A server that can write no file of more than 20 MB, as if its disk were full then."""

    def command(self) -> list[str]:
        return ["prlimit", "--fsize=20000000", *super().command()]


@pytest.mark.full
def test_a_disk_that_is_full_under_the_slot(tmp_path: Path, engine: SparkSession) -> None:
    """The server keeps a large transaction in a file until it has read its commit."""
    config = {"logical_decoding_work_mem": "64kB"}
    with Cramped(tmp_path / "cramped", config=config) as server:
        followed = Followed(server.dsn(), "public", engine, patience=1)
        followed.make(KEYED)
        followed.drain()
        position = followed.position()
        rows = "".join(f"{number}\tx\n" for number in range(300_000))
        with (
            psycopg.connect(server.dsn()) as connection,
            connection.cursor().copy("COPY source FROM STDIN") as copy,
        ):
            copy.write(rows)
        with pytest.raises(
            TransientError, match=r"slot public .* could not write .* No space.*make room"
        ):
            followed.drain()
        assert followed.position() == position
        server.config = {"logical_decoding_work_mem": "256MB"}  # it needs no file any more
        server.stop()
        server.start()
        followed.patience = 20
        assert followed.drain() == 300_000
        assert followed.rows() == followed.rows("source")


def test_a_server_whose_log_does_not_say_what_changed(tmp_path: Path, engine: SparkSession) -> None:
    config = {"wal_level": "replica"}
    with devservers.PostgreSQL(tmp_path / "replica", config=config) as server:
        followed = Followed(server.dsn(), "public", engine)
        followed.make(KEYED)
        with pytest.raises(PermanentError, match=r"wal_level is replica: run ALTER SYSTEM SET wal"):
            followed.plan()


def test_who_writes_is_named_where_a_slot_waits(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed.make(KEYED)
    made = slot_module.make

    def impatient(link: TextLink, source: PostgresqlCdcSource) -> None:
        link.execute("SET lock_timeout = '300ms'")
        made(link, source)

    monkeypatch.setattr(slot_module, "make", impatient)
    with psycopg.connect(followed.dsn, application_name="writer") as writer:
        name = f"{followed.schema}_guest"
        writer.execute(f"CREATE ROLE {name} PASSWORD 'hunter2'".encode())
        with pytest.raises(
            DataflowError, match=r"open transactions that write: process \d+ \(writ"
        ) as caught:
            followed.plan()
        writer.rollback()
    assert f"CREATE ROLE {name} PASSWORD ..." in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"snapshotMode": "sometimes"}, "'initial', 'never' or 'always'"),
        ({"schemaChanges": "add", "envelopeFormat": "debezium"}, "add has no effect with envel"),
        ({"slotName": "Orders"}, "lower-case letters, digits and underscores only"),
        ({"slotName": None}, "slotName or slotNameSecretRef is required"),
        ({"publicationName": None}, "publicationName or publicationNameSecretRef is required"),
        ({"tables": []}, "at least 1 item"),
        ({"tables": ["a", "public.a"]}, r"names public\.a twice"),
        ({"plugin": "wal2json"}, "'pgoutput'"),
        ({"heartbeatIntervalSeconds": -1}, "greater than or equal to 0"),
    ],
)
def test_options_that_are_not_valid(options: dict[str, object], reason: str) -> None:
    config = {"connectionString": "postgresql://h/d", "slotName": "s", "publicationName": "p"}
    given = {**config, "tables": ["orders"], **options}
    with pytest.raises(ValidationError, match=reason):
        PostgresqlCdcSource.model_validate({n: v for n, v in given.items() if v is not None})
