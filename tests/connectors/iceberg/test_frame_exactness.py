"""DataFrames into tables of Iceberg: what its types would change is refused by its column."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import devservers
from dataflow_assets.connectors.iceberg.frames.staged import as_read
from dataflow_assets.connectors.iceberg.frames.write import write
from dataflow_assets.connectors.iceberg.sink.sink import IcebergSink
from dataflow_assets.errors import PermanentError
from dataflow_assets.spark.errors import task_failure
from tests.frame_sinks import lake_sink
from tests.frames import local_frame

FLOATS = ice.ListType(2, ice.FloatType(), element_required=False)
MOMENT = pa.timestamp("us", "UTC")
LATE = datetime(2026, 1, 1, 23, 59, tzinfo=UTC)
UUID = "0F0E0D0C-0b0a-0908-0706-050403020100"


@pytest.fixture
def sink(seaweedfs: devservers.SeaweedFS, namespace: str) -> IcebergSink:
    return lake_sink(seaweedfs, namespace).model_copy(update={"table": "exact"})


@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [
        (ice.FloatType(), pa.float64(), 1e300),
        (FLOATS, pa.list_(pa.float64()), [0.5, 1e300]),
        (ice.DateType(), MOMENT, LATE),
        (ice.DecimalType(10, 2), pa.float64(), 1.009),
        (ice.DecimalType(10, 2), pa.decimal128(10, 3), Decimal("1.009")),
        (ice.BooleanType(), pa.int32(), 5),
        (ice.IntegerType(), pa.string(), "0x10"),
        (ice.IntegerType(), pa.int64(), 2**40),
        (ice.FixedType(3), pa.binary(), b"ab"),
    ],
    ids=str,
)
def test_what_a_column_would_change_is_refused_by_its_name(
    column: Any,
    kind: pa.DataType,
    value: Any,
    sink: IcebergSink,
    catalog: Catalog,
    engine: SparkSession,
) -> None:
    fields = [ice.NestedField(1, "My col", column, required=False)]
    table = catalog.create_table(sink.identifier, Schema(*fields))
    given = local_frame([{"My col": value}], pa.schema([("My col", kind)]), engine)
    with pytest.raises(PySparkException) as caught:
        write(sink, given, "overwrite", ())
    error = task_failure(caught.value)
    assert isinstance(error, PermanentError)
    assert "column My col: " in str(error)
    assert "cast it in the frame" in str(error)
    assert table.refresh().current_snapshot() is None


def test_keys_are_compared_as_they_are_stored(
    sink: IcebergSink, catalog: Catalog, engine: SparkSession
) -> None:
    fields = {"f": ice.FloatType(), "u": ice.UUIDType(), "t": ice.TimeType(), "n": ice.LongType()}
    nested = [
        ice.NestedField(at, name, kind, required=False)
        for at, (name, kind) in enumerate(fields.items(), 1)
    ]
    table = catalog.create_table(sink.identifier, Schema(*nested))
    kinds = pa.schema(
        [("t", pa.string()), ("f", pa.float64()), ("u", pa.string()), ("n", pa.float64())]
    )
    rows = [
        {"t": "10:00:00", "f": 0.1, "u": UUID, "n": 7.0},
        {"t": "10:00:00.0", "f": 0.1 + 1e-12, "u": UUID.lower(), "n": 7.0},
    ]
    found = as_read(local_frame(rows, kinds, engine), table).toArrow()
    first, second = found.to_pylist()
    assert first == second
    assert found.schema.field("n").type == pa.int64()
    assert first["u"] == UUID.lower()
