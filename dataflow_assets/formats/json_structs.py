"""JSON objects to structs with one member for each key, whatever the keys are called.

msgspec finds members by the keys that they are renamed to, but takes no key with a quotation mark,
a backslash or a control character. An object of a type with such a key has its keys replaced by
numbers before it is decoded; where one stands inside of another, it stays text until its column
is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats import json_times
from dataflow_assets.formats.json_types import has_plain_keys, struct_type

Decode = Callable[[bytes], Any]
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NUMBERED = re.compile(r"<(\d+)>")


def decoder(fields: Iterable[pa.Field], *, forbid_unknown: bool) -> Decode:
    """What decodes objects with these columns; made once per task.

    Called by what reads messages and their keys.

    Returns:
        A function that raises the errors of msgspec.
    """
    columns = list(fields)
    if has_plain_keys(pa.struct(columns)):
        return msgspec.json.Decoder(struct_type(columns, forbid_unknown=forbid_unknown)).decode
    return _Numbered(columns, forbid_unknown=forbid_unknown)


def opened(field: pa.Field, cells: Sequence[Any]) -> Sequence[Any]:
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
        self._numbers = {name: b'"<%d>":' % at for at, name in enumerate(self._names)}
        self._strict = forbid_unknown
        numbered = [column.with_name(f"<{at}>") for at, column in enumerate(columns)]
        self._decode = msgspec.json.Decoder(struct_type(numbered, forbid_unknown=True)).decode

    def __call__(self, text: bytes) -> Any:
        given = _MEMBERS.decode(text)
        if self._strict and (unknown := given.keys() - self._numbers.keys()):
            raise msgspec.ValidationError(f"Object contains unknown field `{min(unknown)}`")
        found = (self._numbers[name] + raw for name, raw in given.items() if name in self._numbers)
        try:
            return self._decode(b"{%s}" % b",".join(found))
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(_NUMBERED.sub(self._named, str(error))) from None

    def _named(self, number: re.Match[str]) -> str:
        return self._names[int(number[1])]
