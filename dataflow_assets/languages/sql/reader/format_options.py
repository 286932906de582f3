"""The options of each format -> the fields of a layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataflow_assets.languages.common.documents import Document
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.sql.engine.functions.regular import expression
from dataflow_assets.languages.sql.reader import options as known
from dataflow_assets.languages.sql.reader.change_formats import DEBEZIUM_CONFLUENT
from dataflow_assets.languages.sql.reader.syntax import FlinkCreateTable, Option

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f"}


@dataclass(frozen=True)
class FormatOptions:
    """The options of one table, and where to tell what is wrong with them."""

    table: FlinkCreateTable
    options: Mapping[str, Option]
    document: Document
    notes: Notes

    def text(self, key: str) -> str | None:
        """The value of an option; None: it is not given."""
        option = self.options.get(key)
        return None if option is None else option.value

    def wrong(self, key: str, message: str) -> None:
        self.notes.wrong((self.document, key), message, key=key not in self.options)

    def choice(self, key: str, allowed: Sequence[str], default: str) -> str:
        text = self.text(key)
        if text is None:
            return default
        if text not in allowed:
            self.wrong(key, suggest(text, allowed))
            return default
        return text

    def truth(self, key: str) -> bool:
        """A value that is true or false, by default false."""
        return self.choice(key, ("true", "false"), "false") == "true"

    def delimiter(self, key: str) -> str | None:
        """The one option of CSV in which Flink reads Java's escapes."""
        text = self.text(key)
        if text is not None:
            unescaped = _ESCAPE.sub(_unescape, text)
            if len(unescaped) == 1 and unescaped not in "\r\n":
                return unescaped
        return self.character(key, ",")

    def character(self, key: str, default: str | None) -> str | None:
        text = self.text(key)
        if text is None:
            return default
        if len(text) != 1 or text in "\r\n":
            self.wrong(key, "must be one character, and not the end of a line")
            return default
        return text


def _unescape(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    return _ESCAPED.get(match[2], match[2])


def _json(given: FormatOptions, start: str) -> dict[str, Any]:
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


def _csv(given: FormatOptions, start: str) -> dict[str, Any]:
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


def _raw(given: FormatOptions, start: str) -> dict[str, Any]:
    charset = given.text(f"{start}.charset") or "UTF-8"
    try:
        "a".encode(charset)
    except (LookupError, ValueError):
        given.wrong(f"{start}.charset", "is not known")
    order = ("big-endian", "little-endian")
    endianness = given.choice(f"{start}.endianness", order, "big-endian")
    return {"charset": charset, "endianness": endianness.removesuffix("-endian")}


def _avro(_: FormatOptions, __: str) -> dict[str, Any]:
    return {"times": "RFC-3339"}


def _confluent(given: FormatOptions, start: str) -> dict[str, Any]:
    given.choice(f"{start}.auto.register.schemas", ("true",), "true")
    names = (f"{start}.subject", f"{start}.schema-registry.subject")
    subject = next(filter(None, map(given.text, names)), "")
    return {"times": "RFC-3339", "named": True, "subject": subject}


def _canal(given: FormatOptions, start: str) -> dict[str, Any]:
    names = {one: given.text(f"{start}.{one}.include") or "" for one in ("database", "table")}
    for one, text in names.items():
        try:
            expression(text)
        except ValueError as error:
            given.wrong(f"{start}.{one}.include", str(error))
    return {**_changes(given, start), **names}


def _changes(given: FormatOptions, start: str) -> dict[str, Any]:
    given.truth(f"{start}.schema-include")
    return _json(given, start)


READ: Mapping[str, Callable[[FormatOptions, str], dict[str, Any]]] = {
    "json": _json,
    "csv": _csv,
    "avro": _avro,
    known.CONFLUENT: _confluent,
    "raw": _raw,
    "debezium-json": _changes,
    DEBEZIUM_CONFLUENT: _confluent,
    "canal-json": _canal,
    "maxwell-json": _changes,
}
"""By the name of a format what reads its options into the fields of a layout."""
