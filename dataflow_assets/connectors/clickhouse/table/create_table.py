"""CREATE TABLE from a sample, with the DataFlow Operator's types, but integers at their widest."""

from __future__ import annotations

from collections.abc import Container

import pyarrow as pa

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.client import Client, literal, name_list, quote
from dataflow_assets.connectors.clickhouse.errors import failing
from dataflow_assets.connectors.clickhouse.options import DELETED, VERSION, ClickhouseSinkOptions
from dataflow_assets.connectors.clickhouse.table.table import JSON_TEXT, WINDOW
from dataflow_assets.contracts import Kind, kind_of
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.wrapped import METADATA
from dataflow_assets.sdk.raw_rows import DATA

_JSON_TYPES = frozenset(
    {pa.null(), pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.decimal128(38, 0)}
    | {pa.timestamp("us", "UTC")}
)
_CREATED = {"created_at": "DateTime64(3, 'UTC') DEFAULT now64(3)"}


def create(client: Client, sink: ClickhouseSinkOptions, sample: pa.Schema) -> None:
    """Makes the target unless a racing flow has. Raises Failure."""
    with failing():
        client.command(raw_statement(sink, sample) if sink.raw_mode else statement(sink, sample))


def add_columns(client: Client, sink: ClickhouseSinkOptions, columns: pa.Schema) -> None:
    """Adds columns to the target; those that it has by now stay. Raises Failure."""
    with failing():
        client.command(adding(sink, columns))


def adding(sink: ClickhouseSinkOptions, columns: pa.Schema) -> str:
    """The DDL that adds columns, of the manifest's types where it names some."""
    types_ = {
        field.name: sink.columns.get(field.name) or column_type(field, messages=False)
        for field in columns
    }
    added = (f"ADD COLUMN IF NOT EXISTS {quote(name)} {kind}" for name, kind in types_.items())
    return f"ALTER TABLE {quote(*sink.place())} {', '.join(added)}"


def statement(sink: ClickhouseSinkOptions, sample: pa.Schema) -> str:
    """The DDL: the sample's columns, sorted; the manifest's types over them."""
    fields = {field.name: field for field in sample}
    names = sorted({*fields, *sink.columns})
    if not names:
        raise sink.no_columns()
    order = _order(sink, names)
    required, messages = {*order, sink.replacing_version_column}, _of_messages(sample)
    types_ = {
        name: sink.columns.get(name)
        or column_type(_field(sink, fields[name]), required=name in required, messages=messages)
        for name in names
    }
    version, deleted = _own_names(sink, fields)
    deletes = {version: "UInt64", deleted: "UInt8"} if sink.delete_mode else {}
    own = {name: kind for name, kind in (deletes | _CREATED).items() if name not in types_}
    return _statement(sink, types_ | own, order, engine(sink, version, deleted))


def _own_names(sink: ClickhouseSinkOptions, given: Container[str]) -> tuple[str, str]:
    """The columns that the sink fills, of names that no record has a value for.

    Raises PermanentError where records have the one that a table must have by its name.
    """
    if sink.delete_mode == "soft" and DELETED in given:
        raise PermanentError(
            f"table {sink.address().name} cannot be made: deleteMode soft marks deleted rows in a "
            f"column {DELETED}, and records have a value of that name; rename it by a step, or "
            "use deleteMode hard"
        )
    version, deleted = VERSION, DELETED
    while version in given:
        version += "_"
    while deleted in given:
        deleted += "_"
    return version, deleted


def raw_statement(sink: ClickhouseSinkOptions, sample: pa.Schema) -> str:
    """The DDL of a table for raw mode: bodies, metadata, and the moment of storing."""
    fields, key = sink.raw_columns(sample), sink.raw_key
    types = {field.name: column_type(field, required=field.name in key) for field in fields}
    version, deleted = _own_names(sink, types)
    deletes = {version: "UInt64", deleted: "UInt8"} if sink.delete_mode else {}
    kept = {DATA: "String", METADATA: f"Nullable(String) COMMENT {literal(JSON_TEXT)}"}
    types_ = {name: kept.get(name, kind) for name, kind in types.items()}
    types_ |= deletes | _CREATED
    order = key or sink.order_by or ("created_at",)
    clause = engine(sink, version, deleted)
    return _statement(sink, types_ | dict(sink.columns), order, clause)


def _statement(
    sink: ClickhouseSinkOptions, types_: dict[str, str], order: tuple[str, ...], made: str
) -> str:
    body = ",\n  ".join(f"{quote(name)} {kind}" for name, kind in types_.items())
    partition = f"\nPARTITION BY {sink.partition_by}" if sink.partition_by else ""
    by = f"({name_list(order)})" if order else "tuple()"
    return (
        f"CREATE TABLE IF NOT EXISTS {quote(*sink.place())} (\n  {body}\n)\n"
        f"ENGINE = {made}{partition}\nORDER BY {by}\n"
        f"SETTINGS non_replicated_deduplication_window = {WINDOW}"
    )


def engine(sink: ClickhouseSinkOptions, version: str = VERSION, deleted: str = DELETED) -> str:
    """The engine of a table that autoCreateTable makes."""
    if sink.engine == "MergeTree":
        return "MergeTree"
    arguments = [quote(name) for name in (sink.replacing_version_column,) if name]
    if sink.delete_mode:
        arguments = [version, deleted] if sink.delete_mode == "hard" else [version]
    return f"ReplacingMergeTree({', '.join(arguments)})"


def _order(sink: ClickhouseSinkOptions, names: list[str]) -> tuple[str, ...]:
    order = sink.conflict_key or sink.order_by
    if absent := [name for name in order if name not in names]:
        raise PermanentError(
            f"table {sink.address().name} cannot be made: {', '.join(absent)} of its ORDER BY is "
            "in none of the first records; name it under `columns` with its type, or "
            "correct conflictKey or orderBy"
        )
    if order:
        return order
    if sink.upsert_mode:
        if "id" in names:
            return ("id",)
        raise PermanentError(
            f"table {sink.address().name} cannot be made: upsertMode needs a key; name it as "
            "conflictKey"
        )
    return ()


def _field(sink: ClickhouseSinkOptions, field: pa.Field) -> pa.Field:
    """The version of a ReplacingMergeTree cannot be text: in messages that is a time."""
    if field.name != sink.replacing_version_column or field.type != pa.string():
        return field
    return pa.field(field.name, pa.timestamp("us", "UTC"))


def column_type(field: pa.Field, *, required: bool = False, messages: bool = True) -> str:
    """A sample's type as a column's; what is compound in messages becomes JSON text."""
    compound = pa.types.is_struct(field.type) or pa.types.is_list(field.type)
    as_json = isinstance(field.type, pa.JsonType) or kind_of(field) == Kind.JSON
    if as_json or (compound and messages):
        column = pa.field(field.name, pa.string(), nullable=not required)
        return f"{types.declaration(column)} COMMENT {literal(JSON_TEXT)}"
    declared = types.declaration(field.with_nullable(not required))
    if required and declared.startswith("Nullable("):  # a table of ClickHouse says so itself
        return declared.removeprefix("Nullable(").removesuffix(")")
    return declared


def _of_messages(sample: pa.Schema) -> bool:
    compound = (pa.types.is_struct, pa.types.is_list, lambda kind: isinstance(kind, pa.JsonType))
    return not any(field.metadata for field in sample) and all(
        kind in _JSON_TYPES or any(test(kind) for test in compound) for kind in sample.types
    )
