"""Keys that rows exchange inside a transaction, as a deferrable constraint allows."""

from __future__ import annotations

import random

import pytest

from dataflow_assets import registry
from dataflow_assets.connectors.postgresql.cdc import read
from dataflow_assets.connectors.postgresql.cdc.changes import CdcChanged
from dataflow_assets.connectors.postgresql.cdc.envelope import CdcTransaction
from dataflow_assets.connectors.postgresql.cdc.layout import CdcLayout
from dataflow_assets.contracts import DELETE, INSERT, OP, Limit
from tests.connectors.clickhouse.system import Clickhouse
from tests.connectors.iceberg.system import Iceberg
from tests.connectors.kafka.system import Kafka
from tests.connectors.postgresql.cdc.followed import Elsewhere, Followed, tuples
from tests.systems import System

AUTO = {"autoCreateTable": True}
KEYS = {
    "primary": "id int PRIMARY KEY DEFERRABLE, v text",
    "deferred": "id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v text",
    "covering": "id int, v text, PRIMARY KEY (id) INCLUDE (v) DEFERRABLE",
    "unique": "id int NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED, v text",
}
SHIFT = "UPDATE source SET id = id + 1"
SWAP = "UPDATE source SET id = 5 - id WHERE id BETWEEN 1 AND 4"
TWICE = f"BEGIN; {SHIFT}; {SHIFT}; UPDATE source SET v = v || '!'; {SWAP}; COMMIT"
GONE = (
    f"BEGIN; {SHIFT}; DELETE FROM source WHERE id = 2; INSERT INTO source VALUES (1, 'n'); COMMIT"
)
UPDATED = "BEGIN; UPDATE source SET v = 'x' WHERE id = 1; DELETE FROM source WHERE id = 1; COMMIT"
PASSING = """
BEGIN; SET CONSTRAINTS ALL DEFERRED; UPDATE source SET id = 1 WHERE id = 2;
UPDATE source SET id = 9 WHERE v = 'b'; COMMIT
"""
LEAVING = """
BEGIN; SET CONSTRAINTS ALL DEFERRED; UPDATE source SET id = 1 WHERE id = 2;
UPDATE source SET id = 9 WHERE v = 'a'; DELETE FROM source WHERE v = 'b'; COMMIT
"""


