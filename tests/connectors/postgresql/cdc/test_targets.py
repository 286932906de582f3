"""Changes as events, appended to targets of every system; upserts are in tests/matrix."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from dataflow_assets import registry
from dataflow_assets.contracts import Limit, Rejects
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.records.chain import Transformation
from dataflow_assets.transforms.router import Router
from tests.connectors.clickhouse.system import Clickhouse
from tests.connectors.files.system import Files
from tests.connectors.iceberg.system import Iceberg
from tests.connectors.kafka.system import Kafka
from tests.connectors.nessie.system import Nessie
from tests.connectors.postgresql.cdc.followed import UPSERTED, Elsewhere, Followed
from tests.connectors.postgresql.system import Postgresql
from tests.connectors.trino.system import Trino
from tests.flows import made_by
from tests.systems import System

CHANGES = """
UPDATE source SET name = 'A', price = NULL WHERE id = 1;
UPDATE source SET id = 20 WHERE id = 2;
DELETE FROM source WHERE id = 3;
"""
FIRST, SECOND, THIRD = (
    {"id": 1, "name": "a", "price": 1.50},
    {"id": 2, "name": "ä", "price": 2.50},
    {"id": 3, "name": None, "price": 3.50},
)
EVENTS = [
    ("r", None, FIRST),
    ("r", None, SECOND),
    ("r", None, THIRD),
    ("u", FIRST, {"id": 1, "name": "A", "price": None}),
    ("d", SECOND, None),
    ("c", None, {**SECOND, "id": 20}),
    ("d", THIRD, None),
]


@pytest.mark.parametrize(
    "system",
    [
        Postgresql,
        Clickhouse,
        Iceberg,
        Kafka,
        Files,
        pytest.param(Nessie, marks=pytest.mark.full),
        pytest.param(Trino, marks=pytest.mark.full),
    ],
)
def test_events_are_appended_to_a_target_of_every_system(
    followed: Followed, request: pytest.FixtureRequest, system: type[System]
) -> None:
    """Both images, each change once, a change of the key as two events."""
    target = system(request)
    config = target.at("sink", made_by(target))
    sink = registry.sinks()[system.type].model_validate(config)
    options = {"envelopeFormat": "debezium"}
    flow = Elsewhere(followed.dsn, followed.schema, followed.engine, options, into=sink)
    flow.run("CREATE TABLE source (id int PRIMARY KEY, name text, price float8)")
    flow.run("ALTER TABLE source REPLICA IDENTITY FULL")
    flow.run("INSERT INTO source VALUES (1, 'a', 1.5), (2, 'ä', 2.5), (3, NULL, 3.5)")
    flow.drain()
    flow.run(CHANGES)
    assert flow.drain() == 4
    found = [_event(row) for row in target.rows(config)]
    assert sorted(found, key=str) == sorted(EVENTS, key=str)
    assert flow.drain() == 0


def _event(row: dict[str, Any]) -> tuple[Any, ...]:
    payload = row["payload"]
    event = json.loads(payload) if isinstance(payload, str) else payload
    return event["op"], event["before"], event["after"]


@pytest.mark.parametrize(
    "system",
    [
        Clickhouse,
        Iceberg,
        pytest.param(Nessie, marks=pytest.mark.full),
        pytest.param(Trino, marks=pytest.mark.full),
    ],
)
def test_the_last_stretch_of_a_micro_batch_counts(
    followed: Followed, request: pytest.FixtureRequest, system: type[System]
) -> None:
    """The same keys are changed, deleted and inserted again in each of them."""
    target = system(request)
    config = {**target.at("sink", made_by(target)), **(system.upsert or {}), "deleteMode": "hard"}
    sink = registry.sinks()[system.type].model_validate(config)
    limit = Limit(bytes=6_000, declared=Limit())
    flow = Elsewhere(followed.dsn, followed.schema, followed.engine, {}, into=sink, limit=limit)
    flow.run("CREATE TABLE source (id int PRIMARY KEY, name text, price float8)")
    flow.run("INSERT INTO source VALUES (1, 'a', 1.5), (2, 'b', 2.5)")
    flow.drain()
    for number in range(40):
        flow.run(
            f"UPDATE source SET name = repeat('{number} ', 200), price = {number} WHERE id = 1"
        )
        flow.run("DELETE FROM source WHERE id IN (2, 3)")
        flow.run(f"INSERT INTO source VALUES ({number % 2 + 2}, 'again', {number})")
    spans = list[int]()
    with closing(flow.source.open("followed/spans")) as session:
        at, end = flow.position(), session.end()
        while slices := (span := session.plan(at, limit, end)).slices:
            spans.append(len(slices))
            at = span.upto
    assert max(spans) > 1
    flow.drain()
    found = sorted((row["id"], row["name"], row["price"]) for row in target.rows(config))
    assert found == flow.rows("source")
    assert flow.drain() == 0


class Two(Followed):
    """Rows go to `target`, those of a route to `other`, which refuses them."""

    @property
    def flow(self) -> Flow:
        condition = "metadata.operation == 'insert'"
        config = {"connectionString": self.dsn, "table": f"{self.schema}.other", **UPSERTED}
        sink = registry.sinks()["postgresql"].model_validate(config)
        route = {"condition": condition, "sink": {"type": "postgresql", "config": config}}
        steps = (Transformation(Router.model_validate({"routes": [route]})),)
        branches = (*super().flow.branches, Branch(sink, routes=(condition,)))
        return replace(super().flow, branches=branches, transformations=steps)


def test_the_slot_stays_where_one_of_two_branches_is(followed: Followed) -> None:
    """It moves once the branch whose target fails has the changes too."""
    two = Two(followed.dsn, followed.schema, followed.engine, {"snapshotMode": "never"})
    two.make("id int PRIMARY KEY, name text")
    two.run("CREATE TABLE other (LIKE target INCLUDING ALL)")
    two.rejects, two.patience = Rejects("fail"), 1
    two.drain()
    slot = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{two.schema}'"
    before = two.run(slot)
    two.run("ALTER TABLE other ADD CONSTRAINT refusing CHECK (id < 0)")
    two.run("INSERT INTO source VALUES (1, 'a')")
    two.run("UPDATE source SET name = 'A'")
    with pytest.raises(PermanentError, match="refusing"):
        two.drain()
    assert two.run(slot) == before
    two.run("ALTER TABLE other DROP CONSTRAINT refusing")
    two.drain()
    assert two.rows("other") == [(1, "a")]
    assert two.rows() == [(1, "A")]
    assert two.run(slot) > before
