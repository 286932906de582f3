"""The target table as PostgreSQL's catalogue describes it.

One column that binary COPY cannot serve makes the table's link the text one: rows and checkpoint
share one session.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from dataflow_assets.connectors.postgresql.client import Driver, Link, Row
from dataflow_assets.connectors.postgresql.table import durability
from dataflow_assets.connectors.postgresql.table.column import PostgresqlColumn
from dataflow_assets.connectors.postgresql.table.inner_times import Way, inner_times
from dataflow_assets.contracts import Note

DRIVER = b"dataflow.postgresql.driver"
SHAPE = b"dataflow.postgresql.shape"
PARTITIONED = b"dataflow.postgresql.partitioned"
OID = b"dataflow.postgresql.oid"
DEFERRED = b"dataflow.postgresql.deferred"
JUDGED = b"dataflow.postgresql.judged"
EQUALS = b"dataflow.postgresql.equals"
"""Of a key's column: the operator by which its unique index finds values equal."""

_FIND = """
SELECT c.oid::text, c.relkind = 'p' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p', 'f', 'v')
"""
TYPE_NAME = """
       CASE WHEN s.nspname = 'pg_catalog' OR (t.typname = 'citext' AND t.typtype = 'b')
            THEN t.typname::text ELSE s.nspname || '.' || t.typname END"""
"""SQL for the name by which a type is known here, from `pg_type t` and its `pg_namespace s`. A type
that a user made may have the name of a built-in one, and is none: its name has its schema."""
_IS_ARRAY = "EXISTS (SELECT FROM pg_type e WHERE e.oid = t.typelem AND e.typarray = t.oid)"
# The chain of a domain ends at its base type; the outermost length limit counts. Behind an array
# comes the type of its elements, which may be a domain again.
_COLUMNS = f"""
WITH RECURSIVE chain AS (
    SELECT a.attnum, false AS element, a.atttypid AS type, a.atttypmod AS mod,
           a.attnotnull AS required
    FROM pg_attribute a WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
    SELECT chain.attnum, chain.element OR t.typtype <> 'd',
           CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END,
           CASE WHEN chain.mod >= 0 THEN chain.mod ELSE t.typtypmod END,
           chain.required OR t.typnotnull
    FROM chain JOIN pg_type t ON t.oid = chain.type
    WHERE t.typtype = 'd' OR (NOT chain.element AND {_IS_ARRAY})
)
SELECT chain.element, a.attname, {TYPE_NAME},
       t.typtype::text, format_type(chain.type, chain.mod),
       chain.mod, chain.required, a.atthasdef OR a.attidentity <> '',
       {_IS_ARRAY},
       COALESCE((SELECT c.collisdeterministic FROM pg_collation c WHERE c.oid = a.attcollation),
                true), t.typdelim::text
FROM chain
JOIN pg_type t ON t.oid = chain.type AND t.typtype <> 'd'
JOIN pg_namespace s ON s.oid = t.typnamespace
JOIN pg_attribute a ON a.attrelid = $1::oid AND a.attnum = chain.attnum
WHERE a.attgenerated = '' AND a.attidentity <> 'a'
ORDER BY a.attnum, chain.element DESC
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
    FROM pg_attribute WHERE attrelid = {table} AND attnum > 0 AND NOT attisdropped)
|| (SELECT relpersistence::text FROM pg_class WHERE oid = {table})"""
# ON CONFLICT asks CHECK constraints, domains, expressions, triggers and row policies before it
# looks for the stored row.
_CONSTRAINTS = """
SELECT EXISTS (SELECT FROM pg_constraint WHERE conrelid = $1::oid AND condeferred),
  EXISTS (SELECT FROM pg_constraint WHERE contype = 'c' AND (
      conrelid = $1::oid OR conrelid IN (SELECT relid FROM pg_partition_tree($1::oid))))
  OR EXISTS (SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
             WHERE a.attrelid = $1::oid AND a.attnum > 0
             AND (t.typtype = 'd' OR a.attgenerated <> ''))
  OR row_security_active($1::oid)
  OR EXISTS (SELECT FROM pg_trigger WHERE tgrelid = $1::oid AND NOT tgisinternal
             AND tgtype & 7 = 7)
"""


