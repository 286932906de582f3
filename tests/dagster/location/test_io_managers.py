"""Tables through the IO managers: flows in, users' frames in and out, on real servers."""

import decimal
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from pyiceberg.catalog import Catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls them

import devservers
from dataflow_assets.assets import graph
from dataflow_assets.connectors.clickhouse import ClickhouseSink
from dataflow_assets.connectors.clickhouse.client import connect
from dataflow_assets.connectors.memory import Store
from dataflow_assets.connectors.postgresql.frames import read
from dataflow_assets.connectors.postgresql.frames.frame_table import PostgresqlFrameTable
from dataflow_assets.connectors.postgresql.sink.sink import PostgresqlSink
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.location.resources.io_managers import DefaultIOManager, io_managers
from tests.dagster.flows import SharedSpark, location, memory_flow
from tests.frame_sinks import lake_sink

DDL = "id bigint, name string, price decimal(10,2), at timestamp, day date, tags array<string>"


class Shop:
    """Assets of a user beside flows that make the connections `pg` and `lake` known."""

    def __init__(
        self, flows: Sequence[Flow], spark: SparkSession, instance: dg.DagsterInstance
    ) -> None:
        self.flows, self.spark, self.instance = flows, spark, instance

    def materialize(self, *assets: Any, **more: Any) -> dg.ExecuteInProcessResult:
        resources = {
            "spark": dg.ResourceDefinition.hardcoded_resource(SharedSpark(self.spark)),
            "io_manager": DefaultIOManager(),
            **io_managers(graph.build(self.flows)),
        }
        return dg.materialize(
            list(assets), resources=resources, instance=self.instance, raise_on_error=False, **more
        )


@pytest.fixture
def shop(
    postgresql: devservers.PostgreSQL,
    seaweedfs: devservers.SeaweedFS,
    schema: str,
    namespace: str,
    spark: SparkSession,
    instance: dg.DagsterInstance,
    store: Any,
) -> Shop:
    pg = PostgresqlSink.model_validate(
        {"connectionString": postgresql.dsn(), "table": f"{schema}.orders", "autoCreateTable": True}
    )
    lake = lake_sink(seaweedfs, namespace)
    flows = [
        memory_flow(store, "to_pg", branches=(Branch(pg, "pg"),)),
        memory_flow(store, "to_lake", branches=(Branch(lake, "lake"),)),
    ]
    return Shop(flows, spark, instance)


@pytest.fixture
def olap(
    shop: Shop, clickhouse: devservers.ClickHouse, database: str, store: Any
) -> Iterator[Client]:
    """A flow beside those of the shop makes the connection `ch` known; a client of its server."""
    sink = ClickhouseSink.model_validate(
        {"connectionString": clickhouse.dsn(database), "table": "orders", "autoCreateTable": True}
    )
    shop.flows = [*shop.flows, memory_flow(store, "to_ch", branches=(Branch(sink, "ch"),))]
    with closing(connect(clickhouse.dsn(database), "tests")) as client:
        yield client


def rows_of(spark: SparkSession, count: int, start: int = 0) -> DataFrame:
    at = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
    rows = [
        (i, f'n,{i}\n"x"' if i else "", decimal.Decimal("1.50"), at, date(2026, 1, 31), ["a", "b"])
        for i in range(start, start + count)
    ]
    return spark.createDataFrame(rows, DDL).repartition(2)


def frame_asset(
    asset_key: Sequence[str], make: Any, *, manager: str, **metadata: Any
) -> dg.AssetsDefinition:
    @dg.asset(
        key=list(asset_key),
        io_manager_key=manager,
        metadata=metadata,
        required_resource_keys={"spark"},
    )
    def frame(context: dg.AssetExecutionContext) -> Any:
        return make(context.resources.spark.session())

    return frame


def select(postgresql: devservers.PostgreSQL, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def test_postgresql_makes_overwrites_appends_and_upserts(
    shop: Shop, postgresql: devservers.PostgreSQL, schema: str
) -> None:
    key = ["postgresql", "pg", schema, "things"]

    def write(count: int, start: int = 0, **metadata: Any) -> None:
        asset = frame_asset(
            key, lambda spark: rows_of(spark, count, start), manager="postgresql", **metadata
        )
        assert shop.materialize(asset).success

    def ids() -> list[int]:
        return [row[0] for row in select(postgresql, f"SELECT id FROM {schema}.things ORDER BY id")]

    write(5)
    assert ids() == [0, 1, 2, 3, 4]
    write(3, mode="overwrite")
    assert ids() == [0, 1, 2]
    write(2, start=1, mode="append")
    assert ids() == [0, 1, 1, 2, 2]
    write(2)
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"ALTER TABLE {schema}.things ADD PRIMARY KEY (id)")
    write(3, start=1, mode="upsert", key="id")
    assert ids() == [0, 1, 2, 3]
    assert select(postgresql, f"SELECT name, tags::text, at FROM {schema}.things WHERE id = 3") == [
        ('n,3\n"x"', '["a", "b"]', datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC))
    ]
    tables = f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'"
    assert select(postgresql, tables) == [("things",)]


