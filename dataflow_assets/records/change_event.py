"""Debezium's change events: where a row stands in one, and what its values stand for."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal, InvalidOperation
from typing import Any

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.connect_times import Convert, moment
from dataflow_assets.records.connect_types import (
    convert_at,
    is_envelope,
    member,
    reader,
    unpack_envelope,
)
from dataflow_assets.records.record import NotJson, encode, parse
from dataflow_assets.records.times.instant import read, rfc3339_nano

UNAVAILABLE = "unavailable"
"""The key of a record's metadata that names fields whose values the event does not have."""
_MOMENT = moment(1_000)


@dataclass(frozen=True)
class ChangeEvent:
    """One event. `place`: the path to its fields in the message, for reasons of rejections."""

    fields: Mapping[str, Any]
    schema: Any = None
    """Of the fields, as JsonConverter writes it; None: the message has none."""
    place: str = ""

    def row(
        self, side: str, types: Mapping[str, Convert], absent: Sequence[Any]
    ) -> tuple[dict[str, Any], list[str]] | None:
        """The row before or after the change, and the fields whose values the event leaves out.

        Called by the step inside tasks, once for each event.

        Args:
            side: `before` or `after`.
            types: what converts fields whose type the manifest names; other fields are converted
                by the schema of the message. MongoDB's documents, which are text, say themselves
                of which types their values are.
            absent: what stands in the event for a value that is not there.

        Returns:
            None where there is no object.

        Raises:
            RejectedRecord: a value is none of its type.
        """
        row, schema = self.fields.get(side), self.schema
        if _is_document(row):
            row, schema = document(str(row)), None
        if not isinstance(row, dict):
            return None
        # Before they are converted: a placeholder is of the column's type in no other sense.
        left_out = [name for name, value in row.items() if value in absent]
        if left_out:
            row = {name: value for name, value in row.items() if name not in left_out}
        by_schema = reader(_without(member(schema, side), types))
        if by_schema is not None:
            row = convert_at(side, by_schema, row)
        values = {n: convert_at(n, form, row[n]) for n, form in types.items() if n in row}
        return ({**row, **values} if values else row), left_out

    @property
    def is_of_mongodb(self) -> bool | None:
        """Tells whether the connector is MongoDB's, whose keys are texts; None if unknown."""
        source = self.fields.get("source")
        return source.get("connector") == "mongodb" if isinstance(source, dict) else None


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


def key_row(
    text: Any, types: Mapping[str, Convert], *, documents: bool | None = None
) -> dict[str, Any] | None:
    """The row of which a message's key tells; with a schema beside it, what its payload holds.

    Called by the step inside tasks, for tombstones, and for deletes without the row before.

    Args:
        text: of the key.
        types: as in `ChangeEvent.row`.
        documents: the key is of MongoDB, whose ids are texts of Extended JSON; None: nobody knows.

    Returns:
        None where the key is no JSON object.

    Raises:
        RejectedRecord: nobody knows whether a text is an id, or what stands for an id of MongoDB.
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
    if row.keys() == {"id"} and isinstance(row["id"], str):
        if documents or (documents is None and _is_document(row["id"])):
            return {"_id": document(row["id"])}  # the document's own name of its key
        if documents is None and row["id"].startswith('"'):
            raise RejectedRecord(
                "step",
                "the key may be that of a document of MongoDB, and nothing says so: leave "
                "inferDeleteFromTombstone out, and source in the event",
            )
    return {**row, **{n: convert_at(n, form, row[n]) for n, form in types.items() if n in row}}


def document(text: str) -> Any:
    """A document of MongoDB, or a value of one, from its text; a text that is no JSON stays one."""
    value = parse(text.encode())
    return text if isinstance(value, NotJson) else plain(value)


def placeholders(text: str) -> tuple[Any, ...]:
    """Returns what stands for a value that an update has left alone, by the kinds of its column.

    Called once for each step.

    Args:
        text: the connector's `unavailable.value.placeholder`.
    """
    data = text.encode()
    digits = [base64.b64encode(bytes([byte])).decode() for byte in data]
    name = uuid.UUID(bytes=hashlib.md5(data, usedforsecurity=False).digest(), version=3)
    return (
        text,
        base64.b64encode(data).decode(),
        [text],
        {text: text},
        encode({text: text}).decode(),  # of hstore as JSON
        list(data),  # arrays of numbers, dates and times: a number for each byte
        digits,  # of decimals
        [{"scale": 0, "value": one} for one in digits],
        [str(name)],  # of UUIDs
    )


def _without(schema: Any, names: Mapping[str, Convert]) -> Any:
    if not names or not isinstance(schema, dict):
        return schema
    fields = schema.get("fields")
    listed = fields if isinstance(fields, list) else ()
    kept = [one for one in listed if isinstance(one, dict) and one.get("field") not in names]
    return {**schema, "fields": kept}


def plain(value: Any) -> Any:
    """The value without marks of types, nested ones too.

    Called by steps inside tasks, once for each document. ObjectIds, UUIDs and symbols become text,
    numbers numbers with all digits, dates text in RFC 3339, binary data text in base64. Other types
    of MongoDB stay objects.

    Raises:
        RejectedRecord: a number or a date is none.
    """
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    name = next(iter(value), "")
    form = _FORMS.get(name)
    if form is None or value.keys() - {"$type"} != {name}:
        return {key: plain(item) for key, item in value.items()}
    try:
        return form(value[name])
    except (ValueError, InvalidOperation, TypeError):
        raise RejectedRecord("step", f"a value of {name} cannot be read") from None


def _number(value: Any) -> Any:
    """NaN and the infinities stay texts: JSON has no numbers for them."""
    number = Decimal(value)
    return number if number.is_finite() else value


def _date(value: Any) -> Any:
    date = plain(value)
    return _MOMENT(date) if isinstance(date, int) else rfc3339_nano(read(date, UTC))


def _binary(value: Any) -> Any:
    return value["base64"] if isinstance(value, Mapping) else value


_FORMS: Mapping[str, Callable[[Any], Any]] = {
    "$oid": str,
    "$uuid": str,
    "$symbol": str,
    "$numberInt": int,
    "$numberLong": int,
    "$numberDouble": _number,
    "$numberDecimal": _number,
    "$date": _date,
    "$binary": _binary,
    "$undefined": lambda _: None,
}
