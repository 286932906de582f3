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
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from dataflow_assets.connectors.postgresql.client import Driver, Link
from dataflow_assets.contracts import (
    DIGITS,
    HAS_DEFAULT,
    INFINITE,
    KEY,
    KIND,
    LOOSE,
    MAX_LENGTH,
    NO_NUL,
)
from dataflow_assets.errors import PermanentError

TYPE = b"dataflow.postgresql.type"
DRIVER = b"dataflow.postgresql.driver"
SHAPE = b"dataflow.postgresql.shape"
OID = b"dataflow.postgresql.oid"
DEFERRED = b"dataflow.postgresql.deferred"
PARSED = b"dataflow.postgresql.parsed"
"""Of a column of text: the base type in which PostgreSQL reads it; missing: text or JSON."""
COMPARED = b"dataflow.postgresql.compared"
"""Of a column: the type whose values can be compared without the server; missing otherwise."""
EQUALS = b"dataflow.postgresql.equals"
"""Of a key's column: the operator by which its unique index finds values equal."""

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
_EXACT = frozenset({"text", "varchar", "numeric"})
"""Types, beside those of _ARROW, whose values are equal only where they are written alike, or where
they are equal numbers."""
_WITH_DIGITS = frozenset({"numeric", "time", "timestamp", "timestamptz"})
_MODIFIER = re.compile(r"\((-?\d+)(?:,(-?\d+))?\)")
_BINARY = frozenset({*_ARROW, *_TEXT, *_KINDS, "uuid"})

_FIND = """
SELECT c.oid::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p', 'f', 'v')
"""
_FOREIGN = """
WITH RECURSIVE tree AS (
    SELECT $1::oid AS oid
  UNION
    SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.oid
)
SELECT min(c.oid::regclass::text) FROM tree JOIN pg_class c USING (oid) WHERE c.relkind = 'f'
"""
TYPE_NAME = """
       CASE WHEN s.nspname = 'pg_catalog' OR (t.typname = 'citext' AND t.typtype = 'b')
            THEN t.typname::text ELSE s.nspname || '.' || t.typname END"""
"""SQL for the name by which a type is known here, from `pg_type t` and its `pg_namespace s`. A type
that a user made may have the name of a built-in one, and is none: its name has its schema."""
# The chain of a domain ends at its base type; the outermost length limit counts.
_COLUMNS = f"""
WITH RECURSIVE chain AS (
    SELECT a.attnum, a.atttypid AS type, a.atttypmod AS mod, a.attnotnull AS required
    FROM pg_attribute a WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT chain.attnum, t.typbasetype,
           CASE WHEN chain.mod >= 0 THEN chain.mod ELSE t.typtypmod END,
           chain.required OR t.typnotnull
    FROM chain JOIN pg_type t ON t.oid = chain.type WHERE t.typtype = 'd'
)
SELECT a.attname, {TYPE_NAME},
       t.typtype::text, format_type(chain.type, chain.mod),
       chain.mod, chain.required, a.atthasdef OR a.attidentity <> '',
       EXISTS (SELECT FROM pg_type e WHERE e.oid = t.typelem AND e.typarray = t.oid),
       COALESCE((SELECT c.collisdeterministic FROM pg_collation c WHERE c.oid = a.attcollation),
                true)
FROM chain
JOIN pg_type t ON t.oid = chain.type AND t.typtype <> 'd'
JOIN pg_namespace s ON s.oid = t.typnamespace
JOIN pg_attribute a ON a.attrelid = $1::oid AND a.attnum = chain.attnum
WHERE a.attgenerated = '' AND a.attidentity <> 'a'
ORDER BY a.attnum
"""  # noqa: S608 - our own text
# Only such an index can decide ON CONFLICT: unique, immediate, whole, of plain columns. Each column
# comes with the operator of its equality, and whether that is the one which the column itself has.
_UNIQUE = """
SELECT i.indisprimary, (
    SELECT json_agg(json_build_array(
        a.attname, format('OPERATOR(%I.%s)', n.nspname, o.oprname),
        EXISTS (SELECT FROM pg_opclass d JOIN pg_amop e ON e.amopfamily = d.opcfamily
                WHERE d.opcdefault AND d.opcmethod = c.opcmethod AND d.opcintype = c.opcintype
                AND e.amopopr = m.amopopr AND e.amopstrategy = 3)
        AND (k.coll = a.attcollation OR NOT EXISTS (
            SELECT FROM pg_collation l
            WHERE l.oid IN (k.coll, a.attcollation) AND NOT l.collisdeterministic))
    ) ORDER BY k.ord)
    FROM unnest(i.indkey::int2[], i.indcollation::oid[], i.indclass::oid[])
        WITH ORDINALITY AS k (attnum, coll, class, ord)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    JOIN pg_opclass c ON c.oid = k.class
    JOIN pg_amop m ON m.amopfamily = c.opcfamily AND m.amopstrategy = 3
        AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype
    JOIN pg_operator o ON o.oid = m.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace
    WHERE k.ord <= i.indnkeyatts)::text
FROM pg_index i
WHERE i.indrelid = $1::oid AND i.indisunique AND i.indimmediate AND i.indisvalid
  AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indisprimary DESC, i.indexrelid
"""
# No md5: servers in FIPS mode refuse it.
_SHAPE = """(
    SELECT coalesce(hashtextextended(
        string_agg(concat_ws(' ', attnum, atttypid, atttypmod), ',' ORDER BY attnum), 0)::text, '')
    FROM pg_attribute WHERE attrelid = {} AND attnum > 0 AND NOT attisdropped)"""
