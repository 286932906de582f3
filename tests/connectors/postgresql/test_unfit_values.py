"""Values that PostgreSQL allows and their column of Arrow does not: never more than their row."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import devservers
from dataflow_assets.connectors.postgresql import PostgresqlSink
from dataflow_assets.contracts import Note, PartSlice, Rejects, Run, Target, Ticket
from dataflow_assets.micro_batch.branches import PassBranch
from dataflow_assets.micro_batch.places import Places
from dataflow_assets.micro_batch.typed_rows import type_chunks
from dataflow_assets.records.chain import Transformation
from dataflow_assets.transforms.insert_field import InsertField
from tests.connectors.postgresql.cdc.followed import Followed
from tests.sdk.polled import Polled

FAR = "294276-12-31 23:59:59.25"


@pytest.mark.parametrize("steps", [True, False])
def test_arrays_of_any_dimensions_are_followed(followed: Followed, *, steps: bool) -> None:
    """First rows and changes, beside rows that have what is declared; PostgreSQL takes them all."""
    followed.make("id int PRIMARY KEY, a int[], t timestamptz[][], name text NOT NULL")
    if steps:
        step = InsertField.model_validate({"fields": {"name": "p"}})
        followed.steps = (Transformation(step),)
    times = '{"2026-01-02 03:04:05+00"}'
    followed.run(
        "INSERT INTO source VALUES (1, '{5,6}', NULL, 'p'), (2, '{{1,2},{3,NULL}}', %s, 'p')", times
    )
    followed.drain()
    assert followed.same()
    followed.run(
        "INSERT INTO source VALUES (3, '{{{7}}}', NULL, 'p'), (4, '{}', '{}', 'p'); "
        "UPDATE source SET a = '{{8,9}}' WHERE id = 1; UPDATE source SET a = '{8}' WHERE id = 2"
    )
    followed.drain()
    assert followed.same()
    followed.run("ALTER TABLE source REPLICA IDENTITY FULL; DELETE FROM source WHERE id IN (1, 3)")
    followed.drain()
    assert followed.same()


@pytest.mark.parametrize("declared", ["timestamp", "timestamptz", "timestamp[]"])
def test_a_time_beyond_all_columns_costs_its_row(followed: Followed, declared: str) -> None:
    followed.rejects = Rejects("table")
    followed.make(f"id int PRIMARY KEY, t {declared}, name text")
    far = f'{{"{FAR}"}}' if "[" in declared else FAR
    add = "INSERT INTO source VALUES ({0}, %s, 'far'), ({0} + 1, NULL, 'near')"
    for first in (1, 3):
        followed.run(add.format(first), f"{far}+00" if declared == "timestamptz" else far)
        reports = [*followed.reports()]
        assert sum(one.delta.rejected for one in reports) == 1
    assert followed.rows() == [(2, None, "near"), (4, None, "near")]
    bodies = followed.run("SELECT body FROM dataflow_rejected ORDER BY id")
    assert [json.loads(body)["name"] for (body,) in bodies] == ["far", "far"]
    assert all("294276-12-31" in body for (body,) in bodies)


def test_a_polled_table_goes_on(postgresql: devservers.PostgreSQL, schema: str) -> None:
    polled = Polled(postgresql.dsn(), schema)
    polled.run("CREATE TABLE source (id int PRIMARY KEY, a int[], updated_at timestamptz)")
    polled.run("CREATE TABLE target (LIKE source)")
    polled.run(
        "INSERT INTO source VALUES (1, '{1}', now() - interval '1 h'), "
        "(2, '{{1,2}}', now() - interval '1 h'), (3, NULL, now() - interval '1 h')"
    )
    polled.drain()
    assert polled.rows() == polled.run("SELECT * FROM source ORDER BY 1")


@pytest.mark.parametrize("made", ["AS SELECT", "mat", "int[]"])
def test_dimensions_that_nobody_declares_are_those_of_the_values(
    followed: Followed, made: str
) -> None:
    followed.run("CREATE DOMAIN mat AS int[][]")
    if made == "AS SELECT":
        followed.run("CREATE TABLE source AS SELECT 1 AS id, '{{1,2}}'::int[][] AS a")
        followed.run("ALTER TABLE source ADD PRIMARY KEY (id)")
    else:
        followed.run(f"CREATE TABLE source (id int PRIMARY KEY, a {made})")
    begin = followed.start()
    followed.run("INSERT INTO source VALUES (2, NULL), (3, '{{3,4},{5,6}}'), (4, '{}')")
    (loaded,), (logged,) = followed.read(), followed.read(begin)
    if made == "int[]":
        assert loaded.schema.field("a").type == pa.list_(loaded.schema.field("a").type.value_field)
        return
    assert loaded.schema.field("a").type.value_type.value_type == pa.int32()
    assert logged.column("a").to_pylist() == [None, [[3, 4], [5, 6]], []]
    assert loaded.column("a").to_pylist()[-3:] == logged.column("a").to_pylist()


@pytest.mark.parametrize("then", ["DROP COLUMN a", "RENAME COLUMN a TO b"])
def test_arrays_of_columns_that_are_gone_are_read_from_the_log(
    followed: Followed, then: str
) -> None:
    followed.make("id int PRIMARY KEY, a int[][], name text")
    followed.run("INSERT INTO source VALUES (1, '{{1,2},{3,4}}', 'x')")
    followed.drain()
    followed.run("INSERT INTO source VALUES (2, '{{5,6},{7,8}}', 'y')")
    begin = followed.position()
    followed.run(f"ALTER TABLE source {then}")
    (batch,) = followed.read(begin)
    assert batch.column("a").to_pylist() == [[[5, 6], [7, 8]]]


def test_a_target_of_one_depth_rejects_the_row_alone(followed: Followed) -> None:
    followed.make("id int PRIMARY KEY, a int[]")
    begin = followed.start()
    followed.run("INSERT INTO source VALUES (1, '{1}'), (2, '{{1,2}}'), (3, '{3}')")
    (batch,) = followed.read(begin)
    schema = pa.schema(
        [pa.field("id", pa.int32(), nullable=False), pa.field("a", pa.list_(pa.int32()))],
        {Note.KEY: b'["id"]'},
    )
    sink = PostgresqlSink.model_validate({"connectionString": followed.dsn, "table": "t"})
    ticket = Ticket(Target("f", "main", "h", "s"), Run(), 1, schema)
    (chunk,) = type_chunks(batch, [PassBranch(sink, ticket)], 0, Places(PartSlice("wal", "p", "")))
    assert chunk.rows.column("id").to_pylist() == [1, 3]
    (refused,) = chunk.rejected
    assert (refused.offset, refused.stage) == (1, "encode")
    assert json.loads(refused.body or b"") == {"id": 2, "a": [[1, 2]]}
    said = "column a of the source holds [[1,2]]: an array of other dimensions than declared"
    assert refused.reason.startswith(said)
    assert "$.a" in refused.reason


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_elements_are_separated_as_their_type_is(followed: Followed, identity: str) -> None:
    """By `;` in arrays of boxes, also of a domain over boxes."""
    followed.run("CREATE DOMAIN place AS box")
    followed.make("id int PRIMARY KEY, a box[], b place[], c text[]")
    followed.run(f"ALTER TABLE source REPLICA IDENTITY {identity}")
    boxes = "{(1,2),(3,4);(0,0),(1,1)}"
    for first in (1, 3):
        add = "INSERT INTO source VALUES (%s, %s, %s, %s), (%s, '{{(2,2),(1,1)}}', NULL, NULL)"
        followed.run(add, first, boxes, boxes, "{a;b,c}", first + 1)
        followed.drain()
    columns = "id, a::text, b::text, c"
    assert followed.rows("target", columns) == followed.rows("source", columns)
    assert len(followed.rows()) == 4


def test_a_row_of_json_that_no_record_can_have_is_rejected_alone(followed: Followed) -> None:
    """PostgreSQL's `json` keeps a key that is there twice."""
    followed.rejects = Rejects("table")
    followed.make("id int PRIMARY KEY, a int[], j json")
    followed.drain()
    followed.run(
        """INSERT INTO source VALUES (1, '{1}', '{"b":1}'), (2, '{{1,2}}', '{"b":1,"b":2}'),"""
        """ (3, '{{1,2}}', '{"b":3}')"""
    )
    followed.drain()
    assert followed.run("SELECT id FROM target ORDER BY 1") == [(1,), (3,)]
    ((reason,),) = followed.run("SELECT reason FROM dataflow_rejected")
    assert "duplicate" in reason


def test_rows_whose_keys_do_not_fit_are_rejected_one_by_one(followed: Followed) -> None:
    """In the first load a key names its row, and all such keys are null in its column."""
    followed.rejects = Rejects("table")
    followed.make("id timestamp PRIMARY KEY, v text")
    followed.run("ALTER TABLE target ADD CHECK (id < '200000-01-01')")
    followed.run(
        "INSERT INTO source SELECT '294276-12-31 23:00:00'::timestamp + n * interval '1 s', "
        "'v' || n FROM generate_series(1, 5) n"
    )
    followed.drain()
    assert followed.run("SELECT count(*) FROM dataflow_rejected") == [(5,)]
