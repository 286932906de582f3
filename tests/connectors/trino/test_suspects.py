"""Records that the statement of a span refuses: each is found, and all others are stored once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.memory import Store
from dataflow_assets.connectors.trino.errors import TrinoFailure
from dataflow_assets.connectors.trino.sink.publish import TrinoPublisher
from dataflow_assets.connectors.trino.sink.suspects import (
    RefusedSpan,
    Suspects,
    TrinoBound,
    bound_chunk,
)
from dataflow_assets.connectors.trino.table import stage, statement
from dataflow_assets.connectors.trino.table.document import parse
from dataflow_assets.contracts import (
    OFFSET,
    Chunk,
    N,
    OffsetSlice,
    PartSlice,
    Receipt,
    Span,
    Totals,
)
from dataflow_assets.errors import PermanentError, Stopped
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.connectors.trino.driver import execute
from tests.flows import manifest, messages
from tests.matrix.test_matrix import run

BROKEN = TrinoFailure("the value is out of range", "NUMERIC_VALUE_OUT_OF_RANGE", "USER_ERROR")
OPEN = TrinoFailure("something is wrong", "SOMETHING_NEW", "USER_ERROR")
Places = set[tuple[str, int]]


class Flow:
    """Partitions of records of two rows each, a target, and what a run does with both."""

    def __init__(
        self, sizes: Mapping[str, int], bad: Places, failure: TrinoFailure = BROKEN
    ) -> None:
        self._sizes, self._bad, self._failure = sizes, bad, failure
        self.positions = dict.fromkeys(sizes, 0)
        self.stored, self.rejected = list[tuple[str, int]](), set[tuple[str, int]]()
        self.statements = 0

    def drain(self) -> None:
        suspects = Suspects()
        while self.positions != self._sizes:
            bounds = suspects.bounds
            slices = [
                OffsetSlice(name, at, self._sizes[name]) for name, at in self.positions.items()
            ]
            self._read = {one.partition: self._taken(one, bounds) for one in slices}
            receipts = [
                Receipt("b", name, chunk.seen, Totals(), (_staged(chunk),))
                for name, chunk in self._read.items()
            ]
            suspects.store(Span(tuple(slices)), receipts, self._publish)

    def _taken(self, piece: OffsetSlice, bounds: Mapping[str, TrinoBound]) -> Chunk:
        offsets = [at for at in range(piece.after, piece.upto) for _ in range(2)]
        arrays = [pa.array(offsets, pa.int64()), pa.array([0, 1] * (len(offsets) // 2), pa.int32())]
        rows = pa.RecordBatch.from_arrays(arrays, names=[OFFSET, N])
        chunk = Chunk(rows, [], piece.upto, 0)
        return (
            bound_chunk(chunk, bounds[piece.partition], 0)[0]
            if piece.partition in bounds
            else chunk
        )

    def _publish(self, span: Span, receipts: Sequence[Receipt]) -> None:
        found = [(one.partition, at) for one in receipts for at in self._offsets(one.partition)]
        self.statements += 1
        if self._bad & {*found}:
            raise RefusedSpan(self._failure, "writing")
        self.stored += found
        for piece in span.slices:
            assert isinstance(piece, OffsetSlice)
            chunk = self._read[piece.partition]
            assert piece.upto == chunk.seen
            self.rejected |= {(piece.partition, one.offset) for one in chunk.rejected}
            self.positions[piece.partition] = piece.upto

    def _offsets(self, partition: str) -> list[int]:
        return sorted(set(self._read[partition].rows.column(OFFSET).to_pylist()))


def _staged(chunk: Chunk) -> str:
    offsets = sorted(set(chunk.rows.column(OFFSET).to_pylist()))
    first = offsets[0] if offsets else 0
    found = stage.TrinoStaged("a", chunk.rows.num_rows, records=len(offsets), first=first)
    return msgspec.json.encode(found).decode()


@pytest.mark.parametrize(
    ("sizes", "bad", "most"),
    [
        ({"0": 100}, {("0", 0)}, 25),
        ({"0": 1_000}, {("0", 999)}, 30),
        ({"0": 64, "1": 64, "2": 3}, {("0", 17), ("1", 18), ("1", 19), ("2", 2)}, 75),
        ({"0": 20}, {("0", n) for n in range(20)}, 70),
        ({"0": 1}, {("0", 0)}, 5),
    ],
)
def test_each_record_is_stored_once_or_rejected(
    sizes: dict[str, int], bad: Places, most: int
) -> None:
    flow = Flow(sizes, bad)
    flow.drain()
    everything = {(name, at) for name, size in sizes.items() for at in range(size)}
    assert sorted(flow.stored) == sorted(everything - bad)
    assert flow.rejected == bad
    assert flow.statements < most


def test_where_others_are_stored_a_record_is_at_fault_whatever_the_error() -> None:
    flow = Flow({"0": 10, "1": 10}, {("0", 5)}, OPEN)
    flow.drain()
    assert flow.rejected == {("0", 5)}


def test_where_none_is_stored_it_is_the_target() -> None:
    flow = Flow({"0": 10}, {("0", at) for at in range(10)}, OPEN)
    with pytest.raises(PermanentError, match=r"writing: something is wrong \(SOMETHING_NEW\)"):
        flow.drain()
    assert (flow.stored, flow.rejected) == ([], set())


def test_a_part_is_stored_whole_or_not_at_all() -> None:
    def refuse(_: Span, __: Sequence[Receipt]) -> None:
        raise RefusedSpan(BROKEN, "writing the records of partition part-0 to t")

    span = Span((PartSlice("part-0", None, "1", "x"),))
    receipt = Receipt("b", "part-0", "1", Totals(2), (_staged(_whole()),))
    with pytest.raises(PermanentError, match=r"partition part-0 to t: the value is out of range"):
        Suspects().store(span, [receipt], refuse)


def _whole() -> Chunk:
    return Chunk(pa.record_batch({OFFSET: pa.array([0, 1], pa.int64())}), [], 2, 0)


@pytest.mark.parametrize(
    ("name", "kind", "message", "bad"),
    [
        ("JDBC_ERROR", "EXTERNAL", 'ERROR: new row violates check constraint "c"', True),
        ("JDBC_ERROR", "EXTERNAL", "An I/O error occurred while sending to the backend.", False),
        ("JDBC_ERROR", "EXTERNAL", 'No space left: "id", "constraint_id", "overflow_at"', False),
        ("JDBC_ERROR", "EXTERNAL", "waited too long for a connection", False),
        ("JDBC_ERROR", "EXTERNAL", "ERROR: value too long for type character varying(3)", True),
        ("PERMISSION_DENIED", "USER_ERROR", "Access Denied", False),
        ("ICEBERG_FILESYSTEM_ERROR", "EXTERNAL", "503", False),
    ],
)
def test_an_outage_is_no_record(name: str, kind: str, message: str, bad: bool) -> None:
    assert (TrinoFailure(message, name, kind).fault.name == "ROW") is bad


@pytest.mark.heavy
@pytest.mark.timeout(600)
@pytest.mark.parametrize("inline", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_constraint_behind_a_catalog_rejects_its_records_alone(
    inline: bool,
    trino: devservers.Trino,
    tmp_path: Path,
    engine: SparkSession,
    store: Store,
    schema: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No look-ahead knows it: Trino does not show the constraints of PostgreSQL."""
    if not inline:
        monkeypatch.setattr(stage, "MOST_INLINE", 0)
    with psycopg.connect(trino.database.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}".encode())
        connection.execute(f"CREATE TABLE {schema}.t (id bigint CHECK (id <> 7))".encode())
    for partition in (0, 1):
        rows = range(partition, 10, 2)
        store.produce("t", partition, [json.dumps({"id": n}).encode() for n in rows])
    where: dict[str, Any] = {"serverURL": trino.uri, "catalog": "pg", "schema": schema}
    ends = messages(store), ("trino", where | {"table": "t"})
    path = manifest(tmp_path, *ends, onRejected="fail")
    with pytest.raises(Stopped, match=r"partition 1, offset 3, .*violates check constraint"):
        run(choose(load(path), None), engine)
    text = path.read_text().replace("onRejected: fail", "onRejected: table")
    path.write_text(text)
    run(choose(load(path), None), engine)
    found = sorted(row for (row,) in execute(trino, f"SELECT id FROM pg.{schema}.t"))
    assert found == [n for n in range(10) if n != 7]
    reasons = execute(trino, f"SELECT DISTINCT id, reason FROM pg.{schema}.t_rejected")
    assert len(reasons) == 1
    assert all("violates check constraint" in reason for _, reason in reasons)
    assert (
        execute(trino, f"SHOW TABLES FROM pg.{schema} LIKE 'dataflow\\_stage%' ESCAPE '\\'") == []
    )


