"""The target as ClickHouse's catalogue tells it, and whether rows can stand in it exactly once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.client import Client, query_rows, quote
from dataflow_assets.connectors.clickhouse.type_names import ClickhouseType, split_list, unquote
from dataflow_assets.contracts import Kind, Note
from dataflow_assets.errors import PermanentError

JSON_TEXT = "JSON text"
"""Comment of a String column that takes JSON of any kind."""
WINDOW = 10_000
"""INSERTs that tables made here remember."""
_TABLE = """
SELECT engine, engine_full, toString(uuid), partition_key, sorting_key, total_rows,
       notEmpty(dependencies_table)
FROM system.tables WHERE database = {d:String} AND name = {t:String}
"""
_COLUMNS = """
SELECT name, type, default_kind, default_expression, comment, is_in_partition_key
FROM system.columns WHERE database = {d:String} AND table = {t:String} ORDER BY position
"""
_LOOK = """
SELECT name, concat(type, ' ', default_kind),
    (SELECT notEmpty(dependencies_table) FROM system.tables
     WHERE database = {d:String} AND name = {t:String})
FROM system.columns WHERE database = {d:String} AND table = {t:String}
"""
_EXACT = frozenset({"String", "Enum", "Enum8", "Enum16", "Int128", "Int256", "UInt128", "UInt256"})
"""Types that travel as text, and store texts that differ as values that differ."""
_PLAIN = "non_replicated_deduplication_window"
_DEFAULTS = "SELECT name, value FROM system.{kind}merge_tree_settings WHERE name LIKE '%dedup%'"
_REPLACING = re.compile(r"\w*ReplacingMergeTree\(")
_CHANGING = re.compile(
    r"\b(now|now64|today|yesterday|rand\w*|generate\w+|hostName|currentUser)\b", re.IGNORECASE
)
# Older servers do not tell where a view stores its rows.
_TELLS_VIEWS = """
SELECT count() FROM system.columns
WHERE database = 'system' AND table = 'tables' AND name = 'target_table'
"""
NO_UUID = "00000000-0000-0000-0000-000000000000"  # of tables outside Atomic databases
ROW = "uuid = {u:UUID} AND database = {d:String} AND name = {t:String}"
"""Finds a table in `system.tables`, by its `row`."""
_VIEWS = f"""
SELECT database, name, target_database, target_table FROM system.tables
WHERE engine = 'MaterializedView' AND (database, name) IN (
    SELECT arrayJoin(arrayZip(dependencies_database, dependencies_table))
    FROM system.tables WHERE {ROW})
ORDER BY database, name
"""  # noqa: S608 - our own text


@dataclass(frozen=True)
class Column:
    """One column."""

    name: str
    type: str
    default_kind: str = ""
    default: str = ""
    comment: str = ""
    parts: bool = False
    """True: rows go into the table's partitions by it."""

    @property
    def takes_values(self) -> bool:
        return self.default_kind in {"", "DEFAULT"}

    def field(self) -> pa.Field:
        field = types.field(self.name, self.type, types.SINK_TEXT)
        metadata = dict(field.metadata or {})
        if self.comment == JSON_TEXT and field.type == pa.string():
            metadata |= Kind.JSON.mark
        if field.type == pa.string() and ClickhouseType.of(self.type).bare.name not in _EXACT:
            metadata[Note.LOOSE] = b"1"
        if (digits := types.digits(self.type)) is not None:
            metadata[Note.DIGITS] = str(digits).encode()
        # Read again, a row must go into the same partition; a new default could be another one's.
        if self.default_kind == "DEFAULT" and not (self.parts and _CHANGING.search(self.default)):
            metadata[Note.HAS_DEFAULT] = b"1"
        return field.with_metadata(metadata)


