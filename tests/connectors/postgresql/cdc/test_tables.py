"""Several tables from one slot, each into a target of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from dataflow_assets.connectors.postgresql import PostgresqlSink
from dataflow_assets.connectors.postgresql.cdc import slot, transactions
from dataflow_assets.connectors.postgresql.cdc.options import PostgresqlCdcOptions
from dataflow_assets.connectors.postgresql.cdc.position import Lsn, stored_position
from dataflow_assets.connectors.postgresql.cdc.reader import CdcReader
from dataflow_assets.connectors.postgresql.cdc.started_reader import begin_reader
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.contracts import (
    PARTS,
    Checkpoint,
    Limit,
    PartSlice,
    Rejects,
    Run,
    lasting,
    local_now,
    system_name,
)
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.micro_batch.branches import BranchSteps
from dataflow_assets.micro_batch.sample import Sampler, sample
from dataflow_assets.records.chain import Transformation
from dataflow_assets.runs import open_branches, reset
from dataflow_assets.runs.request import Start
from dataflow_assets.runs.reset import load_again
from dataflow_assets.sdk.raw_mode import shape_of
from dataflow_assets.transforms.router import Router
from tests.connectors.postgresql.cdc.followed import UPSERTED, Followed, tuples
from tests.connectors.postgresql.cdc.test_ahead import planned


class Two(Followed):
    """Orders go to `target`, their items by a route to `items_copy`."""

    routed: bool = True
    items_options: Mapping[str, object] = UPSERTED

    @property
    def flow(self) -> Flow:
        found = super().flow
        condition = f"metadata.table == '{self.schema}.items'"
        place = {"connectionString": self.dsn, "table": f"{self.schema}.items_copy"}
        config: dict[str, object] = {**place, **self.items_options}
        sink = PostgresqlSink.model_validate(config)
        route = {"condition": condition, "sink": {"type": "postgresql", "config": config}}
        steps = (Transformation(Router.model_validate({"routes": [route]})),)
        items = (Branch(sink, routes=(condition,)),) if self.routed else ()
        return replace(found, branches=(*found.branches, *items), transformations=steps)


@pytest.fixture
def two(followed: Followed) -> Two:
    made = Two(followed.dsn, followed.schema, followed.engine)
    tables = [f"{made.schema}.source", f"{made.schema}.items"]
    made.options, made.rejects = {"tables": tables}, Rejects("fail")
    made.make("id int PRIMARY KEY, name text")
    made.run("CREATE TABLE items (id int PRIMARY KEY, of int, price numeric(8,2))")
    made.run("CREATE TABLE items_copy (LIKE items INCLUDING ALL)")
    made.run("INSERT INTO source VALUES (1, 'a'), (2, 'b')")
    made.run("INSERT INTO items SELECT i, i % 2 + 1, i / 4.0 FROM generate_series(1, 9) i")
    return made


CHANGES = """
BEGIN; INSERT INTO source VALUES (3, 'c'); INSERT INTO items VALUES (30, 3, 1), (31, 3, 2); COMMIT;
UPDATE items SET price = price + 1 WHERE of = 1; DELETE FROM items WHERE id = 2;
BEGIN; DELETE FROM items WHERE of = 1; DELETE FROM source WHERE id = 1; COMMIT;
"""


def _same(two: Two) -> bool:
    return two.same() and two.rows("items_copy") == two.rows("items")


def test_each_table_goes_to_its_target(two: Two) -> None:
    two.drain()
    assert _same(two)
    two.run(CHANGES)
    two.drain()
    assert _same(two)


@pytest.mark.crash
@pytest.mark.parametrize("failpoint", ["postgresql.after-commit", "drain.passed"])
def test_a_kill_between_the_commits_of_two_targets(two: Two, failpoint: str) -> None:
    two.drain()
    two.run(CHANGES)
    assert two.killed_at(failpoint)
    two.drain()
    assert _same(two)


@pytest.mark.crash
def test_the_slot_waits_for_the_target_that_has_fewer_stretches(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill one target has two stretches of four, the other one has one of them."""
    two.drain()
    for key in range(1000, 1120):
        order = f"INSERT INTO source VALUES ({key}, repeat('x', 800))"
        two.run(f"BEGIN; {order}; INSERT INTO items VALUES ({key}, {key}, 1); COMMIT")
    two.limit = Limit(bytes=12_000, declared=Limit())
    assert two.killed_at("postgresql.after-commit", nth=2 * 2 + 3)
    checkpoints = [branch.sink.peek(two.flow.target(branch)) for branch in two.flow.branches]
    assert sorted(_stretches(one) for one in checkpoints if one) == [1, 2]
    released, move = list[tuple[int, int]](), slot.move

    def noted(link: TextLink, source: PostgresqlCdcOptions, upto: Lsn) -> None:
        released.append((upto.value, _lowest(two)))
        move(link, source, upto)

    monkeypatch.setattr(slot, "move", noted)
    two.drain()
    assert _same(two)
    assert released
    assert all(upto <= stored for upto, stored in released)