@pytest.mark.full  # in process in tests/sdk and tests/matrix; an upsert on Spark is below
def test_iceberg_makes_overwrites_appends_and_upserts(
    shop: Shop, catalog: Catalog, namespace: str
) -> None:
    key = ["iceberg", "lake", namespace, "things"]

    def write(count: int, start: int = 0, **metadata: Any) -> list[int]:
        asset = frame_asset(
            key, lambda spark: rows_of(spark, count, start), manager="iceberg", **metadata
        )
        assert shop.materialize(asset).success
        table = catalog.load_table((namespace, "things")).scan().to_arrow()
        return sorted(table.column("id").to_pylist())

    assert write(5) == [0, 1, 2, 3, 4]
    assert write(3, mode="overwrite") == [0, 1, 2]
    assert write(2, start=1, mode="append") == [0, 1, 1, 2, 2]
    assert write(2, mode="overwrite") == [0, 1]
    assert write(3, start=1, mode="upsert", key=["id"]) == [0, 1, 2, 3]


def test_an_upsert_of_iceberg_computes_its_frame_once(
    shop: Shop, catalog: Catalog, namespace: str, tmp_path: Path
) -> None:
    """A source may have other rows when it is read again: none is lost, and none is there twice."""

    def changing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            (tmp_path / uuid.uuid4().hex).touch()
            yield pa.record_batch([[len(list(tmp_path.iterdir()))]], ["id"])

    def ids() -> list[int]:
        table = catalog.load_table((namespace, "things")).scan().to_arrow()
        return sorted(table.column("id").to_pylist())

    key = ["iceberg", "lake", namespace, "things"]
    stands = frame_asset(key, lambda spark: spark.range(9), manager="iceberg")
    assert shop.materialize(stands).success
    asset = frame_asset(
        key,
        lambda spark: spark.range(0, 1, 1, 1).mapInArrow(changing, "id bigint"),
        manager="iceberg",
        mode="upsert",
        key="id",
    )
    assert shop.materialize(asset).success
    assert ids() == list(range(9))
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.full  # as for Iceberg
def test_clickhouse_makes_overwrites_appends_and_upserts(
    shop: Shop, olap: Client, database: str
) -> None:
    key = ["clickhouse", "ch", database, "things"]

    def write(count: int, start: int = 0, **metadata: Any) -> list[int]:
        asset = frame_asset(
            key, lambda spark: rows_of(spark, count, start), manager="clickhouse", **metadata
        )
        assert shop.materialize(asset).success
        found = olap.query("SELECT id FROM things FINAL ORDER BY id")
        return [row[0] for row in found.result_rows]

    assert write(5, mode="upsert", key="id") == [0, 1, 2, 3, 4]
    assert write(3, mode="overwrite") == [0, 1, 2]
    assert write(3, start=2, mode="append") == [0, 1, 2, 3, 4]
    assert write(3, start=3, mode="upsert", key=["id"]) == [0, 1, 2, 3, 4, 5]
    assert write(0, mode="append") == [0, 1, 2, 3, 4, 5]
    found = olap.query("SELECT name, price, tags, at FROM things FINAL WHERE id = 3")
    (row,) = found.result_rows
    assert row[:3] == ('n,3\n"x"', decimal.Decimal("1.50"), ["a", "b"])
    assert row[3].replace(tzinfo=UTC) == datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
    tables = olap.query("SELECT name FROM system.tables WHERE database = currentDatabase()")
    assert tables.result_rows == [("things",)]
    assert write(0, mode="overwrite") == []


