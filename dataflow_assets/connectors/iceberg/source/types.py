"""Iceberg's types as interchange types, on their way to a sink."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from dataflow_assets.connectors.iceberg.types import SIMPLE, ArrowForm
from dataflow_assets.contracts import TypeRow
from dataflow_assets.sdk.types.comments import COMMENTS

_PLAIN: dict[type[ice.IcebergType], pa.DataType] = {
    ice.TimestampNanoType: pa.timestamp("ns"),
    ice.TimestamptzNanoType: pa.timestamp("ns", "UTC"),
    ice.UUIDType: pa.string(),
    ice.UnknownType: pa.null(),
}
_BYTES: tuple[type[ice.IcebergType], ...] = (ice.FixedType, ice.GeometryType, ice.GeographyType)
TRAVELLING = ArrowForm({**_PLAIN, **dict.fromkeys(_BYTES, pa.binary()), ice.MapType: pa.string()})
"""The columns in interchange types, under their names in the schema."""


def typed_schema(schema: Schema) -> pa.Schema:
    return pa.schema(map(TRAVELLING.field, schema.fields))


def rows() -> tuple[TypeRow, ...]:
    return tuple(
        TypeRow(f'{kind} "{doc}"' if doc else str(kind), TRAVELLING.field(column), note)
        for kind, doc, note in _DOCUMENTED
        for column in [ice.NestedField(1, "x", kind, doc=doc, required=False)]
    )


_MAP = ice.MapType(1, ice.StringType(), 2, ice.LongType())
_DOCUMENTED: tuple[tuple[ice.IcebergType, str, str], ...] = (
    *((kind(), "", "") for kind in (*SIMPLE, *_PLAIN)),
    (ice.GeometryType(), "", "WKB"),
    (ice.GeographyType(), "", "WKB"),
    *((ice.StringType(), doc, "") for doc in COMMENTS.values()),
    (ice.FixedType(16), "", ""),
    (ice.DecimalType(18, 4), "", ""),
    (ice.ListType(1, ice.LongType(), element_required=False), "", ""),
    (ice.StructType(ice.NestedField(1, "a", ice.LongType(), required=False)), "", ""),
    (_MAP, "", "an object whose keys are the keys as text"),
)
