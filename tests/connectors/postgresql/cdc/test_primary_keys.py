"""Which primary key a position says its changes have, where the log does not name the key."""

from __future__ import annotations

from contextlib import closing
from typing import cast

import pytest

from dataflow_assets.connectors.postgresql.cdc import primary_keys, slot
from dataflow_assets.connectors.postgresql.cdc.layout import current_layout
from dataflow_assets.connectors.postgresql.cdc.position import Keys, Lsn, Reached, parse, parse_part
from dataflow_assets.connectors.postgresql.cdc.position import StreamPart as Stretch
from dataflow_assets.connectors.postgresql.cdc.primary_keys import SeenKeys, keys_of
from dataflow_assets.connectors.postgresql.cdc.tables import tables
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.pool import lent_to_source
from dataflow_assets.contracts import PartSlice
from tests.connectors.postgresql.cdc.followed import Followed

LINK = cast("TextLink", None)
OLD: Keys = {"public.a": (1,)}
NEW: Keys = {"public.a": (2,)}


def test_a_run_that_ends_before_the_log_does_learns_of_another_key(followed: Followed) -> None:
    """Others write all the while: no stretch of the run comes to the end of the log."""
    followed.make("id int PRIMARY KEY, code text NOT NULL")
    followed.run("ALTER TABLE source REPLICA IDENTITY FULL; INSERT INTO source VALUES (1, 'a')")
    followed.drain()
    followed.run("ALTER TABLE source DROP CONSTRAINT source_pkey, ADD PRIMARY KEY (code)")
    followed.run("UPDATE source SET id = 2")
    name = f"{followed.schema}.source"
    with closing(followed.source.open("followed/keys")) as session:
        end = session.end()
        followed.run("INSERT INTO source VALUES (3, 'c')")
        (piece,) = session.plan(followed.position(), followed.limit, end).slices
    assert isinstance(piece, PartSlice)
    stretch, reached = parse_part(piece.part), parse(piece.upto)
    assert isinstance(stretch, Stretch)
    assert stretch.keys == {name: (1,)}
    assert reached is not None
    assert reached.keys == {name: (2,)}


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_columns_that_a_key_only_includes_identify_no_row(
    identity: str, followed: Followed
) -> None:
    """They may change, be null, and be absent from what the log says of a deleted row."""
    followed.make("id int, note text, PRIMARY KEY (id) INCLUDE (note)")
    followed.run(f"ALTER TABLE source REPLICA IDENTITY {identity}")
    followed.run("INSERT INTO source VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    followed.drain()
    followed.run("UPDATE source SET note = 'other' WHERE id = 1")
    followed.run("UPDATE source SET id = 4 WHERE id = 2; DELETE FROM source WHERE id = 3")
    with lent_to_source(followed.dsn) as link:
        (table,) = tables(link, followed.source)
        assert table.key == ("id",)
        assert keys_of(link, [table]) == ({table.name: (1,)} if identity == "FULL" else {})
        layout = current_layout(link, followed.source, table.place, table.oid, ["id", "note"])
        assert layout.key == ("id",)
    followed.drain()
    assert followed.rows() == [(1, "other"), (4, "b")]


def test_a_position_before_the_last_look_keeps_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key may have become another one between the position and the look."""
    monkeypatch.setattr(primary_keys, "keys_of", lambda *_: NEW)
    monkeypatch.setattr(slot, "end_of_log", lambda _: Lsn(100))
    seen = SeenKeys()
    seen.look(LINK, [])
    assert list(seen.changed_tables(OLD)) == ["public.a"]
    assert list(seen.changed_tables(OLD)) == [], "it is told once"
    assert seen.after(Lsn(99), OLD) == OLD
    assert seen.after(Lsn(100), OLD) == NEW
    assert seen.after(Lsn(99), OLD) == OLD
    assert seen.after(Lsn(200), OLD) == NEW, "a branch that was away learns of it, too"


@pytest.mark.parametrize("order", [1, -1], ids=["before", "behind"])
def test_parts_of_a_span_have_read_what_all_say_whatever_their_order(order: int) -> None:
    """A table that is to be loaded again is not among those whose rows were loaded."""
    narrow = Reached(Lsn(9), frozenset({"a"}), frozenset({"b"}), {"a": (1,), "c": (1,)})
    wide = Reached(Lsn(9), frozenset({"a", "c"}), frozenset({"b"}), {"a": (1,), "c": (1,)})
    first, second = (narrow, wide)[::order]
    found = first.common(second)
    assert found == Reached(Lsn(9), frozenset({"a"}), frozenset({"b"}), {"a": (1,)})
    old = Reached(Lsn(9))
    assert old.common(first) == first.common(old) == first


def test_a_look_that_no_position_has_come_to_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a position would never come to one, where others write all the while."""
    found = iter([(NEW, Lsn(100)), (OLD, Lsn(200))])
    keys, end = next(found)
    monkeypatch.setattr(primary_keys, "keys_of", lambda *_: keys)
    monkeypatch.setattr(slot, "end_of_log", lambda _: end)
    seen = SeenKeys()
    seen.look(LINK, [])
    keys, end = next(found)
    seen.look(LINK, [])
    assert seen.after(Lsn(150), {}) == NEW
