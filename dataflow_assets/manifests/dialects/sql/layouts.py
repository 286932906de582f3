"""The options of formats -> what is in the bytes of keys and values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataflow_assets.manifests.dialects.documents import Document
from dataflow_assets.manifests.dialects.keys import meant
from dataflow_assets.manifests.dialects.notes import Notes
from dataflow_assets.manifests.dialects.sql import options as known
from dataflow_assets.manifests.dialects.sql.syntax import Column, Option, Table
from dataflow_assets.sql.bytes.avro_schemas import problem
from dataflow_assets.sql.bytes.layout import Layout, Layouts
from dataflow_assets.sql.metadata import WRITABLE
from dataflow_assets.sql.types import STRING, Type

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f"}
_RAW = ("CHAR", "VARCHAR", "VARBINARY", "BOOLEAN", "FLOAT", "DOUBLE")


@dataclass(frozen=True)
class _Given:
    """The options of one table, and where to tell what is wrong with them."""

    table: Table
    options: Mapping[str, Option]
    document: Document
    notes: Notes

    def text(self, key: str) -> str | None:
        found = self.options.get(key)
        return None if found is None else found.value

    def wrong(self, key: str, message: str) -> None:
        self.notes.wrong((self.document, key), message, key=key not in self.options)

    def choice(self, key: str, allowed: Sequence[str], default: str) -> str:
        found = self.text(key)
        if found is None:
            return default
        if found not in allowed:
            self.wrong(key, meant(found, allowed))
            return default
        return found

    def truth(self, key: str) -> bool:
        return self.choice(key, ("true", "false"), "false") == "true"

    def delimiter(self, key: str) -> str | None:
        """The one option of CSV in which Flink reads Java's escapes."""
        found = self.text(key)
        if found is not None:
            made = _ESCAPE.sub(_unescaped, found)
            if len(made) == 1 and made not in "\r\n":
                return made
        return self.character(key, ",")

    def character(self, key: str, default: str | None) -> str | None:
        found = self.text(key)
        if found is None:
            return default
        if len(found) != 1 or found in "\r\n":
            self.wrong(key, "must be one character, and not the end of a line")
            return default
        return found


def _unescaped(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 16))
    return _ESCAPED.get(found[2], found[2])


def layouts(
    table: Table,
    connector: str,
    options: Mapping[str, Option],
    document: Document,
    notes: Notes,
) -> Layouts | None:
    """What is in the bytes; None where `notes` has got the reason."""
    given = _Given(table, options, document, notes)
    before = len(notes.findings)
    columns = {one.name: one for one in table.columns if one.physical}
    key_columns = _key_columns(given, connector, columns)
    prefix = given.text("key.fields-prefix") or ""
    included = given.choice("value.fields-include", ("ALL", "EXCEPT_KEY"), "ALL")
    _check_prefix(given, prefix, included, key_columns)
    of_value = [
        one for name, one in columns.items() if included == "ALL" or name not in key_columns
    ]
    value_kind = _kind(given, _value_key(given, connector))
    keyed = connector == known.UPSERT or "key.format" in options
    key_kind = _kind(given, "key.format") if keyed else None
    if len(notes.findings) > before or value_kind is None:
        return None
    value = _layout(given, value_kind, _prefix(given, connector), of_value)
    key = None
    if key_kind is not None:
        of_key = [columns[name] for name in key_columns]
        key = _layout(given, key_kind, "key", of_key)
    beside = tuple((one.name, one.metadata or "") for one in table.columns if _is_written(one))
    return Layouts(value, key, key_columns, beside) if len(notes.findings) == before else None


def _is_written(column: Column) -> bool:
    return column.metadata in WRITABLE and not column.virtual


def _value_key(given: _Given, connector: str) -> str:
    if connector == known.UPSERT:
        return "value.format"
    if "format" in given.options and "value.format" in given.options:
        given.wrong("value.format", "is the same as format: keep one of the two")
    return "value.format" if "value.format" in given.options else "format"


def _prefix(given: _Given, connector: str) -> str:
    return "" if connector == known.KAFKA and "format" in given.options else "value"


def _key_columns(given: _Given, connector: str, columns: Mapping[str, Column]) -> tuple[str, ...]:
    if connector == known.UPSERT:
        return tuple(name for name in given.table.key if name in columns)
    listed = given.text("key.fields")
    if (listed is None) is not ("key.format" not in given.options):
        missing, other = ("key.format", "key.fields")
        if listed is None:
            missing, other = other, missing
        given.wrong(missing, f"is required with {other}")
    found = [one.strip() for one in (listed or "").split(";") if one.strip()]
    for name in found:
        if name not in columns:
            given.wrong("key.fields", f"no column {name}; {meant(name, columns)}")
    return tuple(name for name in found if name in columns)