def _stretches(checkpoint: Checkpoint) -> int:
    """How many of an unfinished micro-batch are stored."""
    return len(checkpoint.positions) - len(lasting(checkpoint.positions))


def _lowest(two: Two) -> int:
    """What both targets have."""
    found = []
    for branch in two.flow.branches:
        checkpoint = branch.sink.peek(two.flow.target(branch))
        assert checkpoint is not None
        reached = stored_position(lasting(checkpoint.positions))
        assert reached is not None
        found.append(reached.lsn.value)
    return min(found)


@pytest.mark.crash
def test_a_kill_while_two_targets_are_loaded(two: Two) -> None:
    """Both have parts of a snapshot that is gone: each of them reads the tables again."""
    two.run("INSERT INTO source SELECT i, repeat('x', 500) FROM generate_series(101, 900) i")
    two.run("INSERT INTO items SELECT i, 1, i FROM generate_series(101, 9000) i")
    two.limit = Limit(bytes=64 * 1024)
    assert two.killed_at("postgresql.after-commit", nth=11)  # no part of `items` is committed
    two.run(CHANGES)
    two.drain()
    two.drain()
    assert _same(two)


def test_each_branch_reads_again_what_another_process_had_begun(two: Two) -> None:
    """Both had the same parts left, and both get parts of the whole table."""
    two.limit = Limit(bytes=8192)
    old = [piece for piece in two.plan().slices if isinstance(piece, PartSlice)]
    with closing(two.source.open("two/again")) as session:
        found = []
        for _ in range(2):
            session.plan(session.start(), two.limit)
            found.append([part for piece in old for part in session.renew(piece, two.limit)])
    assert found[0] == found[1] != []


def test_a_branch_that_is_added_later_loads_its_table(two: Two) -> None:
    two.routed = False
    two.drain()
    two.run(CHANGES)
    two.drain()
    assert two.rows("items_copy") == []
    two.routed = True
    two.run("INSERT INTO items VALUES (50, 3, 5); UPDATE source SET name = 'C' WHERE id = 3")
    two.drain()
    assert _same(two)
    two.run("DELETE FROM items WHERE id = 50; INSERT INTO source VALUES (9, 'i')")
    two.drain()
    assert _same(two)


@pytest.mark.crash
def test_a_row_that_goes_before_its_table_is_added_behind_a_kill(two: Two) -> None:
    """A stretch is recorded, and read again where the manifest has another table.

    No snapshot has the row, and no change that is read says that it was deleted.
    """
    both = list(two.options["tables"])
    two.options["tables"] = both[:1]
    # As its owner may have, before the manifest names both.
    two.run(f"CREATE PUBLICATION {two.schema} FOR TABLE source, items")
    two.drain()
    two.run("INSERT INTO source VALUES (3, 'c'); INSERT INTO items VALUES (30, 3, 1)")
    assert two.killed_at("postgresql.before-commit")
    two.run("DELETE FROM items WHERE id = 30")
    two.options["tables"] = both
    two.drain()
    assert _same(two)


@pytest.mark.crash
@pytest.mark.parametrize(
    "dies",
    [("drain.finished", 2), ("postgresql.finish", 2), ("drain.finished", 1)],
    ids=["behind the stretch", "in front of its end", "before the second branch"],
)
def test_a_table_that_is_out_of_the_manifest_while_a_recorded_stretch_is_read(
    two: Two, dies: tuple[str, int]
) -> None:
    """Its changes are in that stretch alone, which nobody reads again.

    If one branch has to load the table and the other one has it, the latter is the lower one.
    """
    both = list(two.options["tables"])
    two.drain()
    two.run(CHANGES)
    assert two.killed_at("drain.begun")
    two.options["tables"] = both[:1]
    assert two.killed_at(*dies)
    two.options["tables"] = both
    two.drain()
    assert two.same()
    assert set(two.rows("items_copy")) >= set(two.rows("items"))