@pytest.mark.heavy
@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("keyed", [{}, {"upsertMode": True, "conflictKey": "id"}])
def test_a_refused_statement_of_iceberg_is_in_no_doubt(
    keyed: dict[str, Any],
    trino: devservers.Trino,
    trino_schema: str,
    tmp_path: Path,
    engine: SparkSession,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The statements after it are not asked for it, and the next run has nothing to find out."""
    execute(trino, f"CREATE TABLE lake.{trino_schema}.target (id bigint, name varchar)")
    for partition in (0, 1):
        rows = [{"id": n, "name": "poison" if n == 5 else "x"} for n in range(partition, 10, 2)]
        store.produce("t", partition, [json.dumps(row).encode() for row in rows])
    sql = TrinoPublisher._sql

    def refusing(self: TrinoPublisher, source: statement.Source, *rest: Any) -> str:
        made, broken = sql(self, source, *rest), "SELECT CAST(n AS bigint) FROM (VALUES 'x') x (n)"
        return broken if "poison" in made else made

    monkeypatch.setattr(TrinoPublisher, "_sql", refusing)
    where = {"serverURL": trino.uri, "catalog": "lake", "schema": trino_schema, "table": "target"}
    path = manifest(tmp_path, messages(store), ("trino", where | keyed), onRejected="table")
    flow = choose(load(path), None)
    run(flow, engine)
    found = execute(trino, f"SELECT id FROM lake.{trino_schema}.target ORDER BY id")
    assert found == [[n] for n in range(10) if n != 5]
    (stored,) = execute(trino, f"SELECT state FROM lake.{trino_schema}.dataflow_checkpoints")
    document = parse(stored[0])
    assert (document.open_doubts, document.checkpoint.totals.rejected) == ((), 1)
