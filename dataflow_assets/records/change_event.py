"""Debezium's change events: where a row stands in one, and what its values stand for."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.connect_times import Convert
from dataflow_assets.records.connect_types import (
    convert_at,
    is_envelope,
    member,
    reader,
    unpack_envelope,
)
from dataflow_assets.records.extended_json import plain
from dataflow_assets.records.record import NotJson, parse

UNAVAILABLE = "unavailable"
"""The key of a record's metadata that names fields whose values the event does not have."""


@dataclass(frozen=True)
class ChangeEvent:
    """One event. `place`: the path to its fields in the message, for reasons of rejections."""

    fields: Mapping[str, Any]
    schema: Any = None
    """Of the fields, as JsonConverter writes it; None: the message has none."""
    place: str = ""

    def row(self, side: str, types: Mapping[str, Convert]) -> dict[str, Any] | None:
        """The row before or after the change.

        Called by the step inside tasks, once for each event.

        Args:
            side: `before` or `after`.
            types: what converts fields whose type the manifest names; other fields are converted
                by the schema of the message. MongoDB's documents, which are text, say themselves
                of which types their values are.

        Returns:
            None where there is no object.

        Raises:
            RejectedRecord: a value is none of its type.
        """
        row, by_schema = self.fields.get(side), None
        if _is_document(row):
            row = document(str(row))
        elif self.schema is not None:
            by_schema = reader(_without(member(self.schema, side), types))
        if not isinstance(row, dict):
            return None
        if by_schema is not None:
            row = by_schema(row)
        named = {n: convert_at(n, form, row[n]) for n, form in types.items() if n in row}
        return {**row, **named} if named else row


def change_event(body: Any) -> ChangeEvent | None:
    """The event in a message, under `payload` or as the body itself; None where it holds none.

    Called by the step inside tasks, once for each message.

    Raises:
        RejectedRecord: the body is no object.
    """
    if not isinstance(body, dict):
        raise RejectedRecord("step", "the body of a change event must be an object")
    if "payload" in body:
        payload = body["payload"]
        if not isinstance(payload, dict) or not payload.get("op"):
            return None
        return ChangeEvent(payload, body.get("schema"), "payload.")
    sides = [body[side] for side in ("before", "after") if side in body]
    bare = sides and all(
        side is None or isinstance(side, dict) or _is_document(side) for side in sides
    )
    return ChangeEvent(body) if bare and body.get("op") else None


def _is_document(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("{")


def key_row(text: Any, types: Mapping[str, Convert]) -> dict[str, Any] | None:
    """The row of which a message's key tells; with a schema beside it, what its payload holds.

    Called by the step inside tasks, for tombstones, and for deletes without the row before.

    Args:
        text: of the key.
        types: as in `ChangeEvent.row`.

    Returns:
        None where the key is no JSON object.
    """
    try:
        key = parse(text.encode()) if isinstance(text, str) else None
        payload = key.get("payload") if isinstance(key, dict) else None
        if isinstance(payload, dict) and not is_envelope(key):
            key = payload
        row = unpack_envelope(key)
    except (RejectedRecord, UnicodeEncodeError):
        return None
    if not isinstance(row, dict):
        return None
    if row.keys() == {"id"} and _is_document(row["id"]):
        return {"_id": document(row["id"])}  # MongoDB's: the document's own name of its key
    return {**row, **{n: convert_at(n, form, row[n]) for n, form in types.items() if n in row}}


def document(text: str) -> Any:
    """A document of MongoDB, or a value of one, from its text; a text that is no JSON stays one."""
    value = parse(text.encode())
    return text if isinstance(value, NotJson) else plain(value)


def placeholders(text: str) -> tuple[Any, ...]:
    """What stands for a value that an update has left alone, by the kinds of its column.

    Called once for each step.

    Args:
        text: the connector's `unavailable.value.placeholder`.
    """
    data = text.encode()
    return (text, base64.b64encode(data).decode(), [text], {text: text}, list(data))


def _without(schema: Any, names: Mapping[str, Convert]) -> Any:
    if not names or not isinstance(schema, dict):
        return schema
    fields = [one for one in schema.get("fields") or () if one.get("field") not in names]
    return {**schema, "fields": fields}