def test_what_clickhouse_cannot_take_leaves_the_table_as_it_was(
    shop: Shop, olap: Client, database: str
) -> None:
    olap.command("CREATE TABLE narrow (id Int8) ENGINE = MergeTree ORDER BY id")
    olap.command(
        "CREATE TABLE versioned (id Int64, v UInt64) ENGINE = ReplacingMergeTree(v) ORDER BY id"
    )

    def told(table: str, make: Any, **metadata: Any) -> str:
        key = ["clickhouse", "ch", database, table]
        return _error(shop.materialize(frame_asset(key, make, manager="clickhouse", **metadata)))

    assert "has no column name; it has id" in told(
        "narrow", lambda spark: rows_of(spark, 1).select("id", "name")
    )
    assert "column id: 128 is not a valid int8" in told(
        "narrow", lambda spark: spark.range(126, 130)
    )
    assert "needs a ReplacingMergeTree ORDER BY (id)" in told(
        "narrow", lambda spark: spark.range(3), mode="upsert", key="id"
    )
    assert "finds the newest row of a key by v, which the frame lacks" in told(
        "versioned", lambda spark: spark.range(3), mode="upsert", key="id"
    )
    assert "several rows of one key" in told(
        "doubled", lambda spark: spark.range(3).union(spark.range(1)), mode="upsert", key="id"
    )
    for table in ("narrow", "versioned", "doubled"):
        assert olap.query(f"SELECT count() FROM {table}").first_row == (0,)
    assert olap.query(
        "SELECT count() FROM system.tables WHERE database = currentDatabase() "
        "AND startsWith(name, '_dataflow')"
    ).first_row == (0,)


def test_a_materialized_view_of_clickhouse_sees_what_is_appended(
    shop: Shop, olap: Client, database: str
) -> None:
    olap.command("CREATE TABLE plain (id Int64) ENGINE = MergeTree ORDER BY id")
    olap.command(
        "CREATE MATERIALIZED VIEW doubled ENGINE = MergeTree ORDER BY id AS SELECT id * 2 AS id "
        "FROM plain"
    )
    key = ["clickhouse", "ch", database, "plain"]
    asset = frame_asset(key, lambda spark: spark.range(3), manager="clickhouse", mode="append")
    assert shop.materialize(asset).success
    assert olap.query("SELECT groupArray(id) FROM doubled").first_row == ([0, 2, 4],)


def test_a_table_of_clickhouse_reads_as_it_was_written(
    shop: Shop, olap: Client, postgresql: devservers.PostgreSQL, schema: str, database: str
) -> None:
    olap.command(
        "CREATE TABLE kinds (i UInt64, b Bool, t LowCardinality(String), n Decimal(8, 3), "
        "w Decimal(50, 2), f Float64, j JSON, m Map(String, UInt8), z DateTime64(9, 'UTC'), "
        "u UUID, a Array(UInt32), s Tuple(x UInt8, y Nullable(String)), v UInt8) "
        "ENGINE = ReplacingMergeTree(v) ORDER BY i"
    )
    values = (
        "(18446744073709551615, true, 'a', 1.5, '1.25', nan, '{{\"a\": 1}}', {{'k': 1}}, "
        "'2026-01-31 10:00:00.123456789', '00000000-0000-0000-0000-000000000001', "
        "[4294967295], (255, NULL), {version})"
    )
    for version in (1, 2):
        olap.command(f"INSERT INTO kinds VALUES {values.format(version=version)}")
    found: list[Any] = []

    @dg.asset(
        key=["postgresql", "pg", schema, "copy"],
        ins={"kinds": dg.AssetIn(key=["clickhouse", "ch", database, "kinds"])},
        io_manager_key="postgresql",
    )
    def copy(kinds: DataFrame) -> DataFrame:
        found.extend(kinds.collect())
        return kinds.select("t", "u")

    upstream = dg.AssetSpec(["clickhouse", "ch", database, "kinds"]).with_io_manager_key(
        "clickhouse"
    )
    assert shop.materialize(upstream, copy, selection=[copy]).success
    (row,) = found
    assert (row.i, row.b, row.t, row.n) == (
        decimal.Decimal(18446744073709551615),
        True,
        "a",
        decimal.Decimal("1.500"),
    )
    assert (str(row.f), row.w, json.loads(row.j), json.loads(row.m)) == (
        "nan",
        "1.25",
        {"a": 1},
        {"k": 1},
    )
    assert row.z.astimezone(UTC) == datetime(2026, 1, 31, 10, 0, 0, 123456, tzinfo=UTC)
    assert (row.a, row.s.x, row.s.y, row.v) == ([4294967295], 255, None, 2)
    assert select(postgresql, f"SELECT t, u FROM {schema}.copy") == [("a", row.u)]