def _check_prefix(given: _Given, prefix: str, included: str, key_columns: Sequence[str]) -> None:
    if not prefix:
        return
    if included == "ALL":
        given.wrong("key.fields-prefix", "needs value.fields-include = EXCEPT_KEY")
    for name in key_columns:
        if not name.startswith(prefix):
            given.wrong("key.fields-prefix", f"the key's column {name} does not begin so")


def _kind(given: _Given, key: str) -> str | None:
    found = given.text(key)
    if found is None:
        given.wrong(key, f"is required; allowed: {', '.join(known.KINDS)}")
    elif found in known.OTHER_KINDS:
        given.wrong(key, f"{found} {known.OTHER_KINDS[found]}")
    elif found not in known.KINDS:
        given.wrong(key, f"unknown format; {meant(found, known.KINDS)}")
    else:
        return found
    return None


def _layout(
    given: _Given,
    kind: str,
    prefix: str,
    columns: Sequence[Column],
) -> Layout:
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
    read = {"json": _json, "csv": _csv, "raw": _raw, known.CONFLUENT: _confluent}.get(kind, _avro)
    made = read(given, start)
    plain = "avro" if kind == known.CONFLUENT else kind
    return Layout(plain, names, types, nullable, **made)  # type: ignore[arg-type]


def _check_other_kinds(given: _Given, prefix: str, kind: str) -> None:
    """Options of another format than the declared one."""
    for other in known.KINDS:
        start = f"{prefix}.{other}." if prefix else f"{other}."
        for key in given.options:
            if other != kind and key.startswith(start):
                given.wrong(key, f"is of the format {other}, and the format is {kind}")


def _check_types(given: _Given, kind: str, columns: Sequence[Column], prefix: str) -> None:
    what = "key" if prefix == "key" else "value"
    where = f"{prefix}.format" if prefix else "format"
    if kind == "raw" and len(columns) != 1:
        given.wrong(where, f"raw is one column, and the {what} has {len(columns)}")
    for one in columns:
        found = _type_problem(kind, one.type or STRING)
        if found:
            given.wrong(where, f"the column {one.name} of type {one.type}: {found}")


def _type_problem(kind: str, column: Type) -> str:
    if kind in ("avro", known.CONFLUENT):
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


def _json(given: _Given, start: str) -> dict[str, Any]:
    missing = given.truth(f"{start}.fail-on-missing-field")
    ignored = given.truth(f"{start}.ignore-parse-errors")
    if missing and ignored:
        given.wrong(
            f"{start}.fail-on-missing-field",
            f"and {start}.ignore-parse-errors exclude each other: keep one",
        )
    standard = f"{start}.timestamp-format.standard"
    return {
        "times": given.choice(standard, ("SQL", "ISO-8601"), "SQL"),
        "ignore_errors": ignored,
        "fail_on_missing": missing,
        "ignore_nulls": given.truth(f"{start}.encode.ignore-null-fields"),
        "plain_decimals": given.truth(f"{start}.encode.decimal-as-plain-number"),
    }


def _csv(given: _Given, start: str) -> dict[str, Any]:
    quoted = not given.truth(f"{start}.disable-quote-character")
    scientific = f"{start}.write-bigdecimal-in-scientific-notation"
    quote = given.character(f"{start}.quote-character", '"') if quoted else None
    escape = given.character(f"{start}.escape-character", None)
    delimiter = given.delimiter(f"{start}.field-delimiter")
    if delimiter in (quote, escape):
        given.wrong(f"{start}.field-delimiter", "is also the character of quotes or of escapes")
    return {
        "delimiter": delimiter,
        "quote": quote,
        "escape": escape if escape != quote else None,  # a quote inside a cell is doubled anyway
        "array_delimiter": given.text(f"{start}.array-element-delimiter") or ";",
        "null_literal": given.text(f"{start}.null-literal"),
        "comments": given.truth(f"{start}.allow-comments"),
        "ignore_errors": given.truth(f"{start}.ignore-parse-errors"),
        "plain_decimals": given.choice(scientific, ("true", "false"), "true") == "false",
    }


def _raw(given: _Given, start: str) -> dict[str, Any]:
    charset = given.text(f"{start}.charset") or "UTF-8"
    try:
        "a".encode(charset)
    except (LookupError, ValueError):
        given.wrong(f"{start}.charset", "is not known")
    order = ("big-endian", "little-endian")
    found = given.choice(f"{start}.endianness", order, "big-endian")
    return {"charset": charset, "endianness": found.removesuffix("-endian")}


def _avro(_: _Given, __: str) -> dict[str, Any]:
    return {"times": "RFC-3339"}


def _confluent(given: _Given, start: str) -> dict[str, Any]:
    given.choice(f"{start}.auto.register.schemas", ("true",), "true")
    names = (f"{start}.subject", f"{start}.schema-registry.subject")
    subject = next(filter(None, map(given.text, names)), "")
    return {"times": "RFC-3339", "named": True, "subject": subject}
