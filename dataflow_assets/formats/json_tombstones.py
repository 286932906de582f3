"""Null messages: an error, nothing, or the deletion of the row that the message key names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pyarrow as pa
from msgspec import UNSET
from msgspec.structs import astuple

from dataflow_assets.contracts import INSERT, OFFSET, OP, Kind, kind_of
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats import json_times
from dataflow_assets.formats.json_columns import first_line, named_column
from dataflow_assets.formats.json_structs import decoder
from dataflow_assets.records.connect_types import is_envelope, unpack_envelope
from dataflow_assets.records.record import encode, parse

DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True)
class Tombstones:
    """Decides about null messages: a rejected record, nothing, or the deletion of a key."""

    mode: Literal["reject", "skip", "delete"] = "reject"
    key_columns: tuple[str, ...] = ()


REJECT_NULLS = Tombstones()


class KeyDecoder:
    """Message keys to the values of the key's columns."""

    def __init__(
        self, schema: pa.Schema, tombstones: Tombstones, *, ignore_case: bool = False
    ) -> None:
        self._mode = tombstones.mode
        self._columns = tombstones.key_columns
        self._fields = [schema.field(name) for name in self._columns]
        fields = map(json_times.as_text, self._fields)
        self._decode = decoder(fields, forbid_unknown=False, ignore_case=ignore_case)

    def deleted_key(self, key: bytes | None) -> dict[str, Any]:
        """The key's columns of the row to delete; raises RejectedRecord when nothing says which."""
        if self._mode == "reject":
            raise RejectedRecord("decode", "null message; set tombstones: delete or skip to allow")
        if key is None or not self._columns:
            raise RejectedRecord(
                "decode", "null message without a key: nothing says what to delete"
            )
        try:
            return self._values(key)
        except (RejectedRecord, *DECODE_ERRORS) as error:
            raise RejectedRecord("decode", f"key of a null message: {reason(error)}") from None

    def _values(self, key: bytes) -> dict[str, Any]:
        cells = astuple(self._decode(_key_object(key, self._fields[0])))
        for field, cell in zip(self._fields, cells, strict=True):
            if cell is UNSET:
                raise RejectedRecord("decode", f"column {field.name} is missing")
            named_column(field, [cell])
        return dict(zip(self._columns, cells, strict=True))


def with_deletes(rows: pa.RecordBatch, deletes: pa.RecordBatch) -> pa.RecordBatch:
    """Both, in the order of their offsets."""
    inserts = rows.append_column(OP, pa.array([INSERT] * rows.num_rows, pa.int8()))
    both = pa.concat_tables(
        [pa.Table.from_batches([inserts]), pa.Table.from_batches([deletes])],
        promote_options="default",
    )
    return both.sort_by(OFFSET).combine_chunks().to_batches()[0]


def reason(error: Exception) -> str:
    """Why a record is rejected, from whatever was raised."""
    return error.reason if isinstance(error, RejectedRecord) else first_line(error)


def _key_object(key: bytes, field: pa.Field) -> bytes:
    """A message key as a JSON object: an object as it is; a lone value becomes the one column.

    Of a key of Kafka Connect with its schema it is the payload.
    """
    stripped, as_text = key.strip(), _is_text(field)
    value = _json(stripped)
    if is_envelope(value):
        key = stripped = encode(unpack_envelope(parse(stripped)))
        value = _json(stripped)
    if isinstance(value, dict) or (stripped.startswith(b"{") and not as_text):
        return stripped
    if value is UNSET or (as_text and not isinstance(value, str)):
        stripped = json.dumps(key.decode("utf-8", "strict")).encode()
    return b"{" + json.dumps(field.name).encode() + b":" + stripped + b"}"


def _json(text: bytes) -> Any:
    """The value; UNSET where the text is no JSON."""
    try:
        return msgspec.json.decode(text)
    except DECODE_ERRORS:
        return UNSET


def _is_text(field: pa.Field) -> bool:
    kind = kind_of(field)
    return kind not in (Kind.JSON, Kind.NUMERIC) and (
        pa.types.is_string(field.type) or pa.types.is_binary(field.type)
    )
