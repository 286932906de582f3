"""A table as InnoDB has it now: its columns, its unique keys, and whether rows can be written."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dataflow_assets.connectors.mysql import types
from dataflow_assets.connectors.mysql.client import MysqlClient, quote
from dataflow_assets.connectors.mysql.errors import MysqlFailure
from dataflow_assets.connectors.mysql.options import MysqlSinkOptions
from dataflow_assets.contracts import Note
from dataflow_assets.errors import PermanentError
from dataflow_assets.errors.likely_names import did_you_mean_or

IDENTITY = b"dataflow.mysql.table"
_DECLARED = b"dataflow.mysql.declared"
_FILLED = b"dataflow.mysql.filled"
_TABLE = """
SELECT table_type, engine, DATE_FORMAT(create_time, '%%Y-%%m-%%dT%%H:%%i:%%s')
FROM information_schema.tables WHERE table_schema = %(schema)s AND table_name = %(name)s
"""
_COLUMNS = """
SELECT column_name, column_type, is_nullable = 'YES', character_set_name, collation_name,
    character_maximum_length,
    CASE WHEN extra LIKE '%%auto_increment%%' THEN 'NULL'
        WHEN column_default IS NOT NULL AND column_default <> 'NULL' THEN 'DEFAULT' END,
    COALESCE(generation_expression, '') <> ''
FROM information_schema.columns WHERE table_schema = %(schema)s AND table_name = %(name)s
ORDER BY ordinal_position
"""
# A part of a column, or an expression, does not tell keys apart.
_UNIQUE = """
SELECT index_name, column_name FROM information_schema.statistics AS s
WHERE table_schema = %(schema)s AND table_name = %(name)s AND non_unique = 0
AND NOT EXISTS (SELECT 1 FROM information_schema.statistics AS p
    WHERE p.table_schema = s.table_schema AND p.table_name = s.table_name
    AND p.index_name = s.index_name AND (p.sub_part IS NOT NULL OR p.column_name IS NULL))
