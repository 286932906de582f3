"""The target table as PostgreSQL's catalogue describes it, and its columns in Arrow.

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

A domain counts as its base type. One column that binary COPY cannot serve makes the table's link
the text one: rows and checkpoint share one session.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa

from dataflow_assets.connectors.postgresql.link import Driver, Link, qualified
from dataflow_assets.contracts import HAS_DEFAULT, INFINITE, KEY, KIND, MAX_LENGTH, NO_NUL

TYPE = b"dataflow.postgresql.type"
DRIVER = b"dataflow.postgresql.driver"
OID = b"dataflow.postgresql.oid"
DEFERRED = b"dataflow.postgresql.deferred"

_ARROW: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "bytea": pa.binary(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
_TEXT = frozenset({"text", "varchar", "bpchar", "name", "xml", "citext"})
_KINDS = {"json": b"json", "jsonb": b"json", "numeric": b"numeric"}
_BINARY = frozenset({*_ARROW, *_TEXT, *_KINDS, "uuid"})

_FIND = """
SELECT c.oid::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p', 'f', 'v')
"""
# The chain of a domain ends at its base type; the outermost length limit counts.
_COLUMNS = """
WITH RECURSIVE chain AS (
    SELECT a.attnum, a.atttypid AS type, a.atttypmod AS mod, a.attnotnull AS required
    FROM pg_attribute a WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT chain.attnum, t.typbasetype,
           CASE WHEN chain.mod >= 0 THEN chain.mod ELSE t.typtypmod END,
           chain.required OR t.typnotnull
    FROM chain JOIN pg_type t ON t.oid = chain.type WHERE t.typtype = 'd'
)
SELECT a.attname, t.typname, t.typtype::text, format_type(chain.type, chain.mod),
       chain.mod, chain.required, a.atthasdef OR a.attidentity <> '',
       EXISTS (SELECT FROM pg_type e WHERE e.oid = t.typelem AND e.typarray = t.oid)
FROM chain
JOIN pg_type t ON t.oid = chain.type AND t.typtype <> 'd'
JOIN pg_attribute a ON a.attrelid = $1::oid AND a.attnum = chain.attnum
WHERE a.attgenerated = '' AND a.attidentity <> 'a'
ORDER BY a.attnum
"""
# Only such an index can decide ON CONFLICT: unique, immediate, whole, of plain columns.
_UNIQUE = """
SELECT i.indisprimary, (
    SELECT json_agg(a.attname ORDER BY k.ord)
    FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, ord)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE k.ord <= i.indnkeyatts)::text
FROM pg_index i
WHERE i.indrelid = $1::oid AND i.indisunique AND i.indimmediate AND i.indisvalid
  AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indisprimary DESC, i.indexrelid
"""
_READABLE = "SELECT has_table_privilege($1::oid, 'SELECT')"
_ANY = "SELECT 1 FROM {} LIMIT 1"
_DEFERRED = "SELECT EXISTS (SELECT FROM pg_constraint WHERE conrelid = $1::oid AND condeferred)"


@dataclass(frozen=True)
class Column:
    """One column that may be written."""

    name: str
    base: str  # the base type's own name: int4, varchar
    enum: bool
    declared: str  # the base type as one would declare it: character varying(3)
    modifier: int
    required: bool
    default: bool
    array: bool = False

    @property
    def field(self) -> pa.Field:
        """The column for the decoders."""
        metadata = {TYPE: self.declared.encode()}
        if self.default:
            metadata[HAS_DEFAULT] = b"1"
        if self.base in {"varchar", "bpchar"} and self.modifier >= 4:
            metadata[MAX_LENGTH] = str(self.modifier - 4).encode()
        if self.base not in _ARROW and self.base not in _TEXT:
            metadata[KIND] = b"json" if self.array else _KINDS.get(self.base, b"text")
        arrow = _ARROW.get(self.base, pa.string())
        return pa.field(self.name, arrow, nullable=not self.required, metadata=metadata)

    @property
    def binary(self) -> bool:
        """True when binary COPY can write what the decoders deliver."""
        return self.enum or self.base in _BINARY


@dataclass(frozen=True)
class Table:
    """The target as of now. `oid` tells a recreated table from the old one."""

    oid: str
    columns: tuple[Column, ...]
    unique: tuple[tuple[str, ...], ...]
    primary: tuple[str, ...]
    deferred: bool
    """A constraint is checked at COMMIT unless told otherwise: too late to find the row."""

    @property
    def driver(self) -> Driver:
        """Which link serves this table."""
        return "binary" if all(column.binary for column in self.columns) else "text"

    def schema(self, key: tuple[str, ...]) -> pa.Schema:
        """The columns in Arrow; what the writers need to know travels in the metadata."""
        metadata = {
            NO_NUL: b"1",
            INFINITE: b"1",
            OID: self.oid.encode(),
            DRIVER: self.driver.encode(),
            KEY: json.dumps(key).encode(),
            DEFERRED: b"1" if self.deferred else b"0",
        }
        return pa.schema([column.field for column in self.columns], metadata)


def find(link: Link, schema: str, name: str) -> Table | None:
    """The table, or None while there is none."""
    found = link.execute(_FIND, schema, name)
    return _describe(link, found[0][0]) if found else None


def holds_rows(link: Link, schema: str, name: str, oid: str) -> bool:
    """Whether the table has a row; True as well for a role that may not read it."""
    if not link.execute(_READABLE, oid)[0][0]:
        return True
    return bool(link.execute(_ANY.format(qualified(schema, name))))


def _describe(link: Link, oid: str) -> Table:
    columns = tuple(
        Column(name, base, kind == "e", *others)
        for name, base, kind, *others in link.execute(_COLUMNS, oid)
    )
    indexes = [(primary, tuple(json.loads(names))) for primary, names in link.execute(_UNIQUE, oid)]
    primaries = [names for primary, names in indexes if primary]
    unique = tuple(names for _, names in indexes)
    ((deferred,),) = link.execute(_DEFERRED, oid)
    return Table(oid, columns, unique, primaries[0] if primaries else (), deferred)


def driver_of(schema: pa.Schema) -> Driver:
    """The link that a ticket's schema asks for."""
    return "text" if schema.metadata[DRIVER] == b"text" else "binary"


def key_of(schema: pa.Schema) -> tuple[str, ...]:
    """The key that a ticket's schema carries; empty for append."""
    return tuple(json.loads(schema.metadata[KEY]))


def oid_of(schema: pa.Schema) -> str:
    """Which table a ticket was made for."""
    oid: bytes = schema.metadata[OID]
    return oid.decode()
