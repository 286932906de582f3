"""Declared tables with all that their options say, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dataflow_assets.errors import Finding
from dataflow_assets.languages.common import documents
from dataflow_assets.languages.common.key_tables import Key, entry, names
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.common.tokens import Place
from dataflow_assets.languages.sql.engine.bytes.layout import ChangeLayout, Layouts
from dataflow_assets.languages.sql.engine.expressions import Expression
from dataflow_assets.languages.sql.engine.expressions import FlinkColumn as Cell
from dataflow_assets.languages.sql.engine.function import Environment
from dataflow_assets.languages.sql.engine.metadata import METADATA, OF_CHANGES
from dataflow_assets.languages.sql.engine.types import STRING
from dataflow_assets.languages.sql.reader import options as known
from dataflow_assets.languages.sql.reader.bind import Scope, bound
from dataflow_assets.languages.sql.reader.change_formats import CHANGE_FORMATS, envelope
from dataflow_assets.languages.sql.reader.column_problems import column_problems
from dataflow_assets.languages.sql.reader.layouts import layouts
from dataflow_assets.languages.sql.reader.settings import milliseconds
from dataflow_assets.languages.sql.reader.syntax import (
    FlinkColumnDefinition,
    FlinkCreateTable,
    Option,
)

_BUFFER = ("sink.buffer-flush.max-rows", "sink.buffer-flush.interval")


@dataclass(frozen=True)
class FlinkBuffer:
    """The options `sink.buffer-flush.*`."""

    rows: int
    """Keys among which changes of one key become one."""
    millis: int
    """How long a row may wait."""


@dataclass(frozen=True)
class FlinkDeclared:
    """A table that can be used."""

    table: FlinkCreateTable
    connector: str
    options: Mapping[str, Option]
    document: documents.Document = field(repr=False)
    """Of the options: findings about them have their places."""
    layouts: Layouts | None = None
    """Of topics; None: a table of a database."""

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def stored_columns(self) -> tuple[FlinkColumnDefinition, ...]:
        """The columns of a row as it is read: without computed ones."""
        return tuple(one for one in self.table.columns if one.computed is None)

    @property
    def changes(self) -> bool:
        """Returns whether its records replace and delete rows."""
        captured = self.layouts is not None and isinstance(self.layouts.value, ChangeLayout)
        return self.connector == known.UPSERT or captured

    @property
    def physical(self) -> tuple[FlinkColumnDefinition, ...]:
        """The columns that are in the bytes of records, or in a table of a database."""
        return tuple(one for one in self.table.columns if one.physical)

    @property
    def written_columns(self) -> tuple[FlinkColumnDefinition, ...]:
        return tuple(
            one
            for one in self.table.columns
            if one.physical or (one.metadata is not None and not one.virtual)
        )

    @property
    def buffer(self) -> FlinkBuffer | None:
        """Returns how changes of one key become one; None: each is written."""
        if not all(map(self.is_buffered, _BUFFER)):
            return None
        rows, waits = (self.text(key) for key in _BUFFER)
        return FlinkBuffer(int(rows), milliseconds(waits) or 0)

    def is_buffered(self, key: str) -> bool:
        """Returns whether an option of the buffer is above zero, or not valid."""
        text = self.text(key, "0")
        return text.strip() != "0" and milliseconds(text) != 0

    def text(self, key: str, default: str = "") -> str:
        option = self.options.get(key)
        return default if option is None else option.value

    def scope(self, environment: Environment, alias: str | None = None) -> Scope:
        """Returns what names mean where the table is read. Raises Unreadable."""
        stored = self.stored_columns
        cells: dict[str, Expression] = {
            one.name: Cell(one.type or STRING, at, one.name) for at, one in enumerate(stored)
        }
        for one in self.table.columns:
            if one.computed is not None:
                inner = Scope(tuple(cells.items()), environment=environment)
                cells[one.name] = bound(one.computed, inner)
        ordered = tuple((one.name, cells[one.name]) for one in self.table.columns)
        return Scope(ordered, ((alias or self.name, ordered),), environment)


def declare_table(table: FlinkCreateTable, file: str, notes: Notes) -> FlinkDeclared | None:
    """The table, unless something is wrong with it, which `notes` has by then."""
    before = len(notes.findings)
    by_key = {one.key: one for one in table.options}
    document = _document(table, file)
    connector = by_key["connector"].value if "connector" in by_key else ""
    if connector not in known.CONNECTORS:
        reason = "is required" if not connector else "is not supported"
        allowed = suggest(connector, known.CONNECTORS) if connector else ""
        allowed = allowed or f"allowed: {', '.join(known.CONNECTORS)}"
        notes.wrong((document, "connector"), f"{reason}; {allowed}", key=not connector)
        return None
    metadata = {**METADATA, **OF_CHANGES.get(envelope(by_key) or "", {})}
    for problem in column_problems(table, connector, metadata):
        notes.findings.append(_at(file, table, *problem))
    declared = FlinkDeclared(table, connector, by_key, document)
    if connector == known.JDBC:
        _check_options(declared, notes)
    if connector in known.TABLES:
        return declared if len(notes.findings) == before else None
    _check_options(declared, notes)
    _check_values(declared, notes)
    _check_required(declared, notes)
    table_layouts = layouts(table, connector, by_key, document, notes)
    return replace(declared, layouts=table_layouts) if len(notes.findings) == before else None


def _document(table: FlinkCreateTable, file: str) -> documents.Document:
    """Its options as a document of keys and texts."""
    places: dict[documents.Path, documents.NodePlace] = {}
    place = table.place
    places[()] = documents.NodePlace(place.line, place.column, place.line, place.column)
    for one in table.options:
        value, key = one.value_place, one.place
        places[one.key,] = documents.NodePlace(value.line, value.column, key.line, key.column)
    return documents.Document(file, {one.key: one.value for one in table.options}, places)


def _at(file: str, table: FlinkCreateTable, place: Place, message: str) -> Finding:
    return Finding(file, place.line, place.column, f"table {table.name}", message)


def _check_options(declared: FlinkDeclared, notes: Notes) -> None:
    plain = known.of_connector(declared.connector)
    both = (*known.FORMATS, *CHANGE_FORMATS)
    prefixed = [
        replace(one, name=f"{prefix}.{one.name}") for prefix in ("key", "value") for one in both
    ]
    formats = [*prefixed, *(both if declared.connector == known.KAFKA else ())]
    if declared.connector == known.JDBC:
        formats = []
    for key in declared.options:
        one = entry(key, plain, formats)
        where = (declared.document, key)
        if one is None:
            notes.wrong(where, _unknown_option(key, declared, (*plain, *formats)), key=True)
        elif (other := _effective_name(declared, key, both)) is not None:
            notes.wrong(where, f"has no effect here: write {other}", key=True)
        elif one.verdict == "refused":
            notes.wrong(where, one.says, key=True)
        elif one.verdict == "note":
            _note(declared, one, key, notes)
        elif one.verdict == "ignored":
            notes.idle(where)


def _effective_name(declared: FlinkDeclared, key: str, formats: Sequence[Key]) -> str | None:
    """The name that the option of a format has by the key that names the format."""
    if declared.connector != known.KAFKA:
        return None
    bare = "format" in declared.options
    if not bare and entry(key, formats) is not None:
        return f"value.{key}"
    inside = key.removeprefix("value.")
    return inside if bare and inside != key and entry(inside, formats) is not None else None


def _unknown_option(key: str, declared: FlinkDeclared, keys: Sequence[Key]) -> str:
    other = known.ONLY_UPSERT if declared.connector == known.KAFKA else known.ONLY_KAFKA
    if entry(key, other) is not None:
        return f"is not an option of {declared.connector}"
    return f"unknown option; {suggest(key, names(keys))}" if len(key) > 2 else "unknown option"


def _note(declared: FlinkDeclared, one: Key, key: str, notes: Notes) -> None:
    harmless = {"sink.delivery-guarantee": "exactly-once"}
    if key.endswith("avro.timestamp_mapping.legacy"):
        if declared.text(key) != "true":
            notes.wrong((declared.document, key), one.says)
    elif declared.text(key) != harmless.get(key, one.default):
        notes.note((declared.document, key), one.says)


_CHOICES: Mapping[str, tuple[str, ...]] = {
    "sink.delivery-guarantee": ("at-least-once", "exactly-once", "none"),
    "sink.transaction-naming-strategy": ("INCREMENTING", "POOLING"),
    "properties.allow.auto.create.topics": ("true", "false"),
    "json.decode.json-parser.enabled": ("true", "false"),
    "json.map-null-key.mode": ("FAIL",),
    "basic-auth.credentials-source": ("USER_INFO",),
    "bearer-auth.credentials-source": ("STATIC_TOKEN",),
    "avro.encoding": ("binary",),
}
_START = re.compile(r"^(?:(?:key|value)\.)?(?:(?:debezium|canal|maxwell)-)?(?:avro-confluent\.)?")
"""Of options of formats; those of changes mean what those of rows do."""
_NUMBERS = ("scan.parallelism", "sink.parallelism", "sink.buffer-flush.max-rows")
_DURATIONS = ("scan.topic-partition-discovery.interval", "sink.buffer-flush.interval")


def _check_values(declared: FlinkDeclared, notes: Notes) -> None:
    """Also of options without effect: a misspelt value is no option of Flink's."""
    for key, option in declared.options.items():
        plain = _START.sub("", key)
        where = (declared.document, key)
        allowed = _CHOICES.get(plain)
        if allowed is not None and option.value not in allowed:
            notes.wrong(where, suggest(option.value, allowed))
        elif key in _NUMBERS and not re.fullmatch("[0-9]{1,9}", option.value):
            notes.wrong(where, "must be a whole number")
        elif key in _DURATIONS and milliseconds(option.value) is None:
            notes.wrong(where, "must be a duration, like 500ms, 1s or 5 min")
    rows, waits = _BUFFER
    if declared.connector == known.UPSERT and (
        declared.is_buffered(rows) != declared.is_buffered(waits)
    ):
        zero_key = rows if declared.is_buffered(waits) else waits
        notes.wrong((declared.document, zero_key), "must be above zero too, as the other one is")


def _check_required(declared: FlinkDeclared, notes: Notes) -> None:
    needed = {"topic": "the topic", "properties.bootstrap.servers": "the brokers"}
    for key, what in needed.items():
        notes.require(
            (declared.document, key), (declared.options and declared.text(key)) or None, what
        )
    if ";" in declared.text("topic"):
        message = "a list of topics is not supported: declare a table for each topic"
        notes.wrong((declared.document, "topic"), message)
    upsert = declared.connector == known.UPSERT
    table = declared.table
    if upsert and not table.key:
        message = "is required with upsert-kafka: PRIMARY KEY (...) NOT ENFORCED"
        notes.findings.append(
            _at(declared.document.file, table, table.place, f"PRIMARY KEY {message}")
        )
    if not upsert and table.key and envelope(declared.options) is None:
        place = table.key_place or table.place
        message = (
            "a PRIMARY KEY needs the connector upsert-kafka, or a format of changes such as "
            "debezium-json: other records of a kafka table are inserts"
        )
        notes.findings.append(_at(declared.document.file, table, place, message))


def environment_of(settings: Mapping[str, Any]) -> Environment:
    return Environment(str(settings.get("table.local-time-zone", "UTC")))