def _keyed(followed: Followed, key: str) -> Followed:
    followed.run(f"CREATE TABLE source ({KEYS[key]}); ALTER TABLE source REPLICA IDENTITY FULL")
    followed.run("CREATE TABLE target (id int PRIMARY KEY, v text)")
    followed.run("INSERT INTO source VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
    followed.drain()
    return followed


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "change",
    [SHIFT, SWAP, TWICE, GONE, UPDATED, PASSING, LEAVING],
    ids=["shift", "swap", "twice", "gone", "updated", "passing", "leaving"],
)
def test_rows_that_exchange_their_keys_are_all_there(
    followed: Followed, key: str, change: str
) -> None:
    table = _keyed(followed, key)
    table.run(change)
    table.drain()
    assert table.same()


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_transaction_that_comes_in_several_batches(
    followed: Followed, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(read, "BATCH_ROWS", rows)
    table = _keyed(followed, "primary")
    table.run(f"BEGIN; {SHIFT}; {SHIFT}; COMMIT; {SWAP}; {SHIFT}; DELETE FROM source WHERE id = 4")
    table.limit = Limit(bytes=1)
    table.drain()
    assert table.same()


def test_a_transaction_that_empties_another_table_between_two_changes(followed: Followed) -> None:
    tables = [f"{followed.schema}.{name}" for name in ("source", "other")]
    followed.options = {"tables": tables, "onTruncate": "skip"}
    followed.run("CREATE TABLE other (id int PRIMARY KEY)")
    table = _keyed(followed, "deferred")
    table.run(
        "BEGIN; UPDATE source SET id = 2 WHERE v = 'a'; TRUNCATE other; "
        "UPDATE source SET id = 1 WHERE v = 'b'; COMMIT"
    )
    table.drain()
    assert table.same()


def test_a_transaction_that_goes_on_is_not_copied_by_each_batch() -> None:
    """A large one would take quadratic time."""
    changed = CdcChanged(CdcLayout(("s", "t"), (), (), (), deferred=(0,)), None, with_old=False)
    transaction = CdcTransaction("0/1")
    waiting = changed._data
    for message in (b"x", b"y", b"z"):
        changed.add(message, transaction)
        assert changed.take(transaction) is None
    assert changed._data is waiting
    assert bytes(waiting) == b"xyz"


def _statement(choice: random.Random) -> str:
    low, by = choice.randint(0, 6), choice.choice([-1, 1])
    some = [
        f"UPDATE source SET id = {2 * low + 3} - id WHERE id BETWEEN {low} AND {low + 3}",
        f"UPDATE source SET id = id + {by}",
        f"UPDATE source SET v = v || {low} WHERE id = {low}",
        f"DELETE FROM source WHERE id = {low}",
        f"INSERT INTO source SELECT {low}, 'n' WHERE {low} NOT IN (SELECT id FROM source)",
    ]
    return choice.choice(some)


@pytest.mark.parametrize("seed", range(6))
def test_random_exchanges(followed: Followed, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Statements of transactions whose keys are checked at the end of each statement."""
    choice = random.Random(seed)
    monkeypatch.setattr(read, "BATCH_ROWS", choice.choice([2, 5, 20_000]))
    table = _keyed(followed, choice.choice(["primary", "unique"]))
    for _ in range(12):
        statements = "; ".join(_statement(choice) for _ in range(choice.randint(1, 4)))
        table.run(f"BEGIN; SET CONSTRAINTS ALL IMMEDIATE; {statements}; COMMIT")
    table.drain()
    assert table.same()


@pytest.mark.parametrize("system", [Kafka, Clickhouse, Iceberg])
def test_into_targets_of_other_systems(
    followed: Followed, request: pytest.FixtureRequest, system: type[System]
) -> None:
    target = system(request)
    config = target.at("sink", {**(AUTO if system is not Kafka else {}), **(system.upsert or {})})
    sink = registry.sinks()[system.type].model_validate(config)
    flow = Elsewhere(followed.dsn, followed.schema, followed.engine, into=sink)
    flow.run(f"CREATE TABLE source ({KEYS['primary']}); ALTER TABLE source REPLICA IDENTITY FULL")
    flow.run("INSERT INTO source VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    flow.drain()
    flow.run(f"{SHIFT}; {SWAP}")
    flow.drain()
    found = sorted((row["id"], row["v"]) for row in target.rows(config))
    assert found == flow.rows("source")


def test_a_unique_column_beside_a_primary_key_deletes_by_that(followed: Followed) -> None:
    followed.run("CREATE TABLE source (id int PRIMARY KEY, v text UNIQUE DEFERRABLE)")
    followed.run("CREATE TABLE target (id int PRIMARY KEY, v text)")
    followed.run("ALTER TABLE source REPLICA IDENTITY FULL")
    followed.run("INSERT INTO source VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    followed.drain()
    followed.run(
        "BEGIN; SET CONSTRAINTS ALL DEFERRED; UPDATE source SET v = 'b' WHERE id = 1; "
        "DELETE FROM source WHERE id = 2; COMMIT"
    )
    followed.drain()
    assert followed.same()


def test_events_are_delivered_one_by_one(followed: Followed) -> None:
    followed.make(KEYS["primary"])
    followed.run("ALTER TABLE source REPLICA IDENTITY FULL")
    followed.options = {"envelopeFormat": "debezium"}
    begin = followed.start()
    followed.run("INSERT INTO source VALUES (1, 'a'), (2, 'b')")
    followed.run(SHIFT)
    assert sum(batch.num_rows for batch in followed.read(begin)) == 6


def test_a_key_that_cannot_be_exchanged_keeps_each_change(followed: Followed) -> None:
    followed.make("id int PRIMARY KEY, v text")
    followed.run("ALTER TABLE source REPLICA IDENTITY FULL")
    begin = followed.start()
    followed.run("BEGIN; INSERT INTO source VALUES (1, 'a'); DELETE FROM source; COMMIT")
    assert tuples(followed.read(begin), [OP, "id"]) == [(INSERT, 1), (DELETE, 1)]
