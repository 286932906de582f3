"""PostgreSQL's types and the Arrow types that they travel as: for source, sink and frames."""

from __future__ import annotations

import pyarrow as pa

from dataflow_assets.contracts import Kind
from dataflow_assets.sdk.types.table import TypeRule

TEXT = TypeRule((), pa.string(), Kind.TEXT, "text")
RULES = (
    TypeRule(("bool",), pa.bool_()),
    TypeRule(("int2",), pa.int16()),
    TypeRule(("int4",), pa.int32()),
    TypeRule(("int8",), pa.int64()),
    TypeRule(("oid",), pa.int64(), cast="int8"),
    TypeRule(("float4",), pa.float32()),
    TypeRule(("float8",), pa.float64()),
    TypeRule(("numeric",), pa.string(), Kind.NUMERIC, "text"),
    TypeRule(("text", "varchar", "bpchar", "name"), pa.string()),
    TypeRule(("citext",), pa.string(), cast="text"),
    TypeRule(("bytea",), pa.binary()),
    TypeRule(("date",), pa.date32()),
    TypeRule(("time",), pa.time64("us")),
    TypeRule(("timestamp",), pa.timestamp("us")),
    TypeRule(("timestamptz",), pa.timestamp("us", "UTC")),
    TypeRule(("json", "jsonb"), pa.string(), Kind.JSON),
    TypeRule(("uuid",), pa.string(), Kind.UUID, "text"),
)
READINGS = {name: rule for rule in RULES for name in rule.names}
"""By the base type's own name; enums, ranges, composites and all others are like TEXT.

A type that a user made has its schema in front of its name, so that none is taken for these."""
ARROW = {
    name: one.arrow for name, one in READINGS.items() if one.arrow != pa.string() and not one.cast
}
"""The types that Arrow has, too."""