def test_a_users_asset_reads_iceberg_and_writes_postgresql(
    shop: Shop, postgresql: devservers.PostgreSQL, schema: str, namespace: str
) -> None:
    key = ["iceberg", "lake", namespace, "orders"]
    upstream = frame_asset(key, lambda spark: rows_of(spark, 10), manager="iceberg")

    @dg.asset(
        key=["postgresql", "pg", schema, "revenue"],
        ins={"orders": dg.AssetIn(key=key)},
        io_manager_key="postgresql",
    )
    def revenue(orders: DataFrame) -> DataFrame:
        return orders.groupBy("day").agg({"price": "sum", "id": "max"}).toDF("day", "total", "last")

    result = shop.materialize(upstream, revenue)
    assert result.success
    assert select(postgresql, f"SELECT * FROM {schema}.revenue") == [
        (date(2026, 1, 31), decimal.Decimal("15.00"), 9)
    ]


def test_a_flows_event_tells_the_rows_of_the_whole_table(
    shop: Shop, store: Store, spark: SparkSession, instance: dg.DagsterInstance
) -> None:
    def drain(name: str, ids: Sequence[int]) -> Any:
        store.produce("orders", 0, [json.dumps({"id": i, "name": "n"}).encode() for i in ids])
        job = location(shop.flows, spark).resolve_job_def(f"{name}_job")
        config = {"ops": {name: {"config": {"seconds": None}}}}
        result = job.execute_in_process(run_config=config, instance=instance)
        (event,) = result.asset_materializations_for_node(name)
        return event.metadata

    drain("to_lake", range(3))
    metadata = drain("to_lake", range(2))
    assert (metadata["rows"].value, metadata["dagster/row_count"].value) == (2, 5)
    assert "dagster/row_count" not in drain("to_pg", ())


@pytest.mark.parametrize("system", ["iceberg", "postgresql"])
def test_a_users_table_is_described_as_those_of_flows(
    shop: Shop, schema: str, namespace: str, system: str
) -> None:
    connection, where = ("lake", namespace) if system == "iceberg" else ("pg", schema)
    key = [system, connection, where, "things"]

    def write(mode: str) -> Any:
        asset = frame_asset(key, lambda spark: rows_of(spark, 3), manager=system, mode=mode)
        (event,) = shop.materialize(asset).asset_materializations_for_node("__".join(key))
        return {name: value.value for name, value in event.metadata.items()}

    write("overwrite")
    metadata = write("append")
    assert metadata["dagster/uri"] == f"{system}://{connection}/{where}.things"
    assert metadata["dagster/table_name"] == f"{where}.things"
    assert metadata["dagster/storage_kind"] == system
    assert metadata["rows"] == 3
    assert metadata.get("dagster/row_count") == (6 if system == "iceberg" else None)
    columns = {c.name: c.type for c in metadata["dagster/column_schema"].columns}
    assert list(columns) == ["id", "name", "price", "at", "day", "tags"]
    assert (columns["id"], columns["day"]) == ("int64", "date32[day]")


def test_a_table_of_postgresql_reads_as_it_was_written(
    shop: Shop, spark: SparkSession, postgresql: devservers.PostgreSQL, schema: str
) -> None:
    place = PostgresqlFrameTable(postgresql.dsn(), schema, "kinds")
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE TYPE {schema}.int4 AS ENUM ('low')")
        connection.execute(
            f"CREATE TABLE {schema}.kinds (i int, b boolean, t text, n numeric(8,3), f double "
            f"precision, j jsonb, y bytea, d date, z timestamptz, u uuid, a int[], k {schema}.int4)"
        )
        connection.execute(
            f"""INSERT INTO {schema}.kinds VALUES
            (1, true, '', 1.5, 'NaN', '{{"a": [1]}}', '\\x00ff', '2026-01-31',
            '2026-01-31 12:00:00.5+02', '00000000-0000-0000-0000-000000000001', '{{1,2}}', 'low'),
            (2, null, 'a,"b"\nc', null, null, null, null, null, null, null, null, null)"""
        )
    with ExitStack() as held:
        first, second = read.read(place, spark, None, held).orderBy("i").collect()
    assert (first.i, first.b, first.t, first.n) == (1, True, "", decimal.Decimal("1.500"))
    assert (str(first.f), json.loads(first.j), bytes(first.y)) == ("nan", {"a": [1]}, b"\x00\xff")
    assert (first.d, first.u, first.a, first.k) == (
        date(2026, 1, 31),
        "00000000-0000-0000-0000-000000000001",
        "{1,2}",
        "low",
    )
    assert first.z.astimezone(UTC) == datetime(2026, 1, 31, 10, 0, 0, 500000, tzinfo=UTC)
    assert (second.t, second.b, second.n, second.z) == ('a,"b"\nc', None, None, None)


