"""The key of a record, written into its row as the JDBC sinks write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.records.connect_types import is_envelope, unpack_envelope
from dataflow_assets.records.record import NOT_UTF8, NotJson, Record, encode, parse
from dataflow_assets.records.step import Apply, Context, Example, Step

_KEY = "the record's key "


class RecordKey(Step):
    """Fields of a key become fields of the row, and win over fields of the same name in the value.

    A key without one of them, or no key at all, rejects the record. Made by this language alone.
    """

    type: ClassVar[str] = "recordKey"
    examples: ClassVar[tuple[Example, ...]] = ()
    fields: tuple[str, ...] = Field(min_length=1)
    form: Literal["text", "json", "json with schema"]

    @override
    def reads(self) -> frozenset[str]:
        return frozenset({"key"})

    @override
    def compile(self, context: Context) -> Apply:
        read = self._as_text if self.form == "text" else self._as_json

        def apply(record: Record) -> Record:
            if isinstance(record.body, dict):
                return Record({**record.body, **read(record)}, record.metadata, record.route)
            return self._deletion(record, read) if self.form == "text" else record

        return apply

    def _deletion(self, record: Record, read: Callable[[Record], dict[str, Any]]) -> Record:
        """A null message names the row that it deletes by JSON: its text may look like some."""
        if not (isinstance(record.body, NotJson) and record.body.empty):
            return record
        if not record.metadata.get("key"):
            return record
        key = encode(read(record)).decode()
        return Record(record.body, {**record.metadata, "key": key}, record.route)

    def _as_text(self, record: Record) -> dict[str, Any]:
        return {self.fields[0]: _text(record)}

    def _as_json(self, record: Record) -> dict[str, Any]:
        key = parse(_text(record).encode())
        if self.form == "json with schema":
            if not is_envelope(key):
                raise RejectedRecord("step", f"{_KEY}is not a schema and a payload")
            key = unpack_envelope(key)
        if isinstance(key, dict):
            if missing := [name for name in self.fields if name not in key]:
                raise RejectedRecord("step", f"{_KEY}lacks {', '.join(missing)}")
            return {name: key[name] for name in self.fields}
        if len(self.fields) > 1 or key is None or isinstance(key, list | NotJson):
            raise RejectedRecord("step", f"{_KEY}is not an object with {', '.join(self.fields)}")
        return {self.fields[0]: key}


def _text(record: Record) -> str:
    if not (key := str(record.metadata.get("key") or "")):
        raise RejectedRecord("step", f"{_KEY}is not there, or empty")
    if NOT_UTF8 in key:
        raise RejectedRecord("step", f"{_KEY}is not UTF-8: several such keys would be one")
    return key