def test_a_table_that_is_to_be_created_is_sampled_by_one_reader(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of stretches that have nothing for it: tasks for each of them would wait for the slot."""
    two.run("DROP TABLE items_copy; DELETE FROM items")
    two.items_options = {**UPSERTED, "autoCreateTable": True}
    two.drain()
    for key in range(1000, 1120):
        two.run(f"INSERT INTO source VALUES ({key}, repeat('x', 800))")
    span = planned(two, two.position(), Limit(bytes=12_000, declared=Limit()))
    readers = list[tuple[Any, ...]]()

    def noted(*given: Any) -> CdcReader:
        readers.append(given)
        return begin_reader(*given)

    monkeypatch.setattr(transactions, "begin_reader", noted)
    branch = two.flow.branches[1]
    steps = BranchSteps.of(two.flow, local_now(), [shape_of(branch.sink, None)])
    work = Sampler(two.source, span, steps, branch.sink, branch.routes)
    with closing(two.source.open("two/sample")) as session:
        assert sample(lambda: two.engine, session, work).records == 0
    assert len(span.slices) == PARTS
    assert len(readers) == 2  # the first rows are looked at by the driver, all of them by a task


def test_tables_are_loaded_again_into_all_targets_or_into_none(two: Two) -> None:
    """The branch that is asked last is appended to, and nobody has confirmed."""
    two.items_options = {}
    two.run("ALTER TABLE items_copy DROP CONSTRAINT items_copy_pkey")
    two.drain()
    known = two.position()
    for again in (
        lambda: load_again(two.flow, Run(), (f"{two.schema}.source",), confirmed=False),
        lambda: two.drain(Start(reload=(f"{two.schema}.source",))),
    ):
        with pytest.raises(PermanentError, match=r"items_copy is appended to.*--yes"):
            again()
        assert two.position() == known
    load_again(two.flow, Run(), (f"{two.schema}.source",), confirmed=True)
    assert two.position() != known


@pytest.mark.crash
def test_a_load_that_begins_after_all_targets_were_asked(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is opened last refuses: no target is set back."""
    two.drain()
    load_again(two.flow, Run(), (f"{two.schema}.items",), confirmed=False)
    assert two.killed_at("postgresql.begin", nth=3)  # one of two targets has recorded it
    flow = replace(two.flow, branches=two.flow.branches[::-1])
    monkeypatch.setattr(Two, "flow", flow)
    for module in (reset, open_branches):
        monkeypatch.setattr(module, "check_again", lambda *_: None)  # asked before
    known = _checkpoints(flow)
    assert [bool(one.unfinished) for one in known] == [False, True]
    source = (f"{two.schema}.source",)
    for again in (
        lambda: load_again(flow, Run(), source, confirmed=False),
        lambda: two.drain(Start(reload=source)),
    ):
        with pytest.raises(PermanentError, match="that is not finished"):
            again()
        assert [one.positions for one in _checkpoints(flow)] == [one.positions for one in known]


def _checkpoints(flow: Flow) -> list[Checkpoint]:
    found = [branch.sink.peek(flow.target(branch)) for branch in flow.branches]
    return [one for one in found if one is not None]


def test_columns_that_are_announced_again_change_no_batch(two: Two) -> None:
    """The server repeats them when its cache is emptied: a second read may have them elsewhere."""
    two.drain()
    after = two.position()
    two.run("INSERT INTO source VALUES (3, 'c'); INSERT INTO items VALUES (30, 3, 1)")
    two.run("ALTER TABLE items ALTER COLUMN price SET STATISTICS 50")
    two.run("INSERT INTO items VALUES (31, 3, 2); INSERT INTO source VALUES (4, 'd')")
    batches = two.read(after, frozenset({"table"}))
    assert tuples(batches, [system_name("table"), "id"]) == [
        *((f"{two.schema}.source", number) for number in (3, 4)),
        *((f"{two.schema}.items", number) for number in (30, 31)),
    ]


def test_the_address_of_one_table_is_the_table_s_own(followed: Followed) -> None:
    one = followed.source.address()
    assert one.parts[0] == "postgresql"
    assert one.parts[-2:] == (followed.schema, "source")
    several = followed.but(tables=["a", "b"]).source.address()
    assert several.name == followed.schema
    assert one == replace(followed.sink.address(), name="source")


ODD = """
INSERT INTO items SELECT {key}, 1, 'NaN', 'Infinity', '-Infinity', 'infinity', '-infinity',
  '0044-03-15 BC', '0044-03-15 12:00:00 BC', '1 mon 2 days 03:04:05', 12.50
"""


def test_values_that_json_does_not_have_keep_their_types(two: Two) -> None:
    """A router by metadata makes no JSON of rows: of the first ones, and of changes."""
    two.run("DELETE FROM items")
    for table in ("items", "items_copy"):
        two.run(
            f"ALTER TABLE {table} ALTER price TYPE numeric, ADD f float8, ADD g real, ADD d date, "
            "ADD t timestamptz, ADD old date, ADD older timestamp, ADD span interval, ADD m money"
        )
    two.run(ODD.format(key=1))
    two.drain()
    two.run(ODD.format(key=2))
    two.run("UPDATE items SET f = 'NaN', g = 'NaN' WHERE id = 1")
    two.drain()
    columns = "id, of, price::text, f::text, g::text, d::text, t::text, old::text, older::text, "
    columns += "span::text, m::text"
    assert two.rows("items_copy", columns) == two.rows("items", columns)
    assert len(two.rows("items", "id")) == 2


def test_a_rejected_row_of_a_route_is_replayed_into_its_branch(two: Two) -> None:
    """Its metadata is kept: by that the router has chosen."""
    two.rejects = Rejects("table")
    two.drain()
    two.run("ALTER TABLE items_copy ADD CONSTRAINT small CHECK (price < 100)")
    two.run("INSERT INTO items VALUES (40, 4, 4), (41, 4, 400)")
    two.drain()
    assert two.run("SELECT count(*) FROM items_copy WHERE id IN (40, 41)") == [(1,)]
    ((kept,),) = two.run("SELECT to_jsonb(r) FROM dataflow_rejected r")
    assert kept["branch"] == two.flow.branches[1].id
    assert f"{two.schema}.items" in str(kept)
