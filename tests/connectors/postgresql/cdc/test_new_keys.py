"""Inserts of a followed table are copied straight in, beside updates of stored rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dataflow_assets.connectors.postgresql.sink import copy_new_keys
from dataflow_assets.connectors.postgresql.sink.copy_new_keys import DirectCopy, Load
from tests.connectors.postgresql.cdc.followed import Followed

LEAST = 4
STORED = "INSERT INTO source SELECT i, 'stored ' || i FROM generate_series(1, 20) i"


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """For each attempt to copy straight in how many rows it had, and whether it has succeeded."""
    found, attempt = list[tuple[int, bool]](), DirectCopy._attempt

    def noted(
        self: DirectCopy, stored: pa.RecordBatch, merge: Load, new: pa.RecordBatch, copy: Load
    ) -> bool:
        found.append((new.num_rows, attempt(self, stored, merge, new, copy)))
        return found[-1][1]

    monkeypatch.setattr(DirectCopy, "_attempt", noted)
    monkeypatch.setattr(copy_new_keys, "LEAST", LEAST)
    return found


@pytest.fixture
def table(followed: Followed) -> Followed:
    """Has rows in source and target, and a target that has every name once."""
    followed.options = {"snapshotMode": "never"}
    followed.make("id int PRIMARY KEY, name text")
    followed.start()
    followed.run(STORED)
    followed.drain()
    followed.run("CREATE UNIQUE INDEX ON target (name)")
    return followed


def test_what_is_inserted_again_behind_its_delete_is_new(
    table: Followed, copied: list[tuple[int, bool]]
) -> None:
    copied.clear()
    table.run("DELETE FROM source WHERE id <= 5")
    table.run("UPDATE source SET name = 'u ' || id WHERE id > 15")
    table.run("INSERT INTO source SELECT i, 'again ' || i FROM generate_series(1, 5) i")
    table.run("UPDATE source SET name = 'and changed' WHERE id = 1")
    assert table.drain() == 16
    assert table.same()
    assert copied == [(5, True)]


def test_a_new_row_may_take_over_what_is_unique_of_a_stored_one(
    table: Followed, copied: list[tuple[int, bool]]
) -> None:
    """By key the new row would come first, and be refused."""
    copied.clear()
    table.run("UPDATE source SET name = 'another' WHERE id = 20")
    table.run("INSERT INTO source SELECT i, 'new ' || i FROM generate_series(-5, -1) i")
    table.run("INSERT INTO source VALUES (0, 'stored 20')")
    table.drain()
    assert table.same()
    assert copied == [(6, True)]


def test_inserts_of_keys_that_are_stored_all_the_same(
    table: Followed, copied: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has put rows into the target: nothing is lost, and they are replaced."""
    monkeypatch.setattr(copy_new_keys, "SAMPLE", 1)  # which has the first key only
    copied.clear()
    table.run("INSERT INTO target SELECT i, 'foreign ' || i FROM generate_series(104, 110) i")
    table.run("UPDATE source SET name = 'another' WHERE id = 20")
    table.run("INSERT INTO source SELECT i, 'new ' || i FROM generate_series(101, 110) i")
    table.drain()
    assert table.same()
    assert copied == [(10, False)]


def test_an_updated_row_refers_to_a_new_one(
    followed: Followed, copied: list[tuple[int, bool]]
) -> None:
    """PostgreSQL checks a foreign key behind each statement: one statement has both rows."""
    followed.options = {"snapshotMode": "never"}
    followed.make("id int PRIMARY KEY, parent int")
    followed.run("ALTER TABLE target ADD FOREIGN KEY (parent) REFERENCES target (id)")
    followed.start()
    followed.run("INSERT INTO source SELECT i, NULL FROM generate_series(1, 20) i")
    followed.drain()
    copied.clear()
    followed.run("INSERT INTO source SELECT i, NULL FROM generate_series(101, 110) i")
    followed.run("UPDATE source SET parent = 101 WHERE id = 1")
    assert followed.drain() == 11
    assert followed.same()
    assert copied == [(10, False)]


def test_a_marked_row_that_is_inserted_again_gives_away_what_is_unique(
    followed: Followed, copied: list[tuple[int, bool]]
) -> None:
    """Its key counts as stored: with soft deletes the row is there still."""
    followed.options = {"snapshotMode": "never"}
    followed.sink_options = {"upsertMode": True, "conflictKey": "id", "softDeleteColumn": "gone"}
    followed.run("CREATE TABLE source (id int PRIMARY KEY, name text, gone timestamptz)")
    followed.run("CREATE TABLE target (id int PRIMARY KEY, name text UNIQUE, gone timestamptz)")
    followed.start()
    followed.run(STORED.replace("' || i", "' || i, NULL"))
    followed.drain()
    copied.clear()
    followed.run("DELETE FROM source WHERE id = 1")
    followed.run("INSERT INTO source VALUES (1, 'other')")
    followed.run("UPDATE source SET name = 'stored 1' WHERE id = 2")
    followed.run("INSERT INTO source SELECT i, 'new ' || i FROM generate_series(101, 110) i")
    followed.drain()
    assert followed.same()
    assert copied == [(10, True)]
