"""The options of formats -> what is in the bytes of keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dataflow_assets.languages.common.documents import Document
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.sql.engine.bytes.avro_schemas import problem
from dataflow_assets.languages.sql.engine.bytes.layout import ChangeLayout, FlinkLayout, Layouts
from dataflow_assets.languages.sql.engine.metadata import WRITABLE
from dataflow_assets.languages.sql.engine.types import STRING, FlinkType
from dataflow_assets.languages.sql.reader import options as known
from dataflow_assets.languages.sql.reader.change_formats import CHANGES, DEBEZIUM_CONFLUENT
from dataflow_assets.languages.sql.reader.format_options import READ, FormatOptions
from dataflow_assets.languages.sql.reader.syntax import (
    FlinkColumnDefinition,
    FlinkCreateTable,
    Option,
)

_PLAIN = {known.CONFLUENT: "avro", DEBEZIUM_CONFLUENT: "avro"} | {
    one: "json" for one in CHANGES if one.endswith("-json")
}
_KINDS = (*known.KINDS, *CHANGES)
_RAW = ("CHAR", "VARCHAR", "VARBINARY", "BOOLEAN", "FLOAT", "DOUBLE")


def layouts(
    table: FlinkCreateTable,
    connector: str,
    options: Mapping[str, Option],
    document: Document,
    notes: Notes,
) -> Layouts | None:
    """Returns what is in the bytes; None where `notes` has got the reason."""
    table_options = FormatOptions(table, options, document, notes)
    before = len(notes.findings)
    columns = {one.name: one for one in table.columns if one.physical}
    key_columns = _key_columns(table_options, connector, columns)
    prefix = table_options.text("key.fields-prefix") or ""
    included = table_options.choice("value.fields-include", ("ALL", "EXCEPT_KEY"), "ALL")
    _check_prefix(table_options, prefix, included, key_columns)
    of_value = [
        one for name, one in columns.items() if included == "ALL" or name not in key_columns
    ]
    value_kind = _kind(table_options, _value_key(table_options, connector))
    keyed = connector == known.UPSERT or "key.format" in options
    key_kind = _kind(table_options, "key.format") if keyed else None
    _check_changes(table_options, connector, included, value_kind, key_kind)
    if len(notes.findings) > before or value_kind is None:
        return None
    value = _layout(table_options, value_kind, _prefix(table_options, connector), of_value)
    key = None
    if key_kind is not None:
        of_key = [columns[name] for name in key_columns]
        key = _layout(table_options, key_kind, "key", of_key)
    beside = tuple((one.name, one.metadata or "") for one in table.columns if _is_written(one))
    return Layouts(value, key, key_columns, beside) if len(notes.findings) == before else None


def _is_written(column: FlinkColumnDefinition) -> bool:
    return column.metadata in WRITABLE and not column.virtual


def _value_key(given: FormatOptions, connector: str) -> str:
    if connector == known.UPSERT:
        return "value.format"
    if "format" in given.options and "value.format" in given.options:
        given.wrong("value.format", "is the same as format: keep one of the two")
    return "value.format" if "value.format" in given.options else "format"


def _prefix(given: FormatOptions, connector: str) -> str:
    return "" if connector == known.KAFKA and "format" in given.options else "value"


def _key_columns(
    given: FormatOptions, connector: str, columns: Mapping[str, FlinkColumnDefinition]
) -> tuple[str, ...]:
    if connector == known.UPSERT:
        return tuple(name for name in given.table.key if name in columns)
    listed = given.text("key.fields")
    if (listed is None) is not ("key.format" not in given.options):
        missing, other = ("key.format", "key.fields")
        if listed is None:
            missing, other = other, missing
        given.wrong(missing, f"is required with {other}")
    names = [one.strip() for one in (listed or "").split(";") if one.strip()]
    for name in names:
        if name not in columns:
            given.wrong("key.fields", f"no column {name}; {suggest(name, columns)}")
    return tuple(name for name in names if name in columns)


def _check_changes(
    given: FormatOptions,
    connector: str,
    included: str,
    value_kind: str | None,
    key_kind: str | None,
) -> None:
    if key_kind in CHANGES:
        given.wrong("key.format", f"{key_kind} is of values: a key is no change")
    if value_kind not in CHANGES:
        return
    if connector == known.UPSERT:
        message = f"{value_kind} is read with the connector kafka, where it also has a PRIMARY KEY"
        given.wrong("value.format", message)
    if included != "ALL":
        given.wrong("value.fields-include", f"must be ALL: rows of {value_kind} have all columns")


def _check_prefix(
    given: FormatOptions, prefix: str, included: str, key_columns: Sequence[str]
) -> None:
    if not prefix:
        return
    if included == "ALL":
        given.wrong("key.fields-prefix", "needs value.fields-include = EXCEPT_KEY")
    for name in key_columns:
        if not name.startswith(prefix):
            given.wrong("key.fields-prefix", f"the key's column {name} does not begin so")


def _kind(given: FormatOptions, key: str) -> str | None:
    kind = given.text(key)
    if kind is None:
        given.wrong(key, f"is required; allowed: {', '.join(_KINDS)}")
    elif kind in known.OTHER_KINDS:
        given.wrong(key, f"{kind} {known.OTHER_KINDS[kind]}")
    elif kind not in _KINDS:
        given.wrong(key, f"unknown format; {suggest(kind, _KINDS)}")
    else:
        return kind
    return None


def _layout(
    given: FormatOptions, kind: str, prefix: str, columns: Sequence[FlinkColumnDefinition]
) -> FlinkLayout:
    is_key = prefix == "key" and bool(given.table.key)
    cut = (given.text("key.fields-prefix") or "") if prefix == "key" else ""
    names = tuple(one.name.removeprefix(cut) for one in columns)
    types = tuple(one.type or STRING for one in columns)
    nullable = tuple(
        one.nullable and not (is_key or one.name in given.table.key) for one in columns
    )
    _check_types(given, kind, columns, prefix)
    start = f"{prefix}.{kind}" if prefix else kind
    _check_other_kinds(given, prefix, kind)
    layout = READ[kind](given, start)
    plain = _PLAIN.get(kind, kind)
    if kind in CHANGES:
        layout |= {"envelope": CHANGES[kind], "primary": given.table.key}
        return ChangeLayout(plain, names, types, nullable, **layout)  # type: ignore[arg-type]
    return FlinkLayout(plain, names, types, nullable, **layout)  # type: ignore[arg-type]


def _check_other_kinds(given: FormatOptions, prefix: str, kind: str) -> None:
    """Options of another format than the declared one."""
    for other in _KINDS:
        start = f"{prefix}.{other}." if prefix else f"{other}."
        for key in given.options:
            if other != kind and key.startswith(start):
                given.wrong(key, f"is of the format {other}, and the format is {kind}")


def _check_types(
    given: FormatOptions, kind: str, columns: Sequence[FlinkColumnDefinition], prefix: str
) -> None:
    what = "key" if prefix == "key" else "value"
    where = f"{prefix}.format" if prefix else "format"
    if kind == "raw" and len(columns) != 1:
        given.wrong(where, f"raw is one column, and the {what} has {len(columns)}")
    for one in columns:
        reason = _type_problem(kind, one.type or STRING)
        if reason:
            given.wrong(where, f"the column {one.name} of type {one.type}: {reason}")


def _type_problem(kind: str, column: FlinkType) -> str:
    if _PLAIN.get(kind, kind) == "avro":
        return problem(column)
    if kind == "raw" and not (column.integer or column.kind in _RAW):
        return "raw holds texts, bytes, booleans and numbers"
    if kind == "csv" and column.kind in ("MAP", "ROW"):
        return "CSV holds no maps and rows"
    if kind == "csv" and any(one.items for one in column.items):
        return "CSV holds arrays of one level"
    if column.kind == "MAP" and not column.items[0].text:
        return "keys of JSON's objects are texts"
    return next(filter(None, (_type_problem(kind, one) for one in column.items)), "")