ORDER BY index_name = 'PRIMARY' DESC, index_name, seq_in_index
"""
_CHECKS = """
SELECT check_clause FROM information_schema.check_constraints
WHERE constraint_schema = %(schema)s AND table_name = %(name)s AND level = 'Column'
"""
_IS_JSON = re.compile(r"json_valid\(`((?:[^`]|``)+)`\)", re.IGNORECASE)
# Only who has the right PROCESS may look; else the second in which the table was made is its id.
# The catalogue compares names whatever their case; tables whose names differ in that are two.
_ID = (
    "SELECT table_id FROM information_schema.{} WHERE name = %(path)s "
    "ORDER BY CAST(name AS BINARY) = %(path)s DESC LIMIT 1"
)
_LISTS = ("innodb_sys_tables", "innodb_tables")


@dataclass(frozen=True)
class MysqlTable:
    """The target as of now."""

    identity: str
    columns: tuple[pa.Field, ...]
    unique: Mapping[str, tuple[str, ...]]
    """By index its columns; the primary key is the first."""

    def schema(self, key: tuple[str, ...]) -> pa.Schema:
        """The columns in Arrow; what the writers need to know travels in the metadata."""
        notes = {IDENTITY: self.identity.encode(), Note.KEY: json.dumps(key).encode()}
        return pa.schema(self.columns, notes)

    def key(self, sink: MysqlSinkOptions) -> tuple[str, ...]:
        """Returns the columns that rows are matched by, proved to be unique; empty for append.

        Raises PermanentError where nothing proves it, or a column is missing.
        """
        if not sink.upsert_mode:
            return ()
        names = [column.name for column in self.columns]
        key = sink.conflict_key or self.unique.get("PRIMARY", ())
        if not key:
            raise PermanentError(
                f"upsertMode needs a key: table {sink.table} has no primary key and the manifest "
                "no conflictKey"
            )
        for name in (*key, *([sink.soft] if sink.soft else ())):
            if name not in names:
                advice = did_you_mean_or(name, names, f"it has {', '.join(names)}")
                raise PermanentError(
                    f"table {sink.table} has no column {name} that can be filled; {advice}"
                )
        if not any(set(columns) == set(key) for columns in self.unique.values()):
            listed = ", ".join(map(quote, key))
            raise PermanentError(
                f"upsertMode: table {sink.table} has no unique index on exactly ({', '.join(key)}) "
                f"with whole columns; run: ALTER TABLE {quote(*sink.place())} ADD UNIQUE "
                f"({listed})"
            )
        if sink.soft and not pa.types.is_temporal(self._field(sink.soft).type):
            raise PermanentError(
                f"softDeleteColumn {sink.soft} of table {sink.table} holds no point in time: "
                "make it a datetime(6)"
            )
        return key

    def _field(self, name: str) -> pa.Field:
        return next(column for column in self.columns if column.name == name)


def find(link: MysqlClient, sink: MysqlSinkOptions) -> MysqlTable | None:
    """The table, or None while there is none. Raises PermanentError where it takes no rows."""
    identity, (schema, name) = identify(link, sink), sink.place()
    if identity is None:
        return None
    words, texts = {"schema": schema, "name": name}, json_columns(link, schema, name)
    columns = [_column(sink, texts, *row) for row in link.rows(_COLUMNS, words)]
    unique: dict[str, tuple[str, ...]] = {}
    for index, column in link.rows(_UNIQUE, words):
        unique[index] = (*unique.get(index, ()), column)
    return MysqlTable(identity, tuple(filter(None, columns)), unique)


def identify(link: MysqlClient, sink: MysqlSinkOptions) -> str | None:
    """The id of the table; None while there is none. Raises PermanentError as `find`."""
    schema, name = sink.place()
    found = link.rows(_TABLE, {"schema": schema, "name": name})
    if not found:
        return None
    ((kind, engine, made),) = found
    if kind != "BASE TABLE":
        raise PermanentError(f"{sink.address()} is a {kind.lower()}: name the table behind it")
    if engine != "InnoDB":
        raise PermanentError(
            f"{sink.address()} is a table of {engine}, which has no transactions: rows and "
            "checkpoint would not be stored in one commit; run: ALTER TABLE "
            f"{quote(schema, name)} ENGINE = InnoDB"
        )
    # Flows make several tables in one second.
    own = f"{schema}.{name} made at {made}"
    return _id(link, f"{_file_name(schema)}/{_file_name(name)}") or own


def _column(  # noqa: PLR0913, PLR0917 - a row of the catalogue
    sink: MysqlSinkOptions,
    texts: Container[str],
    name: str,
    declared: str,
    nullable: int,
    charset: str | None,
    collation: str | None,
    longest: int | None,
    filled: str | None,
    generated: int,
) -> pa.Field | None:
    """Skips a column that the server alone fills, or that no value has a form for."""
    if generated:
        return None
    field = types.sink_field(name, "json" if name in texts else declared)
    if field is None:
        if nullable or filled:
            return None
        raise PermanentError(
            f"column {name} of table {sink.address()} has the type {declared}, which no record can "
            "fill, and must be filled: give it a default, or make it nullable"
        )
    text = f"{declared} CHARACTER SET {charset} COLLATE {collation}" if collation else declared
    notes = {**(field.metadata or {}), _DECLARED: text.encode()}
    if field.type == pa.string() and name not in texts and longest is not None:
        notes[Note.MAX_LENGTH] = str(longest).encode()
    if filled:
        notes |= {Note.HAS_DEFAULT: b"1", _FILLED: filled.encode()}
    return field.with_nullable(bool(nullable)).with_metadata(notes)


def json_columns(client: MysqlClient, schema: str, name: str) -> set[str]:
    """Returns the texts that are MariaDB's JSON: a check of the column says so."""
    binds = {"schema": schema, "name": name}
    checks = client.rows(_CHECKS, binds) if client.is_mariadb else ()
    return {found[1].replace("``", "`") for (text,) in checks if (found := _IS_JSON.match(text))}


def _id(link: MysqlClient, path: str) -> str | None:
    for name in _LISTS:
        try:
            found = link.rows(_ID.format(name), {"path": path})
        except MysqlFailure as failure:
            if failure.transient:
                raise
        else:
            return str(found[0][0]) if found else None
    return None


def _file_name(name: str) -> str:
    return re.sub(r"\W", lambda found: f"@{ord(found[0]):04x}", name, flags=re.ASCII)


def key_of(schema: pa.Schema) -> tuple[str, ...]:
    """The key that a ticket's schema carries; empty for append."""
    return tuple(json.loads(schema.metadata[Note.KEY]))


def words_for_absent(schema: pa.Schema) -> list[str]:
    """Returns what is written where the server fills in: DEFAULT of AUTO_INCREMENT would be 0."""
    return [each.metadata.get(_FILLED, b"DEFAULT").decode() for each in schema]


def compares_exactly(column: pa.Field) -> bool:
    """Returns whether the server takes only values for equal that are the same in Arrow."""
    kinds = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_temporal)
    exact = column.metadata[_DECLARED].endswith((b"utf8mb4_nopad_bin", b"utf8mb4_0900_bin"))
    return exact or any(is_kind(column.type) for is_kind in kinds)


def stage_columns(schema: pa.Schema, key: tuple[str, ...]) -> Sequence[str]:
    """The columns of a temporary table that takes rows of this one, with values missing."""
    declared = {each.name: each.metadata[_DECLARED].decode().replace("%", "%%") for each in schema}
    # MySQL refuses a key that may be null; MariaDB makes one that may not.
    return [f"{quote(n)} {kind} {'NOT ' * (n in key)}NULL" for n, kind in declared.items()]
