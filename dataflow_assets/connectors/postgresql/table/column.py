"""A column of a table as PostgreSQL's catalogue describes it, and in Arrow.

| PostgreSQL | Arrow | binary COPY |
|---|---|---|
| bool, int2/4/8, float4/8, date, time, timestamp, timestamptz | the same | yes |
| text, varchar, char, name, xml, citext, enums | string | yes |
| bytea | binary | yes |
| json, jsonb | string of KIND json | yes |
| uuid | string of KIND text | yes, as its 16 bytes |
| numeric | string of KIND numeric | yes, as its groups of digits |
| arrays | string of KIND json: a JSON array, or PostgreSQL's own text in a string | no |
| all others (inet, intervals, ranges, composites, ...) | string of KIND text | no |

A domain counts as its base type.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pyarrow as pa

from dataflow_assets.connectors.postgresql.types import ARROW, READINGS
from dataflow_assets.contracts import (
    Kind,
    Note,
)

TYPE = b"dataflow.postgresql.type"
PARSED = b"dataflow.postgresql.parsed"
"""Of a column of text: the base type in which PostgreSQL reads it; missing: text or JSON."""
TIMES = b"dataflow.postgresql.times"
"""Of a column of composites: the ways to the dates and times in a value, as JSON."""
DELIMITER = b"dataflow.postgresql.delimiter"
"""Of an element of arrays: what separates it from the next one; missing: a comma."""
COMPARED = b"dataflow.postgresql.compared"
"""Of a column: the type whose values can be compared without the server; missing otherwise."""

_SCALARS = {
    "bit(1)": b"boolean",
    **dict.fromkeys(("money", "oid", "xid", "xid8", "cid"), b"number"),
}
_ENDLESS = frozenset({"date", "time", "timestamp", "timestamptz"})
_TEXT = frozenset({"text", "varchar", "bpchar", "name", "xml", "citext"})
_KINDS = {name: READINGS[name].kind for name in ("json", "jsonb", "numeric")}
_EXACT = frozenset({"text", "varchar", "numeric"})
"""Types, beside those of ARROW, whose values are equal only where they are written alike, or where
they are equal numbers."""
_WITH_DIGITS = frozenset({"numeric", "time", "timestamp", "timestamptz"})
_MODIFIER = re.compile(r"\((-?\d+)(?:,(-?\d+))?\)")
_BINARY = frozenset({*ARROW, *_TEXT, *_KINDS, "uuid"})


@dataclass(frozen=True)
class PostgresqlColumn:
    """One column that may be written."""

    name: str
    base: str  # the base type's own name: int4, varchar; with its schema where users made the type
    enum: bool
    declared: str  # the base type as one would declare it: character varying(3)
    modifier: int
    required: bool
    default: bool
    array: bool = False
    deterministic: bool = True
    """False: its collation finds texts equal that differ."""
    element: PostgresqlColumn | None = None
    """Of an array: one of its values."""
    times: tuple[tuple[int, ...], ...] = ()
    """Of a composite: the ways to the dates and times in it."""
    delimiter: str = ","
    """Between values of its type in an array."""

    @property
    def field(self) -> pa.Field:
        metadata = {TYPE: self.declared.encode(), **self._form, **self._equality}
        if self.default:
            metadata[Note.HAS_DEFAULT] = b"1"
        if (digits := self._digits) is not None:
            metadata[Note.DIGITS] = str(digits).encode()
        arrow = ARROW.get(self.base, pa.string())
        return pa.field(self.name, arrow, nullable=not self.required, metadata=metadata)

    @property
    def _form(self) -> dict[bytes, bytes]:
        """Which values it takes, and how they travel."""
        marks: dict[bytes, bytes] = {}
        if self.base in {"varchar", "bpchar"} and self.modifier >= 4:
            marks[Note.MAX_LENGTH] = str(self.modifier - 4).encode()
        if self.base not in ARROW and self.base not in _TEXT:
            marks |= (Kind.JSON if self.array else _KINDS.get(self.base) or Kind.TEXT).mark
        if self.base in _ENDLESS:
            marks[Note.INFINITE] = b"1"
        if scalars := _SCALARS.get(self.declared):
            marks[Note.SCALARS] = scalars
        if self.delimiter != ",":
            marks[DELIMITER] = self.delimiter.encode()
        if self.times:
            marks[TIMES] = json.dumps(self.times).encode()
        if self.element:
            marks[Note.ELEMENT] = pa.schema([self.element.field]).serialize().to_pybytes()
        return marks

    @property
    def _equality(self) -> dict[bytes, bytes]:
        marks: dict[bytes, bytes] = {}
        if self._is_loose:
            marks[Note.LOOSE] = b"1"
            if self.base == "bpchar" and self.deterministic:
                marks[Note.PADDED] = b"1"
        if self.deterministic:
            marks[COMPARED] = b"enum" if self.enum else self.base.encode()
        return marks

    @property
    def _is_loose(self) -> bool:
        exact = self.enum or self.base in ARROW or self.base in _EXACT
        return not exact or not self.deterministic

    @property
    def _digits(self) -> int | None:
        match = _MODIFIER.search(self.declared)
        if match is None or self.base not in _WITH_DIGITS:
            return None
        return int(match[2] or 0) if self.base == "numeric" else int(match[1])

    @property
    def binary(self) -> bool:
        """True when binary COPY can write what the decoders deliver."""
        return self.enum or self.base in _BINARY
