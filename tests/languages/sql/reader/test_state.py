"""Queries with state: the flows that they come to."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.records.record import Record
from dataflow_assets.records.step import Context
from tests.languages.sql.files import PAGE_TABLES
from tests.languages.sql.reader.reading import PLAIN, SOURCE, TARGET, WITH, loaded, one, step

SEED = PAGE_TABLES.replace("'...'", "'k:9092'")


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
