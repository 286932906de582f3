"""SQL files of tests, and what they come to."""

from __future__ import annotations

from pathlib import Path

from dataflow_assets.flow import Flow
from dataflow_assets.languages.sql.engine.query import SqlQuery
from dataflow_assets.manifests.load import Loaded, load

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


DATABASE = (
    "CREATE TABLE p (k BIGINT, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = "
    "'postgresql', 'url' = 'postgresql://u@h/d', 'table-name' = 'p', {});"
)