@dataclass(frozen=True)
class ClickhouseTable:
    """What the catalogue knows."""

    database: str
    name: str
    uuid: str
    engine: str
    partition_key: str
    sorting_key: tuple[str, ...]
    window: int
    """INSERTs whose tokens are remembered."""
    seconds: int | None
    """For how long at most; None: for ever."""
    columns: tuple[Column, ...]
    version: str | None = None
    """The column by which a ReplacingMergeTree finds the newest row of a key."""
    deleted: str | None = None
    """The column by which it knows that the row of a key is gone."""
    total_rows: int | None = None
    viewed: bool = False
    """Whether materialized views read what is inserted."""

    @property
    def row(self) -> dict[str, str]:
        """Returns the parameters of ROW."""
        return {"u": self.uuid, "d": self.database, "t": self.name}

    @property
    def is_replicated(self) -> bool:
        return self.engine.startswith(("Replicated", "Shared"))

    @property
    def replaces(self) -> bool:
        """Returns whether a later row of a key takes the place of an earlier one."""
        return "ReplacingMergeTree" in self.engine

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns)

    @cached_property
    def column_types(self) -> Mapping[str, str]:
        """Returns the type of each column, with how it is filled where a record lacks it."""
        return {one.name: f"{one.type} {one.default_kind}" for one in self.columns}

    def schema(self, key: tuple[str, ...], filled: frozenset[str]) -> pa.Schema:
        """The columns that records fill; `filled`: those that the sink fills."""
        fields = [c.field() for c in self.columns if c.takes_values and c.name not in filled]
        return pa.schema(fields, {Note.KEY: json.dumps(key).encode()} if key else None)

    def check(self) -> None:
        """Raises PermanentError where an INSERT could not be repeated."""
        place = f"table {self.database}.{self.name}"
        if not self.engine.endswith("MergeTree"):
            raise PermanentError(
                f"{place} is of the engine {self.engine}: only tables of the MergeTree family "
                "remember what was inserted, without which a crash would store rows twice; name "
                "the table that it stands for, or make one"
            )
        if self.forgets:
            raise PermanentError(
                f"{place} does not remember what was inserted, without which a crash would store "
                f"rows twice; run: {self.remember}"
            )
        for column in self.columns:
            if column.parts and not column.takes_values and _CHANGING.search(column.default):
                raise PermanentError(
                    f"{place} is partitioned by {column.name}, which is {column.default}: a row "
                    "that is inserted once more after a crash may go into another partition, and "
                    "be there twice; partition it by a column of the records"
                )

    @property
    def forgets(self) -> bool:
        """True where an INSERT that is repeated is stored twice."""
        return self.window <= 0

    @property
    def remember(self) -> str:
        setting = "replicated_deduplication_window" if self.is_replicated else _PLAIN
        place = quote(self.database, self.name)
        return f"ALTER TABLE {place} MODIFY SETTING {setting} = {WINDOW}"


def look_again(client: Client, database: str, name: str) -> tuple[dict[str, str], bool]:
    """Returns `column_types` and `viewed` as of now; none for no table. Raises Failure."""
    columns = query_rows(client, _LOOK, {"d": database, "t": name})
    return {column: kind for column, kind, _ in columns}, any(one[-1] for one in columns)


def find(client: Client, database: str, name: str) -> ClickhouseTable | None:
    """The table; None where there is none. Raises Failure."""
    where = {"d": database, "t": name}
    tables = query_rows(client, _TABLE, where)
    if not tables:
        return None
    engine, full, uuid, partition, sorting, total, viewed = tables[0]
    columns = [
        Column(column, kind, default_kind, default, comment, bool(parts))
        for column, kind, default_kind, default, comment, parts in query_rows(
            client, _COLUMNS, where
        )
    ]
    replicated = engine.startswith(("Replicated", "Shared"))
    settings = _settings(client, full, replicated=replicated)
    version, deleted = _replacing(full)
    return ClickhouseTable(
        database,
        name,
        uuid,
        engine,
        partition,
        _names(sorting),
        settings["replicated_deduplication_window" if replicated else _PLAIN],
        settings.get("replicated_deduplication_window_seconds") if replicated else None,
        tuple(columns),
        version,
        deleted,
        total,
        bool(viewed),
    )


def forgetful_views(client: Client, target: ClickhouseTable) -> Iterator[str]:
    """What a person should know of each view whose table does not remember what was inserted.

    A materialized view sees an INSERT that is repeated after a crash once more.
    """
    ((shows,),) = query_rows(client, _TELLS_VIEWS)
    views = query_rows(client, _VIEWS, target.row) if shows else []
    for database, name, *place in views:
        table = find(client, *place)
        if table is not None and table.forgets:
            yield (
                f"materialized view {database}.{name} may count rows twice after a crash: its "
                f"table does not remember what was inserted; run: {table.remember}"
            )


def _settings(client: Client, full: str, *, replicated: bool) -> dict[str, int]:
    kind = "replicated_" if replicated else ""
    values = {
        name: int(value)
        for name, value in query_rows(client, _DEFAULTS.format(kind=kind))
        if value.isdecimal()
    }
    pairs = re.findall(r"\b(\w*dedup\w*) = (\d+)", full.partition(" SETTINGS ")[2])
    return {_PLAIN: 0, **values, **{name: int(value) for name, value in pairs}}


def _names(sorting: str) -> tuple[str, ...]:
    """The columns of a sorting key; an expression is none, whatever it is cut into."""
    whole = sorting.strip()
    bare = whole[1:-1] if whole.startswith("(") and whole.endswith(")") else whole
    return tuple(unquote(part) for part in split_list(bare) if part)


def _replacing(full: str) -> tuple[str | None, str | None]:
    engine = next(iter(split_list(full, " ")), "")  # behind it stand the other clauses
    args = ClickhouseType.of(engine).arguments if _REPLACING.match(engine) else ()
    names = [unquote(part) for part in args if part and not part.startswith("'")]
    version, deleted, *_ = [*names, None, None]
    return version, deleted
