"""Roles, tables, options and servers that a followed table cannot be read with: what is said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError
from pyspark.sql import SparkSession
from typing_extensions import override

import devservers
from dataflow_assets import registry
from dataflow_assets.connectors.postgresql import PostgresqlCdcSource, PostgresqlSink
from dataflow_assets.connectors.postgresql.cdc import errors, tables
from dataflow_assets.connectors.postgresql.cdc.snapshot import check_readable
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.pool import lent_to_source
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.records.chain import Transformation
from dataflow_assets.transforms.router import Router
from tests.connectors.clickhouse.system import Clickhouse
from tests.connectors.iceberg.system import Iceberg
from tests.connectors.kafka.system import Kafka
from tests.connectors.postgresql.cdc.followed import KEYED, UPSERTED, Elsewhere, Followed, created
from tests.connectors.postgresql.system import Postgresql
from tests.systems import System


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
    assert not created(flow)


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
        assert not created(followed)
        followed.run(str(said.value).split("Let the owner run: ")[1].split(" (")[0])
        assert followed.drain() == 1
        assert len(created(followed)) == 2
    finally:
        followed.run(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


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
        assert len(created(followed)) == 1
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


def test_a_name_of_a_slot_from_a_secret_that_is_none(followed: Followed) -> None:
    followed.make(KEYED)
    source = followed.source.model_copy(update={"slot_name": "orders\n"})
    with pytest.raises(PermanentError, match=r"not the name of a slot.*spaces and line ends"):
        source.open("followed/secret")


def test_a_server_whose_log_does_not_say_what_changed(tmp_path: Path, engine: SparkSession) -> None:
    config = {"wal_level": "replica"}
    with devservers.PostgreSQL(tmp_path / "replica", config=config) as server:
        followed = Followed(server.dsn(), "public", engine)
        followed.make(KEYED)
        with pytest.raises(PermanentError, match=r"wal_level is replica: run ALTER SYSTEM SET wal"):
            followed.plan()


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
