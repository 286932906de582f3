"""The table or query that a source reads, as the server describes it now, and its order.

The change column may be a pair: where `updated_at` is null, `created_at` counts.
It is asked for as two conditions and not as COALESCE, so that an index on `updated_at` serves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from typing_extensions import override

from dataflow_assets.connectors.postgresql.client import TextLink, qualified_name, quote
from dataflow_assets.connectors.postgresql.options import PostgresqlSourceOptions
from dataflow_assets.connectors.postgresql.source.types import TypeOf, select_expression
from dataflow_assets.connectors.postgresql.table.access import missing_table_error
from dataflow_assets.connectors.postgresql.table.table import TYPE_NAME
from dataflow_assets.sdk.sql_table import SqlColumn, SqlRelation

TIMES = frozenset({"timestamp", "timestamptz"})
_DIGITS = 6  # of a second
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


@dataclass(frozen=True)
class SourceColumn(SqlColumn):
    """One column of what is read."""

    name: str
    type: TypeOf
    required: bool

    @property
    @override
    def sql(self) -> str:
        return quote(self.name)

    @property
    @override
    def type_name(self) -> str:
        return self.type.declared

    @property
    @override
    def selection(self) -> str:
        return select_expression(self.sql, self.type)

    @override
    def field(self, name: str) -> pa.Field:
        return self.type.field(name)

    @property
    @override
    def nullable(self) -> bool:
        return not self.required

    @property
    @override
    def digits(self) -> int | None:
        return 0 if self.is_day else _DIGITS if self.type.base in TIMES else None

    @property
    @override
    def is_day(self) -> bool:
        return self.type.base == "date"

    @property
    @override
    def is_zoned(self) -> bool:
        return self.type.base == "timestamptz"

    @override
    def text(self, expression: str) -> str:
        return f"{expression}::text"

    @property
    def compared_as(self) -> str:
        """The type of a value that is compared with the column's.

        Without the column's own precision, to which the value would be rounded.
        """
        return self.type.base if self.type.base in _ROUNDING else self.type.declared


Relation: TypeAlias = SqlRelation[SourceColumn]


def identity(link: TextLink, source: PostgresqlSourceOptions) -> tuple[str, str | None]:
    """The ids of the database and of the table; of a query and of a missing table None."""
    place = qualified_name(*source.place()) if source.names_table and not source.query else None
    ((database, oid),) = link.execute(_IDENTITY, place)
    return database, oid


def describe(link: TextLink, source: PostgresqlSourceOptions) -> Relation:
    """Describes the source as of now. Raises PermanentError where it cannot be read this way."""
    if source.query:
        base, oid = source.bare_query(), None
        described = link.describe(f"SELECT * FROM {base} LIMIT 0")  # noqa: S608
        columns = typed_columns(
            link, [(name, kind, mod, False, 0) for name, kind, mod in described]
        )
    else:
        base = qualified_name(*source.place())
        oid = identity(link, source)[1]
        if oid is None:
            raise missing_table_error(link, source)
        columns = typed_columns(link, link.execute(_COLUMNS, oid))
    by_name = {column.name: column for column in columns}
    if source.verbatim:
        return SqlRelation(base, columns, identity=oid)
    return SqlRelation(base, columns, source.order_column(by_name), _changes(source, by_name), oid)


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


def typed_columns(
    link: TextLink, rows: Sequence[tuple[str, str, int, bool, int]]
) -> tuple[SourceColumn, ...]:
    """Columns by name, oid of the type, its modifier, whether null is refused, dimensions."""
    types = _types(link, [(oid, mod) for _, oid, mod, _, _ in rows])
    inner = _types(link, [(element or "0", -1) for *_, element, _ in types if element])
    names = iter([base for base, *_ in inner])
    typed = []
    for (name, _, _, required, dimensions), (base, declared, element, delimiter) in zip(
        rows, types, strict=True
    ):
        kind = TypeOf(base, declared)
        if element:
            kind = TypeOf(base, declared, next(names), dimensions, delimiter)
        typed.append(SourceColumn(name, kind, required))
    return tuple(typed)


def _types(
    link: TextLink, asked: Sequence[tuple[str, int]]
) -> list[tuple[str, str, str | None, str]]:
    if not asked:
        return []
    begin, end = _ALONE if link.at_rest else _INSIDE
    link.execute(begin)
    link.execute("SELECT set_config('search_path', 'pg_catalog', true)")
    rows = link.execute(_TYPES, json.dumps(list(asked)))
    link.execute(end)
    return [(base, declared, element, delimiter) for base, declared, element, delimiter in rows]
