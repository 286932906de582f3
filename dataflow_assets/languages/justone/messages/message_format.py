"""JSON messages to columns of text, each by its parse path: what the connector writes.

A column holds the text of the element at the end of its path: a string without its quotes and
escapes, a number with its digits as sent, `true` or `false`, an object or array as its JSON text as
sent. A JSON null, and a path that leads nowhere, are null. What the text means in the column's type
is for the database to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from dataflow_assets.connectors.kafka.values import ValueReader
from dataflow_assets.formats.message_format import Group, Grouped, MessageFormat, Schemas, Texts
from dataflow_assets.languages.justone.messages.column_reader import (
    UNFIT,
    Cells,
    JustoneReader,
    Refused,
)
from dataflow_assets.languages.justone.messages.parse_path import Item, ParsePath

_QUOTE, _OF_NULL = ord('"'), ord("n")
_STRING = msgspec.json.Decoder(str)


@dataclass(frozen=True)
class ParsePathsFormat(MessageFormat, ValueReader):
    """Messages whose columns are found by parse paths."""

    names: tuple[str, ...]
    """Of the columns, each once."""
    paths: tuple[str, ...]
    """Of the columns, in the same order; each can be parsed."""

    @override
    def message_format(self, schemas: Schemas | None) -> MessageFormat:
        return self

    @override
    def columns(self, bodies: pa.Array, as_json: frozenset[str] = frozenset()) -> Grouped:
        at = np.flatnonzero(bodies.is_valid().to_numpy(zero_copy_only=False))
        rows, refused = self._rows(bodies.drop_null().to_pylist())
        if refused:
            kept = np.ones(len(at), np.bool_)
            kept[list(refused)] = False
            rows, sound = rows.filter(pa.array(kept)), at[kept]
        else:
            sound = at
        reasons = {int(at[row]): why for row, why in sorted(refused.items())}
        return Grouped([Group(sound, rows)] if rows.num_rows else [], reasons)

    @override
    def texts(self, bodies: pa.Array) -> Texts:
        """The columns as JSON objects of texts, as `dataflow preview` shows them."""
        columns = self.columns(bodies)
        texts: list[bytes | None] = [None] * len(bodies)
        for group in columns.groups:
            rows = group.rows.to_pylist()
            for row, value in zip(group.at.tolist(), rows, strict=True):
                texts[row] = msgspec.json.encode(value)
        return Texts(pa.array(texts, pa.binary()), columns.refused)

    @cached_property
    def _ways(self) -> list[tuple[Item, ...]]:
        return [ParsePath.parse(path).items for path in self.paths]

    @cached_property
    def _reader(self) -> JustoneReader:
        return JustoneReader(self._ways)

    def __getstate__(self) -> dict[str, Any]:
        """Decoders are made where they are used."""
        return {"names": self.names, "paths": self.paths}

    def _rows(self, bodies: Sequence[bytes]) -> tuple[pa.RecordBatch, Refused]:
        columns, refused = self._reader.columns(bodies)
        arrays = []
        for cells in columns:
            array, unfit = _texts(cells)
            arrays.append(array)
            refused = unfit | refused
        return pa.RecordBatch.from_arrays(arrays, names=list(self.names)), refused


def _texts(cells: Cells) -> tuple[pa.Array, Refused]:
    """Elements as the text that a database gets."""
    if not cells or not isinstance(cells[0], msgspec.Raw):
        return pa.array(cells, pa.string()), {}
    raws, first = _join(cells)
    refused: Refused = {}
    try:
        texts = raws.cast(pa.string())
    except pa.ArrowInvalid:
        texts, refused = _readable(raws)
    quoted = first == _QUOTE
    if not quoted.any():
        return texts, refused
    escaped = pc.fill_null(pc.match_substring(texts, "\\"), False).to_numpy(zero_copy_only=False)
    plain = pc.ascii_trim(texts, '"')  # of a number, an object or an array there is none to trim
    return _unescape(plain, cells, np.flatnonzero(escaped & quoted).tolist(), refused)


def _join(cells: Sequence[Any]) -> tuple[pa.Array, np.ndarray[Any, np.dtype[np.uint8]]]:
    """The texts as sent, null where they are JSON's null; and the first byte of each."""
    data = b"".join(cells)
    bounds = np.zeros(len(cells) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, cells), np.int32, len(cells)), out=bounds[1:])
    first = np.frombuffer(data, np.uint8)[bounds[:-1]]
    valid = first != _OF_NULL
    bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(cells), buffers), first


def _readable(raws: pa.Array) -> tuple[pa.Array, Refused]:
    refused: Refused = {}
    texts: list[str | None] = []
    for row, raw in enumerate(raws.to_pylist()):
        try:
            texts.append(None if raw is None else raw.decode())
        except UnicodeDecodeError as error:
            texts.append(None)
            refused[row] = f"invalid UTF-8 at byte {error.start} of a value"
    return pa.array(texts, pa.string()), refused


def _unescape(
    texts: pa.Array, cells: Sequence[Any], rows: Sequence[int], refused: Refused
) -> tuple[pa.Array, Refused]:
    if not rows:
        return texts, refused
    values: list[str | None] = []
    mask = np.zeros(len(texts), np.bool_)
    mask[list(rows)] = True
    for row in rows:
        try:
            values.append(_STRING.decode(cells[row]))
        except UNFIT as error:
            values.append(None)
            refused[row] = f"a string cannot be decoded: {str(error).splitlines()[0][:200]}"
    replaced = pc.replace_with_mask(texts, pa.array(mask), pa.array(values, pa.string()))
    return replaced, refused