@pytest.mark.parametrize("part_bytes", [64 * 1024, 1024**3], ids=["parts", "one part"])
def test_all_reads_of_a_frame_see_one_snapshot(
    part_bytes: int,
    spark: SparkSession,
    postgresql: devservers.PostgreSQL,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read, "PART_BYTES", part_bytes)
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        series = "SELECT g AS id FROM generate_series(1, 20000) g"
        connection.execute(f"CREATE TABLE {schema}.many AS {series}")
        with ExitStack() as held:
            frame = read.read(
                PostgresqlFrameTable(postgresql.dsn(), schema, "many"), spark, None, held
            )
            connection.execute(f"UPDATE {schema}.many SET id = id + 1000000")
            assert frame.count() == 20000
            assert frame.agg({"id": "max"}).collect()[0][0] == 20000


@pytest.mark.parametrize("system", ["iceberg", "postgresql", "clickhouse"])
def test_an_upsert_leaves_the_columns_alone_that_a_frame_lacks(
    shop: Shop, olap: Client, schema: str, namespace: str, database: str, system: str
) -> None:
    places = {"iceberg": ("lake", namespace), "postgresql": ("pg", schema)}
    key = [system, *places.get(system, ("ch", database)), "things"]

    def write(count: int, start: int, *columns: str, **metadata: Any) -> str:
        def made(spark: SparkSession) -> DataFrame:
            frame = rows_of(spark, count, start).select(*columns)
            nulls = frame.withColumn("id", F.nullif(F.col("id"), F.lit(9)))
            return nulls.withColumn("name", F.concat("name", F.lit("!")))

        asset = frame_asset(key, made, manager=system, mode="upsert", key="id", **metadata)
        result = shop.materialize(asset)
        return "" if result.success else _error(result)

    upstream = frame_asset(key, lambda spark: spark.range(1), manager=system)
    found: list[tuple[Any, ...]] = []

    @dg.asset(ins={"up": dg.AssetIn(key=key)})
    def down(up: DataFrame) -> None:
        found.extend(tuple(row) for row in up.select("id", "name", "price").sort("id").collect())

    assert write(2, 1, "id", "name", "price") == ""
    assert write(2, 2, "id", "name") == ""
    assert "null in the key (id)" in write(3, 8, "id", "name")
    assert shop.materialize(upstream, down, selection=[down]).success
    one = decimal.Decimal("1.50")
    ends = [(1, one), (2, one), (3, None)]
    assert found == [(i, f'n,{i}\n"x"!', price) for i, price in ends]


def test_a_value_that_spark_has_no_room_for_is_one_sentence(
    shop: Shop, postgresql: devservers.PostgreSQL, schema: str
) -> None:
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.odd (v) AS SELECT 'NaN'::numeric".encode())
    upstream = dg.AssetSpec(["postgresql", "pg", schema, "odd"]).with_io_manager_key("postgresql")

    @dg.asset(
        key=["postgresql", "pg", schema, "copy"],
        ins={"odd": dg.AssetIn(key=upstream.key)},
        io_manager_key="postgresql",
    )
    def copy(odd: DataFrame) -> DataFrame:
        return odd

    result = shop.materialize(upstream, copy, selection=[copy])
    (failed,) = result.filter_events(lambda event: event.is_step_failure)
    told = failed.step_failure_data.user_failure_data
    assert told is not None
    start = f'postgresql/pg/{schema}/copy: column v of "{schema}"."odd" holds NaN, which'
    assert str(told.description).startswith(start)
    assert "\n" not in str(told.description)


def test_the_default_refuses_spark_frames(shop: Shop) -> None:
    asset = frame_asset(["loose"], lambda spark: spark.range(1), manager="io_manager")
    result = shop.materialize(asset)
    assert "a plan and no data" in _error(result)


def test_a_connection_that_no_flow_knows_is_named(shop: Shop, schema: str) -> None:
    key = ["postgresql", "elsewhere", schema, "things"]
    asset = frame_asset(key, lambda spark: spark.range(1), manager="postgresql")
    assert "known ones: pg" in _error(shop.materialize(asset))


def test_a_column_that_the_table_lacks_is_named(
    shop: Shop, postgresql: devservers.PostgreSQL, schema: str
) -> None:
    with psycopg.connect(postgresql.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {schema}.narrow (a int)")
    key = ["postgresql", "pg", schema, "narrow"]
    asset = frame_asset(key, lambda spark: spark.range(1), manager="postgresql")
    assert "has no column id; it has a" in _error(shop.materialize(asset))


def _error(result: dg.ExecuteInProcessResult) -> str:
    (failure,) = result.filter_events(lambda event: event.is_step_failure)
    data = failure.step_failure_data
    return f"{data.user_failure_data} {data.error}"
