"""Formats whose messages are changes of rows, and their options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dataflow_assets.languages.common.key_tables import Key
from dataflow_assets.languages.sql.engine.bytes.layout import Envelope
from dataflow_assets.languages.sql.reader.options import CONFLUENT, FORMATS
from dataflow_assets.languages.sql.reader.syntax import Option

DEBEZIUM_CONFLUENT = "debezium-avro-confluent"
CHANGES: Mapping[str, Envelope] = {
    "debezium-json": "debezium",
    DEBEZIUM_CONFLUENT: "debezium",
    "canal-json": "canal",
    "maxwell-json": "maxwell",
}
"""By the name of a format what has captured the changes."""
_WRITTEN = "Of tables that are written; tables of changes are only read."
_OF_ALL = ("ignore-parse-errors", "timestamp-format.standard")
_SAYS = {
    "ignore-parse-errors": "`true`: a field that cannot be read is null, and a message that is no "
    "change is left out; a change without the row before that it needs is rejected all the same."
}
_OF_WRITERS = ("map-null-key.*", "encode.*")
_REGISTRY = frozenset({"subject", "schema-registry.subject", "auto.register.schemas"})
"""What is asked when a schema is registered."""


def _of_json(name: str) -> Sequence[Key]:
    formats = {one.name.removeprefix("json."): one for one in FORMATS}
    used = [
        replace(formats[one], name=f"{name}.{one}", says=_SAYS.get(one, formats[one].says))
        for one in _OF_ALL
    ]
    return [*used, *(Key(f"{name}.{one}", "ignored", _WRITTEN) for one in _OF_WRITERS)]


def _of_registry() -> Sequence[Key]:
    start = f"{CONFLUENT}."
    formats = [one for one in FORMATS if one.name.startswith(start)]
    return [
        Key(f"debezium-{one.name}", "ignored", _WRITTEN)
        if one.name.removeprefix(start) in _REGISTRY
        else replace(one, name=f"debezium-{one.name}")
        for one in formats
    ]


CHANGE_FORMATS: Sequence[Key] = (
    Key(
        "debezium-json.schema-include",
        "used",
        "`true` or `false`: messages of both kinds are read, as each says itself what it is.",
        "false",
    ),
    *_of_json("debezium-json"),
    Key(
        "canal-json.database.include",
        "used",
        "A regular expression for whole names: changes of other databases are left out.",
    ),
    Key("canal-json.table.include", "used", "The same for tables."),
    *_of_json("canal-json"),
    *_of_json("maxwell-json"),
    *_of_registry(),
)


def envelope(options: Mapping[str, Option]) -> Envelope | None:
    """Returns the capture format of a kafka table's changes; None if its records are rows."""
    values = (options[key].value for key in ("value.format", "format") if key in options)
    return next((CHANGES[one] for one in values if one in CHANGES), None)
