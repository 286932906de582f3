"""JSON objects to structs with one member for each key, whatever the keys are called.

msgspec finds members by the keys that they are renamed to, but takes no key with a quotation mark,
a backslash or a control character. An object of a type with such a key has its keys replaced by
numbers before it is decoded; where one stands inside of another, it stays text until its column
is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats import json_times
from dataflow_assets.formats.column_names import ColumnNames
from dataflow_assets.formats.json_types import has_plain_keys, struct_type

Decode = Callable[[bytes], Any]
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NUMBERED = re.compile(r"<(\d+)>")
_MOST_LESSONS = 100  # of a task whose producers agree on no spelling


def decoder(
    fields: Iterable[pa.Field], *, forbid_unknown: bool, ignore_case: bool = False
) -> Decode:
    """Returns what decodes objects with these columns; made once per task.

    Called by what reads messages and their keys.

    Args:
        fields: one for each member.
        forbid_unknown: whether a key that is none of theirs is refused.
        ignore_case: whether a key may have other capitals than its column.

    Returns:
        A function that raises the errors of msgspec, and RejectedRecord where a key could mean
        several columns.
    """
    columns = list(fields)
    if ignore_case:
        return _AnyCase(columns, forbid_unknown=forbid_unknown)
    if has_plain_keys(pa.struct(columns)):
        return msgspec.json.Decoder(struct_type(columns, forbid_unknown=forbid_unknown)).decode
    return _Numbered(columns, forbid_unknown=forbid_unknown)


def open_structs(field: pa.Field, cells: Sequence[Any]) -> Sequence[Any]:
    """The cells of a column of structs, those that stayed text decoded.

    Called for each column of a batch that is a struct.

    Raises:
        RejectedRecord: one of them is no such object.
    """
    if has_plain_keys(field.type):
        return cells
    decode = _inner(pa.schema(list(field.type)).serialize().to_pybytes())
    nulls = (None, b"null") if field.nullable else (None,)
    try:
        return [None if cell is None or bytes(cell) in nulls else decode(cell) for cell in cells]
    except msgspec.MsgspecError as error:
        raise RejectedRecord("decode", str(error)) from None


@lru_cache(maxsize=64)
def _inner(schema: bytes) -> Decode:
    fields = pa.ipc.read_schema(pa.py_buffer(schema))
    return decoder(map(json_times.as_text, fields), forbid_unknown=True)


class _Numbered:
    """Decodes objects by way of the numbers of their keys."""

    def __init__(self, columns: list[pa.Field], *, forbid_unknown: bool) -> None:
        self._names: list[str] = [column.name for column in columns]
        self._numbers = {name: at for at, name in enumerate(self._names)}
        self._strict = forbid_unknown
        numbered = [column.with_name(f"<{at}>") for at, column in enumerate(columns)]
        self._decode = msgspec.json.Decoder(struct_type(numbered, forbid_unknown=True)).decode

    def __call__(self, text: bytes) -> Any:
        return self.decode(_MEMBERS.decode(text), self._numbers.get)

    def decode(
        self, members: Mapping[str, msgspec.Raw], number: Callable[[str], int | None]
    ) -> Any:
        """The object of these members, each of whose keys has the number of its column, or none."""
        parts: dict[int, tuple[str, msgspec.Raw]] = {}
        for key, raw in members.items():
            at = number(key)
            if at is None:
                self._refuse(key)
            elif at in parts:
                both = f"{parts[at][0]!r} and {key!r}"
                raise RejectedRecord(
                    "decode", f"the keys {both} both mean the column {self._names[at]}"
                )
            else:
                parts[at] = (key, raw)
        body = b",".join(b'"<%d>":%b' % (at, raw) for at, (_, raw) in parts.items())
        try:
            return self._decode(b"{%b}" % body)
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(_NUMBERED.sub(self._name, str(error))) from None

    def _refuse(self, key: str) -> None:
        if self._strict:
            raise msgspec.ValidationError(f"Object contains unknown field `{key}`")

    def _name(self, number: re.Match[str]) -> str:
        return self._names[int(number[1])]


class _AnyCase:
    """Decodes objects whose keys may have other capitals than their columns.

    Producers spell keys alike: what the last odd object has taught is tried first.
    """

    def __init__(self, columns: list[pa.Field], *, forbid_unknown: bool) -> None:
        self._columns, self._known = columns, ColumnNames(column.name for column in columns)
        self._numbers = {column.name: at for at, column in enumerate(columns)}
        self._slow = _Numbered(columns, forbid_unknown=forbid_unknown)
        self._fast = decoder(columns, forbid_unknown=True)
        self._lessons = _MOST_LESSONS

    def __call__(self, text: bytes) -> Any:
        try:
            return self._fast(text)
        except msgspec.ValidationError:
            members = _MEMBERS.decode(text)
        struct = self._slow.decode(members, self._number)
        if self._lessons:
            self._lessons -= 1
            fields = list(self._columns)
            for key in members:
                if (at := self._number(key)) is not None:
                    fields[at] = fields[at].with_name(key)
            self._fast = decoder(fields, forbid_unknown=True)
        return struct

    def _number(self, key: str) -> int | None:
        column = self._known.column(key)
        return None if column is None else self._numbers[column]
