"""What a source reads, as the server describes it now: a table or a query, its columns, its order.

The change column may be a pair: where `updated_at` is null, `created_at` counts.
It is asked for as two conditions and not as COALESCE, so that an index on `updated_at` serves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dataflow_assets.connectors.postgresql.client import TextLink, qualified, quote
from dataflow_assets.connectors.postgresql.options import PostgresqlSourceOptions
from dataflow_assets.connectors.postgresql.source.types import TypeOf
from dataflow_assets.connectors.postgresql.table.access import absent
from dataflow_assets.connectors.postgresql.table.table import TYPE_NAME
from dataflow_assets.sdk.free_names import free_stem

TIMES = frozenset({"timestamp", "timestamptz"})
_ROUNDING = TIMES | {"numeric"}

# A standby that is read may be far behind; its own clock is the one that counts.
_IDENTITY = """
SELECT d.oid::text, to_regclass($1::text)::oid::text FROM pg_database d
WHERE d.datname = current_database()
"""
_COLUMNS = """
SELECT attname, atttypid::text, atttypmod, attnotnull, attndims
FROM pg_attribute WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
# With pg_catalog alone on the search path, format_type names every other schema. A log may tell of
# a type that was dropped since: its values are read as texts.
_TYPES = f"""
WITH RECURSIVE asked AS (
    SELECT n::int AS n, (e->>0)::oid AS type, (e->>1)::int AS mod
    FROM json_array_elements($1::json) WITH ORDINALITY AS a (e, n)
), chain AS (
    SELECT n, type, mod FROM asked
  UNION ALL
    SELECT chain.n, t.typbasetype, t.typtypmod
    FROM chain JOIN pg_type t ON t.oid = chain.type WHERE t.typtype = 'd'
)
SELECT coalesce({TYPE_NAME}, ''), CASE WHEN t.oid IS NULL THEN 'text'
       ELSE format_type(asked.type, asked.mod) END, e.oid::text,
       coalesce(t.typdelim::text, ',')
FROM asked
LEFT JOIN (chain JOIN pg_type t ON t.oid = chain.type AND t.typtype <> 'd') USING (n)
LEFT JOIN pg_namespace s ON s.oid = t.typnamespace
LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid
ORDER BY n
"""  # noqa: S608 - our own text
# The search path is set for one statement: inside of a transaction the caller keeps its own.
_ALONE = "BEGIN READ ONLY", "COMMIT"
_INSIDE = (
    "SAVEPOINT dataflow_types",
    "ROLLBACK TO SAVEPOINT dataflow_types; RELEASE SAVEPOINT dataflow_types",
)
_INDEXED = """
SELECT EXISTS (
    SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = $1::oid AND i.indisvalid AND i.indpred IS NULL AND a.attname = $2)
"""


@dataclass(frozen=True)
class SourceColumn:
    """One column of what is read."""

    name: str
    type: TypeOf
    required: bool

    @property
    def compared_as(self) -> str:
        """The type of a value that is compared with the column's.

        Without the column's own precision, to which the value would be rounded.
        """
        return self.type.base if self.type.base in _ROUNDING else self.type.declared


@dataclass(frozen=True)
class Relation:
    """What is read. `base`: what stands behind FROM. `oid`: of the table; None for a query."""

    base: str
    columns: tuple[SourceColumn, ...]
    order: SourceColumn | None
    changes: tuple[SourceColumn, ...]
    """The change column, and the one that counts where it is null; none: the order alone tells."""
    oid: str | None = None

    @property
    def alias(self) -> str:
        """The beginning of aliases, where ORDER BY must mean the columns themselves."""
        return free_stem((column.name for column in self.columns), "__dataflow_result")

    @property
    def ranked(self) -> tuple[SourceColumn, ...]:
        """The columns of which one must have a value for a row to have a place in the order."""
        return self.changes or ((self.order,) if self.order else ())

    @property
    def tracked(self) -> SourceColumn | None:
        """The first column of the order of changes."""
        return self.ranked[0] if self.ranked else None

    def column(self, name: str) -> SourceColumn | None:
        return next((column for column in self.columns if column.name == name), None)

    @property
    def times(self) -> tuple[SourceColumn, SourceColumn] | None:
        """`created_at` and `updated_at`, where both are times."""
        found = self.column("created_at"), self.column("updated_at")
        both = [one for one in found if one is not None and one.type.base in TIMES]
        return (both[0], both[1]) if len(both) == 2 else None


def identity(link: TextLink, source: PostgresqlSourceOptions) -> tuple[str, str | None]:
    """The ids of the database and of the table; of a query and of a missing table None."""
    place = qualified(*source.place()) if source.names_table and not source.query else None
    ((database, oid),) = link.execute(_IDENTITY, place)
    return database, oid


def describe(link: TextLink, source: PostgresqlSourceOptions) -> Relation:
    """The source's relation as of now. Raises PermanentError where it cannot be read this way."""
    if source.query:
        base, oid = source.bare_query(), None
        described = link.describe(f"SELECT * FROM {base} LIMIT 0")  # noqa: S608
        columns = typed(link, [(name, kind, mod, False, 0) for name, kind, mod in described])
    else:
        base = qualified(*source.place())
        oid = identity(link, source)[1]
        if oid is None:
            raise absent(link, source)
        columns = typed(link, link.execute(_COLUMNS, oid))
    found = {column.name: column for column in columns}
    if source.verbatim:
        return Relation(base, columns, None, (), oid)
    return Relation(base, columns, source.order_column(found), _changes(source, found), oid)


def is_indexed(link: TextLink, relation: Relation) -> bool:
    """Whether an index begins with the order column; True for queries, of which nobody knows."""
    if relation.oid is None or relation.order is None:
        return True
    ((indexed,),) = link.execute(_INDEXED, relation.oid, relation.order.name)
    return bool(indexed)


def _changes(
    source: PostgresqlSourceOptions, found: Mapping[str, SourceColumn]
) -> tuple[SourceColumn, ...]:
    change = source.change_column(found)
    if change is None:
        return ()
    created = found.get("created_at")
    coalesced = change.name == "updated_at" and not change.required
    if coalesced and created is not None and created.type.base == change.type.base:
        return change, created
    return (change,)


def typed(
    link: TextLink, rows: Sequence[tuple[str, str, int, bool, int]]
) -> tuple[SourceColumn, ...]:
    """Columns by name, oid of the type, its modifier, whether null is refused, dimensions."""
    types = _types(link, [(oid, mod) for _, oid, mod, _, _ in rows])
    inner = _types(link, [(element or "0", -1) for *_, element, _ in types if element])
    names = iter([base for base, *_ in inner])
    found = []
    for (name, _, _, required, dimensions), (base, declared, element, delimiter) in zip(
        rows, types, strict=True
    ):
        kind = TypeOf(base, declared)
        if element:
            kind = TypeOf(base, declared, next(names), dimensions, delimiter)
        found.append(SourceColumn(name, kind, required))
    return tuple(found)


def _types(
    link: TextLink, asked: Sequence[tuple[str, int]]
) -> list[tuple[str, str, str | None, str]]:
    if not asked:
        return []
    begin, end = _ALONE if link.at_rest else _INSIDE
    link.execute(begin)
    link.execute("SELECT set_config('search_path', 'pg_catalog', true)")
    found = link.execute(_TYPES, json.dumps(list(asked)))
    link.execute(end)
    return [(base, declared, element, delimiter) for base, declared, element, delimiter in found]


def quoted(column: SourceColumn) -> str:
    return quote(column.name)
