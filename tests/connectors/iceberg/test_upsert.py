"""Upserts into Iceberg tables: rows of a key are merged, and each span is one commit of main."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyspark.sql import SparkSession

from dataflow_assets.connectors.iceberg import IcebergSink
from dataflow_assets.connectors.iceberg.sink.session import IcebergSinkSession
from dataflow_assets.contracts import (
    ABSENT,
    DELETE,
    INSERT,
    OFFSET,
    OP,
    CountsRows,
    OffsetSlice,
    PartSlice,
    Run,
    Span,
)
from dataflow_assets.errors import PermanentError, TakenOver, TransientError
from dataflow_assets.failpoints import arm, from_environment
from devservers import SeaweedFS
from tests.connectors.iceberg.driver import (
    SOURCE,
    TARGET,
    MakeSink,
    make_sink,
    opened,
    table_rows,
    write,
)
from tests.connectors.iceberg.test_races import FENCED, race

COLUMNS = {"id": "long", "name": "string", "n": "int", "deleted_at": "timestamptz"}
NAMES = list(COLUMNS)
Row = dict[str, Any]


@pytest.fixture
def make(seaweedfs: SeaweedFS, namespace: str) -> MakeSink:
    keyed = {"upsertMode": True, "conflictKey": "id", "columns": COLUMNS}
    return lambda **changes: make_sink(seaweedfs, namespace, **keyed | changes)


@pytest.fixture
def put(engine: SparkSession) -> Callable[..., Any]:
    return partial(_put, engine)


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Arms a failpoint of this process and its tasks; an empty name disarms it."""

    def to(point: str) -> None:
        monkeypatch.setenv("DATAFLOW_FAILPOINT", point and f"{point}:raise")
        monkeypatch.setenv("DATAFLOW_FAILPOINT_TOKEN", uuid.uuid4().hex)
        arm(from_environment())

    yield to
    arm(None)


