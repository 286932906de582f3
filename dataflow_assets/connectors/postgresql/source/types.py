"""PostgreSQL's types in Arrow, as a source reads them.

What Arrow has no type for travels as PostgreSQL's own text under a KIND, which the same type reads
back without loss. Arrays are lists; those of other dimensions than declared travel as JSON.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pyarrow as pa

from dataflow_assets.connectors.postgresql.table.column import TYPE
from dataflow_assets.contracts import Kind, Note, TypeRow


@dataclass(frozen=True)
class Reading:
    """How the values of a type are read: in its send format, or after a cast on the server.

    `skip`: bytes of the send format before the value (jsonb's version).
    """

    arrow: pa.DataType
    kind: Kind | None = None
    cast: str = ""
    skip: int = 0


_DIGITS = re.compile(r"numeric\((\d+),(\d+)\)")
_TEXT = Reading(pa.string(), Kind.TEXT, "text")
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

OTHERS = {
    "timetz": "time with time zone",
    "interval": "interval",
    "inet": "inet",
    "cidr": "cidr",
    "macaddr": "macaddr",
    "bit": "bit(8)",
    "varbit": "bit varying",
    "money": "money",
    "xml": "xml",
    "point": "point",
    "tsvector": "tsvector",
    "int4range": "int4range",
    "int4multirange": "int4multirange",
}
"""What is read by its text, each proved by a test; so is whatever else there is."""
OWN = ("an enum", "a composite")


@dataclass(frozen=True)
class TypeOf:
    """A column's type, domains taken off.

    `declared`: as one would declare the column, domain and length included. `element`: the type
    name inside an array, with its declared number of `dimensions`; 0: the server does not know it,
    of a domain, or of a column that `CREATE TABLE AS` has made.
    """

    base: str
    declared: str
    element: str | None = None
    dimensions: int = 0
    delimiter: str = ","
    """Between the elements of an array."""

    @property
    def reading(self) -> Reading:
        """Returns how its values are read; an array as JSON of its elements' texts."""
        if self.element is None:
            return READINGS.get(self.base, _TEXT)
        return replace(_TEXT, cast="text[]", arrow=self._list())

    @property
    def field_type(self) -> pa.DataType:
        return self.reading.arrow

    def field(self, name: str) -> pa.Field:
        """A column of this type; a sink of PostgreSQL finds the declared type in the metadata."""
        metadata = {TYPE: (self.declared + "[]" * (self.dimensions - 1)).encode()}
        if self.element is None and self.reading.kind:
            metadata |= self.reading.kind.mark
            if digits := _DIGITS.fullmatch(self.declared):
                metadata[Note.DECIMAL] = ",".join(digits.groups()).encode()
        return pa.field(name, self.reading.arrow, metadata=metadata)

    def _list(self) -> pa.DataType:
        inner = READINGS.get(self.element or "", _TEXT)
        item = pa.field("item", inner.arrow, metadata=inner.kind.mark if inner.kind else None)
        found = pa.list_(item)
        for _ in range(self.dimensions - 1):
            found = pa.list_(found)
        return found


def selected(expression: str, kind: TypeOf) -> str:
    """Returns what to select of a column of this type."""
    cast = kind.reading.cast
    if kind.element is not None:
        return f"to_json({expression}::{cast})::text"
    return f"{expression}::{cast}" if cast else expression


def listed() -> tuple[TypeRow, ...]:
    """Every type that is read, for docs/types.md."""
    rows = [TypeRow(name, TypeOf(name, name).field(name)) for name in READINGS]
    arrays = (("int4[]", "int4", 1), ("numeric[]", "numeric", 1), ("text[][]", "text", 2))
    dimensions = (
        "values of other dimensions than the column declares travel as JSON: a target with lists "
        "of one depth rejects them; elements are counted from 1 in the target, also where the "
        "array begins elsewhere (`[0:1]={1,2}`); in JSON null is NULL"
    )
    rows += [
        TypeRow(name, TypeOf(f"_{element}", name, element, depth).field("a"), dimensions)
        for name, element, depth in arrays
    ]
    rows += [TypeRow(name, TypeOf(name, text).field(name)) for name, text in OTHERS.items()]
    rows += [TypeRow(name, TypeOf("", "").field("own"), "and all other types") for name in OWN]
    return (*rows, TypeRow("a domain", TypeOf("text", "").field("d"), "as its base type"))
