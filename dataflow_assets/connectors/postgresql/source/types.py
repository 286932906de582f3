"""PostgreSQL's types in Arrow, as a source reads them.

What Arrow has no type for travels as PostgreSQL's own text under a KIND, which the same type reads
back without loss. Arrays are lists; those of other dimensions than declared travel as JSON.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pyarrow as pa

from dataflow_assets.connectors.postgresql.table.column import TYPE
from dataflow_assets.connectors.postgresql.types import READINGS, TEXT
from dataflow_assets.contracts import Note, TypeRow
from dataflow_assets.sdk.types.table import TypeRule, typed_field

_DIGITS = re.compile(r"numeric\((\d+),(\d+)\)")
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
    def reading(self) -> TypeRule:
        """Returns how its values are read; an array as JSON of its elements' texts."""
        if self.element is None:
            return READINGS.get(self.base, TEXT)
        inner = READINGS.get(self.element or "", TEXT)
        list_type = pa.list_(typed_field("item", inner.arrow, inner.kind))
        for _ in range(self.dimensions - 1):
            list_type = pa.list_(list_type)
        return replace(TEXT, cast="text[]", arrow=list_type)

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


def select_expression(expression: str, kind: TypeOf) -> str:
    """Returns what to select of a column of this type."""
    cast = kind.reading.cast
    if kind.element is not None:
        return f"to_json({expression}::{cast})::text"
    return f"{expression}::{cast}" if cast else expression


def type_rows() -> tuple[TypeRow, ...]:
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