_DEFERRED = "SELECT EXISTS (SELECT FROM pg_constraint WHERE conrelid = $1::oid AND condeferred)"


@dataclass(frozen=True)
class Column:
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
        if self._is_loose:
            metadata[LOOSE] = b"1"
        if (digits := self._digits) is not None:
            metadata[DIGITS] = str(digits).encode()
        if self.deterministic:
            metadata[COMPARED] = b"enum" if self.enum else self.base.encode()
        arrow = _ARROW.get(self.base, pa.string())
        return pa.field(self.name, arrow, nullable=not self.required, metadata=metadata)

    @property
    def _is_loose(self) -> bool:
        """Whether texts that differ may be stored as equal ones."""
        exact = self.enum or self.base in _ARROW or self.base in _EXACT
        return not exact or not self.deterministic

    @property
    def _digits(self) -> int | None:
        """Behind the point, or of a second; None: all that the type has."""
        found = _MODIFIER.search(self.declared)
        if found is None or self.base not in _WITH_DIGITS:
            return None
        return int(found[2] or 0) if self.base == "numeric" else int(found[1])

    @property
    def binary(self) -> bool:
        """True when binary COPY can write what the decoders deliver."""
        return self.enum or self.base in _BINARY


@dataclass(frozen=True)
class Unique:
    """An index that can tell which rows have the same key."""

    equals: Mapping[str, str]
    """By column the operator of its equality."""
    alike: bool = True
    """False: it compares by another collation or operator than its columns do."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its columns."""
        return tuple(self.equals)


@dataclass(frozen=True)
class Table:
    """The target as of now. `oid` tells a recreated table from the old one."""

    oid: str
    columns: tuple[Column, ...]
    unique: tuple[Unique, ...]
    primary: tuple[str, ...]
    deferred: bool
    """A constraint is checked at COMMIT unless told otherwise: too late to find the row."""
    foreign: str | None = None
    """A foreign table: this one, or one of its partitions."""
    shape: str = ""
    """A digest of the numbers and types of its columns: others after an ALTER TABLE."""

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
            SHAPE: self.shape.encode(),
            DRIVER: self.driver.encode(),
            KEY: json.dumps(key).encode(),
            DEFERRED: b"1" if self.deferred else b"0",
        }
        equals = self._equals(key)
        fields = [
            column.field.with_metadata({**column.field.metadata, **equals.get(column.name, {})})
            for column in self.columns
        ]
        return pa.schema(fields, metadata)

    def check(self) -> None:
        """Raises PermanentError where rows and checkpoint would not be one commit."""
        if self.foreign:
            raise PermanentError(
                f"{self.foreign} is a foreign table: its rows are committed on another server, "
                "before the checkpoint and not with it, so that a crash could store them twice; "
                "name that server in connectionString, and the table as it is called there"
            )

    def _equals(self, key: tuple[str, ...]) -> dict[str, dict[bytes, bytes]]:
        found = next((one.equals for one in self.unique if set(one.names) == set(key)), {})
        return {name: {EQUALS: operator.encode()} for name, operator in found.items()}


def find(link: Link, schema: str, name: str) -> Table | None:
    """The table, or None while there is none."""
    found = link.execute(_FIND, schema, name)
    return _describe(link, found[0][0]) if found else None


def _describe(link: Link, oid: str) -> Table:
    # Before the columns: an ALTER TABLE in between is then noticed by the writers.
    ((shape,),) = link.execute(f"SELECT {shape_sql('$1::oid')}", oid)
    columns = tuple(
        Column(name, base, kind == "e", *others)
        for name, base, kind, *others in link.execute(_COLUMNS, oid)
    )
    indexes = [(primary, _unique(found)) for primary, found in link.execute(_UNIQUE, oid)]
    primaries = [index.names for primary, index in indexes if primary]
    unique = tuple(index for _, index in indexes)
    ((deferred,),) = link.execute(_DEFERRED, oid)
    ((foreign,),) = link.execute(_FOREIGN, oid)
    return Table(oid, columns, unique, primaries[0] if primaries else (), deferred, foreign, shape)


def _unique(text: str) -> Unique:
    """An index as `_UNIQUE` describes it."""
    columns = json.loads(text)
    equals = {name: operator for name, operator, _ in columns}
    return Unique(equals, all(alike for _, _, alike in columns))


def shape_sql(table: str) -> str:
    """The digest of a table's columns as an expression; `table`: the expression of its oid."""
    return _SHAPE.format(table)


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


def shape_of(schema: pa.Schema) -> str:
    """The digest of the columns that a ticket's rows are made for."""
    shape: bytes = schema.metadata[SHAPE]
    return shape.decode()
