"""Whole tables of Iceberg as DataFrames: files that have rows of several partitions."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from datetime import date, time
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.catalog import Catalog
from pyiceberg.expressions.visitors import bind
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import DayTransform, IdentityTransform, MonthTransform
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.iceberg.frames.conditions import condition
from dataflow_assets.connectors.iceberg.frames.read import read
from dataflow_assets.connectors.iceberg.frames.write import write
from dataflow_assets.connectors.iceberg.sink.sink import IcebergSink
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.table_partitions import Dimension, Partitions
from dataflow_assets.spark.errors import task_failure
from tests.frame_sinks import lake_sink
from tests.frames import local_frame

PAIRS = pa.schema([("day", pa.date32()), ("i", pa.int32())])


@pytest.fixture
def sink(seaweedfs: devservers.SeaweedFS, namespace: str) -> IcebergSink:
    return lake_sink(seaweedfs, namespace).model_copy(update={"table": "daily"})


def of(*days: int) -> Partitions:
    keys = tuple(date(2026, 1, day).isoformat() for day in days)
    return Partitions(((Dimension("day", keys),),))


def rows(sink: IcebergSink, engine: SparkSession) -> list[dict[str, Any]]:
    with ExitStack() as held:
        found: list[dict[str, Any]] = read(sink, engine, None, held).toArrow().to_pylist()
    return found


@pytest.mark.parametrize(
    "transform", [None, IdentityTransform(), DayTransform(), MonthTransform()], ids=str
)
def test_rows_of_other_partitions_and_of_none_stay(
    transform: Any, sink: IcebergSink, catalog: Catalog, engine: SparkSession
) -> None:
    """However the table lays out its files: all of these rows come into one write."""
    schema = Schema(
        ice.NestedField(1, "day", ice.DateType(), required=False),
        ice.NestedField(2, "i", ice.IntegerType(), required=False),
    )
    fields = [PartitionField(1, 1000, transform, "part")] if transform else []
    table = catalog.create_table(sink.identifier, schema, partition_spec=PartitionSpec(*fields))
    every = [(date(2026, 1, day), day) for day in range(1, 6)]
    given = [{"day": day, "i": i} for day, i in [*every, (None, 0)]]
    write(sink, local_frame(given, PAIRS, engine), "append", ())
    new = [{"day": date(2026, 1, 3), "i": -3}]
    write(sink, local_frame(new, PAIRS, engine), "overwrite", (), of(2, 3))
    found = sorted((row["i"], row["day"]) for row in rows(sink, engine) if row["day"])
    assert found == [(-3, date(2026, 1, 3)), *((i, d) for d, i in every if i not in {2, 3})]
    assert [row["i"] for row in rows(sink, engine) if row["day"] is None] == [0]
    table.refresh()
    assert len(table.history()) == 2, "each write is one commit"


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (ice.IntegerType(), "1.5"),
        (ice.IntegerType(), "1_0"),
        (ice.LongType(), "1e3"),
        (ice.DecimalType(4, 2), "one"),
        (ice.DecimalType(4, 2), "1_0"),
        (ice.DecimalType(4, 2), "5.001"),
    ],
    ids=str,
)
def test_a_key_that_is_no_value_of_its_column_is_no_other_partition(kind: Any, key: str) -> None:
    schema = Schema(ice.NestedField(1, "version", kind, required=False))
    some = Partitions(((Dimension("version", (key,)),),))
    with pytest.raises(PermanentError, match="a partition key is no value of its column in t"):
        condition(some, "t", schema)


@pytest.mark.parametrize("key", ["5", "5.0", "5.00", "+5.000"])
def test_a_decimal_is_the_same_partition_however_many_zeros_its_key_has(key: str) -> None:
    schema = Schema(ice.NestedField(1, "price", ice.DecimalType(38, 2), required=False))
    found = condition(Partitions(((Dimension("price", (key,)),),)), "t", schema)
    stored = condition(Partitions(((Dimension("price", ("5.00",)),),)), "t", schema)
    assert bind(schema, found, case_sensitive=True) == bind(schema, stored, case_sensitive=True)


def test_what_is_written_again_is_as_it_was(
    sink: IcebergSink, catalog: Catalog, engine: SparkSession
) -> None:
    """Values of every type, in a file that has rows of the replaced partition too."""
    element = ice.NestedField(11, "x", ice.DecimalType(38, 2), required=False)
    schema = Schema(
        ice.NestedField(1, "day", ice.StringType(), required=False),
        ice.NestedField(2, "u", ice.UUIDType(), required=False),
        ice.NestedField(3, "f", ice.FixedType(3), required=False),
        ice.NestedField(4, "t", ice.TimeType(), required=False),
        ice.NestedField(5, "b", ice.BinaryType(), required=False),
        ice.NestedField(6, "s", ice.StructType(element), required=False),
        ice.NestedField(7, "l", ice.ListType(12, ice.StringType(), False), required=False),
        ice.NestedField(
            8, "m", ice.MapType(13, ice.StringType(), 14, ice.LongType(), False), required=False
        ),
    )
    table = catalog.create_table(sink.identifier, schema)
    kept: dict[str, Any] = {
        "day": "b",
        "u": uuid.UUID(int=7).bytes,
        "f": b"\x00ab",
        "t": time(23, 59, 59, 999_999),
        "b": b"\xff",
        "s": {"x": None},
        "l": ["a", None],
        "m": [("k", 1)],
    }
    empty = {**dict.fromkeys(kept), "day": "c"}
    table.append(
        pa.Table.from_pylist([{**empty, "day": "a"}, kept, empty], table.schema().as_arrow())
    )
    before = table.scan(row_filter="day != 'a'").to_arrow().sort_by("day").to_pylist()
    frame = local_frame([{"day": "a"}], pa.schema([("day", pa.string())]), engine)
    write(sink, frame, "overwrite", (), Partitions(((Dimension("day", ("a",)),),)))
    after = table.refresh().scan().to_arrow().sort_by("day").to_pylist()
    assert after == [{**dict.fromkeys(kept), "day": "a"}, *before]


KEYS = pa.schema([("k", pa.int64())])
LONG, TEXT = ice.LongType(), ice.StringType()


def keyed(column: Any, *, required: bool = False) -> Schema:
    """`k`, and one more column, `p`."""
    key = ice.NestedField(1, "k", LONG, required=False)
    return Schema(key, ice.NestedField(2, "p", column, required=required))


def refusal(sink: IcebergSink, frame: Any, mode: Any) -> str:
    """Why a frame is not written."""
    with pytest.raises(PySparkException) as caught:
        write(sink, frame, mode, ())
    error = task_failure(caught.value)
    assert isinstance(error, PermanentError)
    return str(error)


@pytest.mark.parametrize("layout", ["partition_spec", "sort_order"])
def test_a_frame_may_lack_the_column_that_files_are_told_apart_by(
    layout: str, sink: IcebergSink, catalog: Catalog, engine: SparkSession
) -> None:
    layouts: dict[str, Any] = {
        "partition_spec": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p")),
        "sort_order": SortOrder(SortField(2, IdentityTransform())),
    }
    catalog.create_table(sink.identifier, keyed(TEXT), **{layout: layouts[layout]})
    write(sink, local_frame([{"k": 1}], KEYS, engine), "append", ())
    assert rows(sink, engine) == [{"k": 1, "p": None}]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_frame_that_lacks_a_required_column_leaves_the_table_readable(
    mode: str, sink: IcebergSink, catalog: Catalog, engine: SparkSession
) -> None:
    """A file without that column would end every read of the table."""
    table = catalog.create_table(sink.identifier, keyed(TEXT, required=True))
    table.append(pa.Table.from_pylist([{"k": 1, "p": "x"}], table.schema().as_arrow()))
    reason = refusal(sink, local_frame([{"k": 2}], KEYS, engine), mode)
    assert "column p is required and got no value" in reason
    assert rows(sink, engine) == [{"k": 1, "p": "x"}]


STRUCT = ice.StructType(
    ice.NestedField(10, "a", LONG, required=True), ice.NestedField(11, "b", TEXT, required=False)
)
WHOLE, PART = pa.struct([("a", pa.int64()), ("b", pa.string())]), pa.struct([("b", pa.string())])


@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [
        (STRUCT, WHOLE, {"a": None, "b": "x"}),
        (STRUCT, PART, {"b": "x"}),
        (ice.ListType(20, LONG, element_required=True), pa.list_(pa.int64()), [1, None]),
        (ice.ListType(20, STRUCT, element_required=True), pa.list_(WHOLE), [None]),
        (ice.ListType(20, STRUCT, element_required=True), pa.list_(PART), [{"b": "x"}]),
        (
            ice.MapType(20, TEXT, 21, LONG, value_required=True),
            pa.map_(pa.string(), pa.int64()),
            [("k", None)],
        ),
    ],
    ids=str,
)
def test_nulls_inside_a_column_that_takes_none_are_refused_by_its_name(
    column: Any,
    kind: pa.DataType,
    value: Any,
    sink: IcebergSink,
    catalog: Catalog,
    engine: SparkSession,
) -> None:
    """None is stored as a number or a text that nobody has sent."""
    catalog.create_table(sink.identifier, keyed(column))
    given = local_frame([{"p": value}], pa.schema([("p", kind)]), engine)
    assert "column p: " in (reason := refusal(sink, given, "append"))
    assert "required and got no value" in reason
    assert rows(sink, engine) == []


def test_a_table_that_is_made_takes_nulls_that_its_first_frame_has_not(
    sink: IcebergSink, engine: SparkSession
) -> None:
    """Of `collect_list`, say, Spark knows that no element is null."""
    number = pa.field("n", pa.int64(), nullable=False)
    kinds = {
        "l": pa.list_(number),
        "s": pa.struct([number]),
        "m": pa.map_(pa.string(), number),
        "d": pa.list_(pa.field("e", pa.struct([number]), nullable=False)),
    }
    first = {"l": [1], "s": {"n": 1}, "m": [("k", 1)], "d": [{"n": 1}]}
    later = {"l": [None], "s": {"n": None}, "m": [("k", None)], "d": [None, {"n": None}]}
    fields = [pa.field(name, kind, nullable=False) for name, kind in kinds.items()]
    write(sink, local_frame([first], pa.schema(fields), engine), "append", ())
    loose = pa.schema(
        [
            ("l", pa.list_(pa.int64())),
            ("s", pa.struct([("n", pa.int64())])),
            ("m", pa.map_(pa.string(), pa.int64())),
            ("d", pa.list_(pa.struct([("n", pa.int64())]))),
        ]
    )
    write(sink, local_frame([later], loose, engine), "append", ())
    found = sorted(rows(sink, engine), key=str)
    assert found == sorted([first, later], key=str)