def batch(rows: Sequence[Row], schema: pa.Schema, first: int = 0) -> pa.RecordBatch:
    """Rows as a source delivers them: `op` DELETE, and columns they do not name are absent."""
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    masks = [
        np.packbits([name not in row for name in schema.names], bitorder="little").tobytes()
        for row in rows
    ]
    arrays += [
        pa.array(range(first, first + len(rows)), pa.int64()),
        pa.array([row.get("op", INSERT) for row in rows], pa.int8()),
        pa.array(masks, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[*schema.names, OFFSET, OP, ABSENT])


def _put(
    spark: SparkSession,
    sink: IcebergSink,
    session: IcebergSinkSession,
    *slices: Sequence[Row],
    finish: bool = True,
) -> tuple[Span, list[Any]]:
    """One micro-batch with these rows in each partition."""
    stands = [int(session.checkpoint.positions.get(f"p{i}", 0)) for i in range(len(slices))]
    pieces = [
        OffsetSlice(f"p{i}", at, at + len(rows))
        for i, (at, rows) in enumerate(zip(stands, slices, strict=True))
    ]
    span = session.begin(Span(tuple(pieces)))
    schema = session.table.schema()
    assert schema is not None
    receipts = [
        write(sink, session, piece, batch(rows, schema, piece.after))
        for piece, rows in zip(pieces, slices, strict=True)
        if rows
    ]
    session.stage(span, receipts, lambda: spark)
    if finish:
        session.finish(span, receipts, SOURCE)
    return span, receipts


def begun(sink: IcebergSink) -> IcebergSinkSession:
    session = opened(sink, sample=pa.schema([]))
    assert isinstance(session, IcebergSinkSession)
    return session


def found(catalog: Catalog, namespace: str, *names: str) -> list[tuple[Any, ...]]:
    wanted = names or ("id", "name", "n")
    return sorted(tuple(row[n] for n in wanted) for row in table_rows(catalog, namespace))


def test_the_last_row_of_a_key_wins_and_absent_columns_stay(
    make: MakeSink, put: Any, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = begun(sink)
    put(sink, session, [{"id": 1, "name": "a", "n": 1}, {"id": 2, "name": "b"}])
    put(sink, session, [{"id": 1, "name": "A"}, {"id": 3, "n": 3}, {"id": 3, "name": "c"}])
    assert found(catalog, namespace) == [(1, "A", 1), (2, "b", None), (3, "c", 3)]
    put(sink, session, [{"id": 2, "name": None}, {"id": 1, "op": DELETE}])
    assert found(catalog, namespace) == [(2, None, None), (3, "c", 3)]
    assert session.checkpoint.positions["p0"] == 7
    assert session.checkpoint.totals.rows == 7


def test_an_insert_behind_a_delete_forgets_what_was_stored(
    make: MakeSink, put: Any, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = begun(sink)
    put(sink, session, [{"id": 1, "name": "a", "n": 1}])
    put(sink, session, [{"id": 1, "op": DELETE}, {"id": 1, "name": "new"}])
    put(sink, session, [{"id": 9, "op": DELETE}])
    assert found(catalog, namespace) == [(1, "new", None)]


def test_soft_deletes_mark_and_upserts_take_the_mark_away(
    make: MakeSink, put: Any, catalog: Catalog, namespace: str
) -> None:
    sink = make(softDeleteColumn="deleted_at")
    session = begun(sink)
    before = datetime.now(UTC)
    put(sink, session, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 2, "op": DELETE}])
    put(sink, session, [{"id": 1, "op": DELETE}, {"id": 7, "op": DELETE}])
    (one, two) = found(catalog, namespace, "id", "name", "deleted_at")
    assert one[:2] == (1, "a")
    assert before <= two[2] <= one[2] <= datetime.now(UTC)
    put(sink, session, [{"id": 1, "n": 5}])
    assert found(catalog, namespace, "id", "name", "n", "deleted_at")[0] == (1, "a", 5, None)


def test_a_span_is_one_commit_of_main_and_leaves_nothing_behind(
    make: MakeSink, put: Any, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = begun(sink)
    put(sink, session, [{"id": n, "name": "x"} for n in range(50)], [{"id": 99, "name": "y"}])
    before = catalog.load_table((namespace, "orders")).metadata
    rows = [{"id": n, "name": "z"} for n in range(0, 60, 2)]
    span, receipts = put(sink, session, rows, [{"id": 99, "op": DELETE}], finish=False)
    assert len(table_rows(catalog, namespace)) == 51  # readers see nothing of it yet
    session.finish(span, receipts, SOURCE)
    after = catalog.load_table((namespace, "orders")).metadata
    assert len(after.snapshots) == len(before.snapshots) + 1
    assert len(after.metadata_log) == len(before.metadata_log) + 1
    assert len(table_rows(catalog, namespace)) == 55
    assert isinstance(session.table, CountsRows)
    assert session.table.row_count() == 55
    assert session.finish(span, receipts, SOURCE) == session.checkpoint
    session.stage(span, receipts, _no_spark)
    assert not [path for path in _files(catalog, namespace) if "-merge-" in path]


def _no_spark() -> SparkSession:
    raise AssertionError("what is committed needs no Spark any more")


def _files(catalog: Catalog, namespace: str) -> list[str]:
    from pyarrow import fs
    from pyiceberg.io.pyarrow import PyArrowFileIO

    table = catalog.load_table((namespace, "orders"))
    io = table.io
    assert isinstance(io, PyArrowFileIO)
    scheme, host, path = io.parse_location(table.location(), io.properties)
    selector = fs.FileSelector(path, recursive=True)
    return [info.path for info in io.fs_by_scheme(scheme, host).get_file_info(selector)]


@pytest.mark.parametrize(
    "layout",
    [
        {"partitionBy": ["bucket(4, id)", "n"], "sortBy": ["name desc", "id"]},
        {"conflictKey": ["id", "u"], "partitionBy": ["u"], "softDeleteColumn": "deleted_at"},
        {"conflictKey": ["day", "code"], "partitionBy": ["month(day)", "truncate(3, code)"]},
    ],
)
def test_random_rows_stand_as_if_applied_one_by_one(
    make: MakeSink, put: Any, catalog: Catalog, namespace: str, layout: dict[str, Any]
) -> None:
    dice = random.Random(f"5-{layout}")
    columns = COLUMNS | {"u": "uuid", "code": "string", "day": "date", "t": "time"}
    columns |= {"who": "struct<a: long, b: list<string>>", "m": "map<string, long>"}
    sink = make(columns=columns, **layout)
    session = begun(sink)
    model: dict[tuple[Any, ...], Row] = {}
    soft = layout.get("softDeleteColumn")
    for _ in range(3):
        slices = [
            [_row(dice, sink.key, part) for _ in range(dice.choice((1, 9, 60)))] for part in (0, 1)
        ]
        put(sink, session, *slices)
        for row in [row for rows in slices for row in rows]:
            _apply(model, row, sink.key, soft)
        names = [*columns]
        stored = [_shown(row, names) for row in table_rows(catalog, namespace)]
        assert sorted(stored, key=repr) == sorted(
            (_shown(r, names) for r in model.values()), key=repr
        )
    if layout.get("partitionBy"):
        assert len(list(catalog.load_table((namespace, "orders")).scan().plan_files())) > 1


def _row(dice: random.Random, key: tuple[str, ...], part: int) -> Row:
    number = 2 * dice.randrange(30) + part  # one key stays in one partition of the source
    whole: Row = {
        "id": number,
        "u": str(uuid.UUID(int=number % 3)),
        "code": f"k{number:03}",
        "day": datetime(2024, 1 + number % 5, 1, tzinfo=UTC).date(),
    }
    keyed = {name: whole[name] for name in key}
    if dice.random() < 0.2:
        return keyed | {"op": DELETE}
    others = {
        "name": dice.choice(["a", "b", None]),
        "n": dice.randrange(3),
        "t": datetime(2024, 1, 1, dice.randrange(24)).time(),  # noqa: DTZ001
        "who": dice.choice([None, {"a": dice.randrange(9), "b": ["x", None]}]),
        "m": dice.choice([None, [("k", dice.randrange(9))]]),
    }
    return keyed | {name: value for name, value in others.items() if dice.random() < 0.7}


def _apply(
    model: dict[tuple[Any, ...], Row], row: Row, key: tuple[str, ...], soft: str | None
) -> None:
    which = tuple(row[name] for name in key)
    if row.get("op") != DELETE:
        model[which] = model.get(which, {}) | row | ({soft: None} if soft else {})
    elif soft is None:
        model.pop(which, None)
    elif which in model:
        model[which][soft] = True


def _shown(row: Row, names: list[str]) -> tuple[Any, ...]:
    values = {**row, "deleted_at": bool(row.get("deleted_at"))}
    return tuple(str(values.get(n)) if n == "u" else values.get(n) for n in names)


def test_rows_that_do_not_fit_are_rejected_and_the_key_is_required(
    make: MakeSink, put: Any, catalog: Catalog, namespace: str
) -> None:
    sink = make(columns={"id": "long", "name": "string not null", "n": "int"})
    session = begun(sink)
    put(sink, session, [{"id": 1, "name": "a"}, {"id": None, "name": "b"}, {"id": 2, "name": None}])
    put(sink, session, [{"id": 1, "op": DELETE}, {"id": 3, "name": "c"}])
    assert found(catalog, namespace) == [(3, "c", None)]
    reasons = [row["reason"] for row in table_rows(catalog, namespace, "orders_rejected")]
    assert sorted(reasons) == [
        "column id is required and got no value",
        "column name is required and got no value",
    ]
    schema = catalog.load_table((namespace, "orders")).schema()
    assert schema.identifier_field_names() == {"id"}
    assert schema.find_field("id").required


@pytest.mark.parametrize("point", ["iceberg.staged", "iceberg.merged", "iceberg.before-commit"])
def test_a_crash_before_the_commit_leaves_the_table_as_it_was(
    make: MakeSink, put: Any, catalog: Catalog, namespace: str, point: str, armed: Any
) -> None:
    sink = make()
    session = begun(sink)
    put(sink, session, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    armed(point)
    with pytest.raises(TransientError, match="failpoint"):
        put(sink, session, [{"id": 1, "name": "A"}, {"id": 2, "op": DELETE}])
    armed("")
    assert found(catalog, namespace) == [(1, "a", None), (2, "b", None)]
    session = begun(sink)
    put(sink, session, [{"id": 1, "name": "A"}, {"id": 2, "op": DELETE}])
    assert found(catalog, namespace) == [(1, "A", None)]


@pytest.mark.parametrize("point", ["iceberg.after-commit", "iceberg.moved"])
def test_a_crash_behind_the_commit_repeats_nothing(
    make: MakeSink, put: Any, catalog: Catalog, namespace: str, point: str, armed: Any
) -> None:
    sink = make()
    session = begun(sink)
    armed(point)
    with pytest.raises(TransientError, match="failpoint"):
        put(sink, session, [{"id": 1, "name": "a"}])
    armed("")
    assert found(catalog, namespace) == [(1, "a", None)]
    session = begun(sink)
    assert session.checkpoint.positions["p0"] == 1
    assert session.checkpoint.totals.rows == 1


def test_of_two_drivers_on_one_span_the_older_stops(
    make: MakeSink, put: Any, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    older = begun(sink)
    put(sink, older, [{"id": 1, "name": "a"}])
    span, receipts = put(sink, older, [{"id": 1, "name": "older"}], finish=False)
    newer = begun(sink)
    put(sink, newer, [{"id": 1, "name": "newer"}])
    with pytest.raises(TakenOver, match="was taken over by run"):
        older.finish(span, receipts, SOURCE)
    assert found(catalog, namespace) == [(1, "newer", None)]


def test_appends_of_other_keys_meanwhile_do_not_matter(
    make: MakeSink, put: Any, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = begun(sink)
    put(sink, session, [{"id": 10, "name": "a"}, {"id": 30, "name": "b"}])
    span, receipts = put(
        sink, session, [{"id": 10, "op": DELETE}, {"id": 30, "n": 3}], finish=False
    )
    written = len(_files(catalog, namespace))
    _append(catalog, namespace, 20)
    session.finish(span, receipts, SOURCE)
    assert found(catalog, namespace) == [(20, "other", None), (30, "b", 3)]
    assert len([p for p in _files(catalog, namespace) if "merged-" in p]) <= written


def test_rows_of_the_same_key_meanwhile_are_merged_again(
    make: MakeSink, put: Any, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = begun(sink)
    put(sink, session, [{"id": 10, "name": "a"}])
    span, receipts = put(sink, session, [{"id": 10, "n": 1}, {"id": 11, "n": 2}], finish=False)
    _append(catalog, namespace, 11)
    session.finish(span, receipts, SOURCE)
    assert found(catalog, namespace) == [(10, "a", 1), (11, "other", 2)]


def test_a_file_rewritten_by_another_writer_meanwhile_is_merged_again(
    make: MakeSink, put: Any, catalog: Catalog, namespace: str
) -> None:
    sink, other = make(), make()
    session = begun(sink)
    put(sink, session, [{"id": 10, "name": "a"}, {"id": 11, "name": "b"}])
    span, receipts = put(sink, session, [{"id": 10, "n": 1}], finish=False)
    session_2 = other.open(replace(TARGET, flow="default/more"), Run())
    assert isinstance(session_2, IcebergSinkSession)
    session_2.restart({"p0": 0}, "topic-1")
    put(other, session_2, [{"id": 11, "op": DELETE}, {"id": 10, "name": "theirs"}])
    session.finish(span, receipts, SOURCE)
    assert found(catalog, namespace) == [(10, "theirs", 1)]


@pytest.mark.full
def test_racing_drivers_and_another_flow_that_appends(
    make: MakeSink, put: Any, catalog: Catalog, namespace: str
) -> None:
    """Of two drivers at once each span counts once, whoever wins; other flows' rows all stand."""
    begun(make())

    def drive(index: int) -> str:
        sink = make()
        session = begun(sink)
        if int(session.checkpoint.positions.get("p0", 0)) == 2 * index:
            put(sink, session, [{"id": 1, "n": index}, {"id": 10 + index, "name": "new"}])
        return "done"

    def append(index: int) -> None:
        for number in range(4):
            _append(catalog, namespace, 1000 + 10 * index + number)

    for index in range(3):
        outcomes = race(partial(drive, index), partial(drive, index), partial(append, index))
        assert all(isinstance(o, FENCED) or o in ("done", None) for o in outcomes), outcomes
        drive(index)
        assert make().peek(TARGET).positions["p0"] == 2 * (index + 1)  # type: ignore[union-attr]
    assert make().peek(TARGET).totals.rows == 6  # type: ignore[union-attr]
    mine = [(1, None, 2), *((10 + index, "new", None) for index in range(3))]
    theirs = [(1000 + 10 * i + k, "other", None) for i in range(3) for k in range(4)]
    assert found(catalog, namespace) == [*mine, *theirs]


def _append(catalog: Catalog, namespace: str, id_: int) -> None:
    row = {"id": id_, "name": "other", "n": None, "deleted_at": None}
    while True:
        table = catalog.load_table((namespace, "orders"))
        try:
            table.append(pa.Table.from_pylist([row], table.schema().as_arrow()))
        except CommitFailedException:
            continue
        return


def test_parts_are_merged_whole(
    make: MakeSink, engine: SparkSession, catalog: Catalog, namespace: str
) -> None:
    sink = make()
    session = begun(sink)
    parts = Span(
        (PartSlice("part-0", None, "end", "0-9"), PartSlice("part-1", None, "end", "10-19"))
    )
    session.begin(parts)
    schema = session.table.schema()
    assert schema is not None
    receipts = [
        write(
            sink, session, piece, batch([{"id": n, "name": "x"} for n in range(k, k + 10)], schema)
        )
        for k, piece in zip((0, 10), parts.slices, strict=True)
    ]
    session.stage(parts, receipts, lambda: engine)
    session.finish(parts, receipts, SOURCE)
    assert len(table_rows(catalog, namespace)) == 20
    assert session.finish(parts, receipts, SOURCE) == session.checkpoint


def test_existing_tables_and_keys_that_do_not_fit(
    make: MakeSink, catalog: Catalog, namespace: str
) -> None:
    columns = pa.schema(
        [("id", pa.int64()), ("score", pa.float64()), ("tags", pa.list_(pa.string()))]
    )
    catalog.create_table((namespace, "orders"), columns)
    for key, said in (("score", "which is double"), ("tags", "which is list"), ("no", "lacks")):
        with pytest.raises(PermanentError, match=said):
            opened(make(conflictKey=key, columns={}))