@dataclass(frozen=True)
class Unique:
    """An index that can tell which rows have the same key."""

    equals: Mapping[str, str]
    """By column the operator of its equality."""
    alike: bool = True
    """False: it compares by another collation or operator than its columns do."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.equals)


@dataclass(frozen=True)
class PostgresqlTable:
    """The target as of now. `oid` tells a recreated table from the old one."""

    oid: str
    columns: tuple[PostgresqlColumn, ...]
    unique: tuple[Unique, ...]
    primary: tuple[str, ...]
    deferred: bool
    """A constraint is checked at COMMIT unless told otherwise: too late to find the row."""
    judged: bool = False
    """A new row may be refused, or changed, for values that it lacks."""
    weakness: str | None = None
    """Why its rows, or those of one of its partitions, do not last as the checkpoint does."""
    shape: str = ""
    """A digest of its columns and of how its rows are kept: another one after an ALTER TABLE."""
    partitioned: bool = False

    @property
    def driver(self) -> Driver:
        return "binary" if all(column.binary for column in self.columns) else "text"

    def schema(self, key: tuple[str, ...]) -> pa.Schema:
        """The columns in Arrow; what the writers need to know travels in the metadata."""
        metadata = {
            Note.NO_NUL: b"1",
            OID: self.oid.encode(),
            SHAPE: self.shape.encode(),
            PARTITIONED: b"1" if self.partitioned else b"0",
            DRIVER: self.driver.encode(),
            Note.KEY: json.dumps(key).encode(),
            DEFERRED: b"1" if self.deferred else b"0",
            JUDGED: b"1" if self.judged else b"0",
        }
        equals = self._equals(key)
        fields = [
            column.field.with_metadata({**column.field.metadata, **equals.get(column.name, {})})
            for column in self.columns
        ]
        return pa.schema(fields, metadata)

    def check(self) -> None:
        """Raises PermanentError where rows and checkpoint would not be one commit."""
        durability.check(self.weakness)

    def _equals(self, key: tuple[str, ...]) -> dict[str, dict[bytes, bytes]]:
        equals = next((one.equals for one in self.unique if set(one.names) == set(key)), {})
        return {name: {EQUALS: operator.encode()} for name, operator in equals.items()}


def find(link: Link, schema: str, name: str) -> PostgresqlTable | None:
    """The table, or None while there is none."""
    rows = link.execute(_FIND, schema, name)
    return _describe(link, *rows[0]) if rows else None


def _describe(link: Link, oid: str, partitioned: bool) -> PostgresqlTable:
    # Before the columns: an ALTER TABLE in between is then noticed by the writers.
    place = "$1::oid"
    shape = _shape(place, partitioned=partitioned)
    query = f"SELECT {shape}, {durability.weakness_sql(place)}"
    ((shape, weakness),) = link.execute(query, oid)
    described = link.execute(_COLUMNS, oid)
    times = inner_times(link, oid) if any(row[3] == "c" for row in described) else {}
    columns = tuple(_columns(described, times))
    indexes = [(primary, _unique(name_rows)) for primary, name_rows in link.execute(_UNIQUE, oid)]
    primaries = [index.names for primary, index in indexes if primary]
    unique = tuple(index for _, index in indexes)
    ((deferred, judged),) = link.execute(_CONSTRAINTS, oid)
    primary = primaries[0] if primaries else ()
    return PostgresqlTable(
        oid, columns, unique, primary, deferred, judged, weakness, shape, partitioned
    )


def _columns(rows: Sequence[Row], times: Mapping[str, Sequence[Way]]) -> Iterator[PostgresqlColumn]:
    """An array's column comes behind a row for its elements."""
    element = None
    for inside, name, base, kind, *others, delimiter in rows:
        ways = [way[1:] if inside else way for way in times.get(name, ())]
        column = PostgresqlColumn(name, base, kind == "e", *others)
        column = replace(column, element=element, times=tuple(ways), delimiter=delimiter)
        element = column if inside else None
        if not inside:
            yield column


def _unique(text: str) -> Unique:
    columns = json.loads(text)
    equals = {name: operator for name, operator, _ in columns}
    return Unique(equals, all(alike for _, _, alike in columns))


def shape_sql(schema: pa.Schema, table: str) -> str:
    """What of a ticket's table must not change, as an expression; `table`: that of its oid."""
    return _shape(table, partitioned=schema.metadata[PARTITIONED] == b"1")


def _shape(table: str, *, partitioned: bool) -> str:
    """Partitions come and go: what they are costs another look."""
    weakness = f" || coalesce({durability.weakness_sql(table)}, '')" if partitioned else ""
    return f"{_SHAPE.format(table=table)}{weakness}"


def driver_of(schema: pa.Schema) -> Driver:
    """The link that a ticket's schema asks for."""
    return "text" if schema.metadata[DRIVER] == b"text" else "binary"


def key_of(schema: pa.Schema) -> tuple[str, ...]:
    """The key that a ticket's schema carries; empty for append."""
    return tuple(json.loads(schema.metadata[Note.KEY]))


def oid_of(schema: pa.Schema) -> str:
    """Which table a ticket was made for."""
    oid: bytes = schema.metadata[OID]
    return oid.decode()


def shape_of(schema: pa.Schema) -> str:
    """The digest of the columns that a ticket's rows are made for."""
    shape: bytes = schema.metadata[SHAPE]
    return shape.decode()
