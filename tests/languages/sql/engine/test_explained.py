"""The plan of a query as people read it, and what its asset's page shows of its state."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest

import definitions
import devservers
from dataflow_assets.languages.sql.engine.explained import explain
from dataflow_assets.languages.sql.engine.plan import FlinkPlan
from dataflow_assets.languages.sql.engine.query import SqlQuery
from dataflow_assets.languages.sql.engine.view import ViewPlan
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.languages.sql.files import Sql

KEYED = "k BIGINT, g STRING, a BIGINT, PRIMARY KEY (k) NOT ENFORCED"
COUNTED = "SELECT g, COUNT(DISTINCT a) AS n FROM s WHERE k > 3 GROUP BY g"
WINDOWED = "TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))"
UNITED = "SELECT * FROM s UNION ALL SELECT UPPER(g), 1 FROM s WHERE a > 1"
NUMBERED = "SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY a DESC) AS rn FROM s"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_FILES", str(tmp_path))


@pytest.mark.parametrize(
    ("source", "target", "query", "wanted"),
    [
        (
            "g STRING, a BIGINT, p INT METADATA FROM 'partition' VIRTUAL",
            "g STRING, a BIGINT",
            "SELECT UPPER(g), a + 1 FROM s WHERE a IS NOT NULL AND g <> 'it''s'",
            """
            read     g, a, p (metadata partition)
            where    (NOT(IS NULL(a)) AND (g <> 'it''s'))
            write    g = UPPER(g), a = (a + 1)
                     appended
            """,
        ),
        (
            KEYED,
            "n BIGINT, total BIGINT, PRIMARY KEY (n) NOT ENFORCED",
            f"SELECT n, COUNT(*) FROM ({COUNTED}) GROUP BY n HAVING COUNT(*) > 1",
            """
            read     k, g, a
            latest   of each k, before and after: state `rows`
            where    (k > 3)
            distinct COUNT(DISTINCT a): state `distinct-0`
            group    g: COUNT(DISTINCT a) (rows come and go): state `groups-0`
            group    COUNT(DISTINCT a): COUNT(*) (rows come and go): state `groups-1`
            having   (COUNT(*) > 1)
            write    n = COUNT(DISTINCT a), total = COUNT(*)
                     by the key n
            """,
        ),
        (
            "a BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND",
            "ws TIMESTAMP(3), n BIGINT, PRIMARY KEY (ws) NOT ENFORCED",
            f"SELECT window_start, COUNT(*) FROM {WINDOWED} GROUP BY window_start, window_end",
            """
            read     a, ts
            window   HOP of ts: 10 s, each 5 s; watermark (ts - INTERVAL 2 s)
            group    window_start, window_end: COUNT(*) (final with the window): state `groups-0`
            write    ws = window_start, n = COUNT(*)
                     by the key ws
            """,
        ),
        (
            "a BIGINT, ts AS PROCTIME()",
            "ws TIMESTAMP(3), n BIGINT",
            f"SELECT window_start, COUNT(*) FROM {WINDOWED} GROUP BY window_start, window_end",
            """
            read     a
            window   HOP of CURRENT_TIMESTAMP(): 10 s, each 5 s; watermark the clock
            group    window_start, window_end: COUNT(*) (final with the window): state `groups-0`
            write    ws = window_start, n = COUNT(*)
                     appended
            """,
        ),
        (
            KEYED,
            "k BIGINT, a BIGINT, PRIMARY KEY (k) NOT ENFORCED",
            f"SELECT k, a FROM ({NUMBERED}) WHERE rn <= 3",
            """
            read     k, g, a
            latest   of each k, before and after: state `rows`
            number   the first 3 of g, by a DESC (rows come and go): state `groups-0`
            where    (ROW_NUMBER() <= 3)
            group    k: ROW(a) (rows come and go): state `groups-1`
            write    k = k, a = ROW(a).EXPR$0
                     by the key k
            """,
        ),
        (
            "g STRING, xs ARRAY<INT>",
            "g STRING, x INT",
            "SELECT g, x FROM s LEFT JOIN UNNEST(xs) AS t (x) ON TRUE WHERE x > 1",
            """
            read     g, xs
            unnest   LEFT JOIN UNNEST(xs)
            where    (xs.item > 1)
            write    g = g, x = xs.item
                     appended
            """,
        ),
        (
            "g STRING, a BIGINT",
            "g STRING, n BIGINT, PRIMARY KEY (g) NOT ENFORCED",
            f"SELECT g, SUM(a) FROM ({UNITED}) GROUP BY g",
            """
            read     g, a
            union    g, a
            read     g, a
            where    (a > 1)
            union    UPPER(g), CAST(1 AS BIGINT)
            group    g: SUM(a) (rows only come): state `groups-0`
            write    g = g, n = SUM(a)
                     by the key g
            """,
        ),
    ],
)
def test_the_plan_of_a_query(
    source: str, target: str, query: str, wanted: str, tmp_path: Path
) -> None:
    options = "'topic' = '{}', 'properties.bootstrap.servers' = 'k:9092'"
    upsert = (
        f"'connector' = 'upsert-kafka', {options}, 'key.format' = 'json', 'value.format' = 'json'"
    )
    plain = f"'connector' = 'kafka', {options}, 'format' = 'json'"
    file = tmp_path / "one.sql"
    kinds = [upsert if "PRIMARY KEY" in one else plain for one in (source, target)]
    file.write_text(
        f"CREATE TABLE s ({source}) WITH ({kinds[0].format('s')});\n"
        f"CREATE TABLE o ({target}) WITH ({kinds[1].format('o')});\nINSERT INTO o {query};\n"
    )
    flow = choose(load(file), None)
    step = flow.transformations[0].step
    made = step.plan if isinstance(step, SqlQuery) else flow.source
    plan = made.view if isinstance(made, ViewSource) else made
    assert isinstance(plan, FlinkPlan | ViewPlan)
    found = explain(plan)
    assert found.splitlines() == [line[12:] for line in wanted.splitlines()[1:-1]]


def test_the_page_of_an_asset_shows_plan_and_size_of_the_state(
    sql: Sql, tmp_path: Path, spark_server: devservers.SparkConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_SPARK", spark_server.remote)
    into = "g STRING, n BIGINT, PRIMARY KEY (g) NOT ENFORCED"
    sql.write("g STRING, a BIGINT", into, "SELECT g, COUNT(*) FROM s GROUP BY g")
    sql.send((None, json.dumps({"g": g}).encode()) for g in "xyz")
    defs = definitions.build([tmp_path])
    (node,) = [one for one in defs.resolve_all_asset_specs() if "plan" in one.metadata]
    assert "group    g: COUNT(*) (rows only come)" in node.metadata["plan"].value
    job = defs.resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        assert job.execute_in_process(instance=instance).success
        (record,) = instance.fetch_materializations(node.key, limit=9).records
    assert record.asset_materialization is not None
    size = record.asset_materialization.metadata["state_bytes"].value
    (kept,) = tmp_path.rglob("groups-0-*.parquet")
    assert size == kept.stat().st_size
