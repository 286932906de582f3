"""Large values that a change has left alone, in targets that replace whole rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dataflow_assets import registry
from dataflow_assets.contracts import Rejects
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.chain import Transformation
from dataflow_assets.transforms.debezium_unwrap import DebeziumUnwrap
from dataflow_assets.transforms.snake_case import SnakeCase
from dataflow_assets.transforms.validate import Validate
from tests.connectors.clickhouse.system import Clickhouse
from tests.connectors.kafka.system import Kafka
from tests.connectors.postgresql.cdc.followed import Elsewhere, Followed
from tests.systems import Config, System

LARGE = "(SELECT string_agg(md5(i::text || '{seed}'), '') FROM generate_series(1, 300) i)"
COLUMNS = (
    "id int, region text, n int, big text NOT NULL, maybe text, "
    "many int[], doc jsonb, amount numeric(40, 2), PRIMARY KEY (id, region)"
)
MADE = """
CREATE TABLE target (id Int32, region String, n Int32, big String, maybe Nullable(String),
  many Array(Int32), doc Nullable(String) COMMENT 'JSON text', amount Nullable(Decimal(40, 2)),
  _version UInt64, _deleted UInt8)
ENGINE = ReplacingMergeTree(_version, _deleted) ORDER BY (id, region)
SETTINGS non_replicated_deduplication_window = 1000
"""
FEW = {"properties": {"n": {"maximum": 10}}}
UPSERTED = {"upsertMode": True, "conflictKey": ["id", "region"], "deleteMode": "hard"}


def _into(
    followed: Followed, target: System, config: Config, **options: Any
) -> tuple[Elsewhere, Config]:
    written = {**target.at("sink", config), **config}
    if isinstance(target, Clickhouse):
        written["table"] = "target"
    sink = registry.sinks()[target.type].model_validate(written)
    return (
        Elsewhere(followed.dsn, followed.schema, followed.engine, options, into=sink),
        written,
    )


def _make(flow: Followed) -> None:
    flow.run(f"CREATE TABLE source ({COLUMNS})")
    for name in ("big", "maybe", "many", "doc", "amount"):
        flow.run(f"ALTER TABLE source ALTER {name} SET STORAGE EXTERNAL")


def _insert(flow: Followed, *keys: int) -> None:
    for key in keys:
        big = LARGE.format(seed=key)
        flow.run(
            f"INSERT INTO source SELECT {key}, 'r{key}', 0, {big}, {big}, "
            f"ARRAY(SELECT generate_series({key}, {key} + 3000)), "
            f"jsonb_build_object('k', {big}), {key}.25"
        )


def _source(flow: Followed) -> list[tuple[Any, ...]]:
    return flow.run("SELECT id, region, n, big, maybe, many, doc::text, amount FROM source "
                    "ORDER BY 1, 2")  # fmt: skip


def _stored(clickhouse: Clickhouse) -> list[tuple[Any, ...]]:
    query = "SELECT id, region, n, big, maybe, many, doc, amount FROM target FINAL ORDER BY 1, 2"
    return [tuple(row) for row in clickhouse.client.query(query).result_rows]


def _canonical(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*row[:5], list(row[5]), json.loads(row[6]), row[7]) for row in rows]


STEPS = {
    "none": ({}, ()),
    "steps": ({}, (Transformation(SnakeCase.model_validate({})),)),
    "envelope": (
        {"envelopeFormat": "debezium"},
        (Transformation(DebeziumUnwrap.model_validate({})),),
    ),
}


@pytest.mark.parametrize(
    ("identity", "way"),
    [
        *(("DEFAULT", way) for way in STEPS),
        *(
            pytest.param("FULL", way, marks=() if way == "none" else pytest.mark.full)
            for way in STEPS
        ),
    ],
)
def test_clickhouse_keeps_what_a_change_has_left_alone(
    followed: Followed, request: pytest.FixtureRequest, identity: str, way: str
) -> None:
    """From the table; from the same INSERT; of a key that is changed several times at once."""
    target = Clickhouse(request)
    options, steps = STEPS[way]
    flow, _ = _into(followed, target, dict(UPSERTED), **options)
    flow.steps = steps
    target.client.command(MADE)
    _make(flow)
    flow.run(f"ALTER TABLE source REPLICA IDENTITY {identity}")
    _insert(flow, 1, 2, 3)
    flow.drain()
    flow.run("UPDATE source SET n = 7 WHERE id = 1")
    flow.run("UPDATE source SET n = 7, maybe = NULL WHERE id = 2; "
             "UPDATE source SET n = 7, big = 'short' WHERE id = 2; "
             "UPDATE source SET n = 7, doc = '{}' WHERE id = 2")  # fmt: skip
    flow.run("DELETE FROM source WHERE id = 3")
    _insert(flow, 3, 4)
    flow.run("UPDATE source SET n = 7 WHERE id >= 3; UPDATE source SET n = 7 WHERE id = 3")
    flow.drain()
    assert _canonical(_stored(target)) == _canonical(_source(flow))
    flow.run("UPDATE source SET n = 7, amount = 9 WHERE id IN (1, 4)")
    flow.drain()
    assert _canonical(_stored(target)) == _canonical(_source(flow))
    assert flow.drain() == 0


def test_clickhouse_keeps_them_when_an_insert_is_repeated(
    followed: Followed, request: pytest.FixtureRequest
) -> None:
    """The rows are in the table, and the crash came before that was recorded."""
    target = Clickhouse(request)
    flow, _ = _into(followed, target, dict(UPSERTED))
    target.client.command(MADE)
    _make(flow)
    _insert(flow, 1, 2)
    flow.drain()
    flow.run("UPDATE source SET n = 1; UPDATE source SET big = 'x' WHERE id = 2")
    assert flow.killed_at("clickhouse.inserted")
    flow.run("UPDATE source SET n = 2")
    flow.drain()
    assert _canonical(_stored(target)) == _canonical(_source(flow))


def test_a_change_of_a_row_that_clickhouse_does_not_have(
    followed: Followed, request: pytest.FixtureRequest
) -> None:
    """Nothing knows the value: the record is rejected, and says what to run."""
    target = Clickhouse(request)
    flow, _ = _into(followed, target, dict(UPSERTED), snapshotMode="never")
    target.client.command(MADE)
    _make(flow)
    _insert(flow, 1)
    flow.drain()
    flow.run("UPDATE source SET n = 1")
    flow.rejects = Rejects("skip")
    reports = [*flow.reports()]
    assert _stored(target) == []
    assert sum(one.delta.rejected for one in reports) == 1
    flow.run("UPDATE source SET n = 2")
    flow.rejects = Rejects("fail")
    with pytest.raises(PermanentError, match=r"the value of big.* is not in the log.*FULL"):
        flow.drain()


@pytest.mark.parametrize("way", [*STEPS])
def test_clickhouse_keeps_them_when_a_rejected_change_is_replayed(
    followed: Followed, request: pytest.FixtureRequest, way: str
) -> None:
    """The record was rejected for another column, and the others may be null."""
    target = Clickhouse(request)
    options, steps = STEPS[way]
    flow, _ = _into(followed, target, dict(UPSERTED), **options)
    flow.steps, flow.rejects = steps, Rejects("table")
    target.client.command(MADE.replace("n Int32", "n UInt8"))
    _make(flow)
    _insert(flow, 1, 2, 3)
    flow.drain()
    flow.run("UPDATE source SET n = 700 WHERE id < 3; UPDATE source SET maybe = NULL WHERE id = 2")
    assert sum(one.delta.rejected for one in flow.reports()) == 3
    target.client.command("ALTER TABLE target MODIFY COLUMN n Int32")
    assert flow.replay() == (3, 0)
    assert _canonical(_stored(target)) == _canonical(_source(flow))


@pytest.mark.parametrize(
    ("compacted", "way"),
    [
        ("by upsertMode", "none"),
        ("by upsertMode", "steps"),
        ("by hand", "none"),
        ("no", "none"),
        pytest.param("by hand", "steps", marks=pytest.mark.full),
        pytest.param("no", "steps", marks=pytest.mark.full),
    ],
)
def test_a_topic_of_states_is_never_emptied(
    followed: Followed, request: pytest.FixtureRequest, topic: Any, compacted: str, way: str
) -> None:
    """The topic forgets the record before: the flow stops, whatever becomes of rejected ones."""
    target = Kafka(request)
    upserts = {"upsertMode": True, "conflictKey": "id"}
    config = upserts if compacted == "by upsertMode" else {"keyField": "id"}
    rule = {"cleanup.policy": "compact"} if compacted == "by hand" else None
    flow, written = _into(followed, target, {**config, "topic": topic(1, rule)})
    flow.steps = STEPS[way][1]
    flow.rejects = Rejects("skip")
    _make(flow)
    _insert(flow, 1)
    flow.drain()
    flow.run("UPDATE source SET n = 7")
    if compacted == "no":
        assert flow.drain() == 1
        assert "big" not in target.rows(written)[-1]
        return
    with pytest.raises(PermanentError) as caught:
        flow.drain()
    table = f'"{flow.schema}"."source"'
    said = str(caught.value)
    assert f"ALTER TABLE {table} REPLICA IDENTITY FULL" in said
    assert "the value of big, maybe, many, doc" in said
    assert written["topic"] in said
    assert [row["n"] for row in target.rows(written)] == [0]
    assert all("big" in row for row in target.rows(written))


def test_a_replay_empties_no_row_of_a_topic_of_states(
    followed: Followed, request: pytest.FixtureRequest, topic: Any
) -> None:
    """What lacks values is rejected again, and the others are sent; a deletion is one again."""
    target = Kafka(request)
    flow, written = _into(
        followed, target, {"upsertMode": True, "conflictKey": "id", "topic": topic(1)}
    )
    flow.steps = (Transformation(Validate.model_validate({"schema": FEW})),)
    flow.rejects = Rejects("table")
    _make(flow)
    _insert(flow, 1, 2, 3)
    flow.run("ALTER TABLE source REPLICA IDENTITY FULL")
    flow.drain()
    flow.run("UPDATE source SET n = 700 WHERE id = 3; DELETE FROM source WHERE id = 3")
    flow.run("ALTER TABLE source REPLICA IDENTITY DEFAULT; UPDATE source SET n = 700 WHERE id = 1")
    flow.run("INSERT INTO source VALUES (2000, 'r', 700, 'b', 'm', '{}', '{}', 1)")
    assert sum(one.delta.rejected for one in flow.reports()) == 4
    flow.steps = ()
    assert flow.replay() == (3, 1)
    last = dict(target.messages(written))
    rows = [json.loads(value) for value in last.values() if value is not None]
    assert {row["id"]: row["n"] for row in rows} == {1: 0, 2: 0, 2000: 700}
    assert all("big" in row for row in rows)
    assert last[b"3"] is None
    assert flow.replay() == (0, 1)


def test_a_topic_of_states_gets_whole_rows_where_the_log_has_them(
    followed: Followed, request: pytest.FixtureRequest
) -> None:
    target = Kafka(request)
    flow, written = _into(followed, target, {"upsertMode": True, "conflictKey": "id"})
    _make(flow)
    flow.run("ALTER TABLE source REPLICA IDENTITY FULL")
    _insert(flow, 1)
    flow.drain()
    flow.run("UPDATE source SET n = 7")
    flow.drain()
    ((_, _, _, big, *_),) = _source(flow)
    assert [(row["n"], row["big"]) for row in target.rows(written)] == [(7, big)]
    # What the sink does not get cannot be missing in it.
    flow.run("ALTER TABLE source REPLICA IDENTITY DEFAULT; UPDATE source SET n = 8")
    with pytest.raises(PermanentError, match="excludeColumns"):
        flow.drain()
    flow.options = {"excludeColumns": ["big", "maybe", "many", "doc", "amount"]}
    flow.drain()
    assert [row["n"] for row in target.rows(written)] == [8]


def test_postgresql_keeps_them_with_steps_where_they_must_not_be_null(followed: Followed) -> None:
    """A body without the column is no error: its source does not know the value."""
    _make(followed)
    followed.run("CREATE TABLE target (LIKE source INCLUDING ALL)")
    followed.sink_options = dict(UPSERTED)
    followed.steps = STEPS["steps"][1]
    _insert(followed, 1, 2)
    followed.drain()
    followed.run("UPDATE source SET n = 1; UPDATE source SET big = 'b', maybe = NULL WHERE id = 2; "
                 "DELETE FROM source WHERE id = 1; UPDATE source SET n = 2")  # fmt: skip
    _insert(followed, 1)
    followed.drain()
    assert followed.same("id, n, big, maybe, many, doc, amount")
