"""PostgreSQL's types and the Arrow types that they travel as: for source, sink and frames."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from dataflow_assets.contracts import Kind


@dataclass(frozen=True)
class Reading:
    """How the values of a type are read: in its send format, or after a cast on the server.

    `skip`: bytes of the send format before the value (jsonb's version).
    """

    arrow: pa.DataType
    kind: Kind | None = None
    cast: str = ""
    skip: int = 0


TEXT = Reading(pa.string(), Kind.TEXT, "text")
READINGS: dict[str, Reading] = {
    "bool": Reading(pa.bool_()),
    "int2": Reading(pa.int16()),
    "int4": Reading(pa.int32()),
    "int8": Reading(pa.int64()),
    "oid": Reading(pa.int64(), cast="int8"),
    "float4": Reading(pa.float32()),
    "float8": Reading(pa.float64()),
    "numeric": Reading(pa.string(), Kind.NUMERIC, "text"),
    "text": Reading(pa.string()),
    "varchar": Reading(pa.string()),
    "bpchar": Reading(pa.string()),
    "name": Reading(pa.string()),
    "citext": Reading(pa.string(), cast="text"),
    "bytea": Reading(pa.binary()),
    "date": Reading(pa.date32()),
    "time": Reading(pa.time64("us")),
    "timestamp": Reading(pa.timestamp("us")),
    "timestamptz": Reading(pa.timestamp("us", "UTC")),
    "json": Reading(pa.string(), Kind.JSON),
    "jsonb": Reading(pa.string(), Kind.JSON, skip=1),
    "uuid": Reading(pa.string(), Kind.UUID, "text"),
}
"""By the base type's own name; enums, ranges, composites and all others are text of KIND text.

A type that a user made has its schema in front of its name, so that none is taken for these."""
ARROW = {
    name: one.arrow for name, one in READINGS.items() if one.arrow != pa.string() and not one.cast
}
"""The types that Arrow has, too."""
