"""JSON arrays as PostgreSQL writes its own: `[1, [2], null]` is `{1,{2},NULL}`.

Their elements follow the rules of a plain column of their type. A text that is no JSON array, and
the text inside a JSON string, is taken as PostgreSQL's own writing. Bytes are base64 in JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.connectors.postgresql.sink.array_literals import check_literal, delimiter
from dataflow_assets.connectors.postgresql.sink.encode_texts import text_values
from dataflow_assets.contracts import Kind, Note, element_of, kind_of
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.json_columns import array
from dataflow_assets.formats.json_times import as_text
from dataflow_assets.formats.json_types import value_type
from dataflow_assets.records.decoding import decode_json

_UNFIT = (msgspec.MsgspecError, RejectedRecord, ValueError, OverflowError, pa.ArrowException)
_USUAL_DEPTHS = (1, 2)
_REFUSED = "22P02"

_parts = msgspec.json.Decoder(list[msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode
_as_json = msgspec.json.Encoder().encode


def literals(values: pa.Array, field: pa.Field) -> pa.Array:
    """The arrays of a column that has ELEMENT; raises Failure where a value is refused."""
    texts = values.to_pylist()
    metadata = field.metadata[Note.ELEMENT]
    for depth in _USUAL_DEPTHS:
        try:
            decode = _decoder(metadata, depth)
            return _lists(
                [None if t is None else decode(t) for t in texts], element_of(field), depth
            )
        except _UNFIT:
            continue
    return pa.array(_apart(texts, field), pa.string())


def _apart(texts: Sequence[str | None], field: pa.Field) -> list[str | None]:
    found: list[str | None] = [None] * len(texts)
    groups: dict[int, dict[int, Any]] = {depth: {} for depth in (0, *_USUAL_DEPTHS)}
    for at, text in enumerate(texts):
        if text is not None:
            depth, cell = _decode(text, field.metadata[Note.ELEMENT])
            groups[depth][at] = cell
    for at, text in groups.pop(0).items():
        found[at] = _single(text, field)
    for depth, group in groups.items():
        alike = _column([texts[at] or "" for at in group], [*group.values()], field, depth)
        for at, literal in zip(group, alike, strict=True):
            found[at] = literal
    return found


def _decode(text: str, metadata: bytes) -> tuple[int, Any]:
    """The array with its dimensions; 0 and the text where that is none of the usual ones."""
    for depth in _USUAL_DEPTHS:
        try:
            return depth, _decoder(metadata, depth)(text)
        except _UNFIT:
            continue
    return 0, text


def _column(texts: Sequence[str], cells: Sequence[Any], field: pa.Field, depth: int) -> list[str]:
    """Arrays of one depth at once; halved where an element does not fit."""
    try:
        found: list[str] = _lists(cells, element_of(field), depth).to_pylist()
    except _UNFIT:
        if len(texts) == 1:
            return [_single(texts[0], field)]
        half = len(texts) // 2
        first = _column(texts[:half], cells[:half], field, depth)
        return first + _column(texts[half:], cells[half:], field, depth)
    return found


@lru_cache(64)
def _decoder(metadata: bytes, depth: int) -> Any:
    """Reads arrays of so many dimensions; `metadata`: of ELEMENT."""
    found = _plain(_element(metadata))
    for _ in range(depth):
        found = list[found]  # type: ignore[valid-type]
    return msgspec.json.Decoder(found).decode


@lru_cache(64)
def _element(metadata: bytes) -> pa.Field:
    return element_of(pa.field("", pa.string(), metadata={Note.ELEMENT: metadata}))


def _lists(cells: Sequence[Any], element: pa.Field, depth: int) -> pa.Array:
    """Lists of lists, a column at once."""
    flat = list(chain.from_iterable(cell or () for cell in cells))
    inner = _items(flat, element) if depth == 1 else _lists(flat, element, depth - 1)
    bounds = np.zeros(len(cells) + 1, np.int32)
    np.cumsum([len(cell or ()) for cell in cells], out=bounds[1:])
    items = pa.ListArray.from_arrays(pa.array(bounds), inner)
    joined = pc.binary_join(items, delimiter(element))
    found = pc.binary_join_element_wise("{", joined, "}", "")
    if None not in cells:
        return found
    return pc.if_else(pa.array([cell is not None for cell in cells]), found, None)


def _items(cells: Sequence[Any], element: pa.Field) -> pa.Array:
    """Decoded elements as they stand in an array."""
    found = text_values(array(element, cells), element)
    if pa.types.is_temporal(found.type):
        found = _texts(found)
    if pa.types.is_string(found.type):
        for letter in ("\\", '"'):
            found = pc.replace_substring(found, letter, f"\\{letter}")
        found = pc.binary_join_element_wise('"', found, '"', "")
    return found.cast(pa.string()).fill_null("NULL")


def _texts(moments: pa.Array) -> pa.Array:
    """Arrow writes a zone at four times the price of the rest."""
    if not pa.types.is_timestamp(moments.type) or moments.type.tz is None:
        return moments.cast(pa.string())
    texts = moments.cast(pa.timestamp(moments.type.unit)).cast(pa.string())
    return pc.binary_join_element_wise(texts, "Z", "")


def _single(text: str, field: pa.Field) -> str:
    """One array of any depth, or what is to be read as PostgreSQL's own."""
    element = _element(field.metadata[Note.ELEMENT])
    try:
        if text.startswith("["):
            leaves: list[bytes] = []
            shape = _shape(text, leaves, flat=kind_of(element) == Kind.JSON)
            return _fill(shape, iter(_leaves(leaves, element)), delimiter(element))
        own = _text(text) if text.startswith('"') else text
    except _UNFIT as error:
        reason = error.reason if isinstance(error, RejectedRecord) else str(error)
        raise PostgresqlFailure(reason, _REFUSED, column=field.name) from None
    check_literal(own, element, field.name)
    return own


def _shape(text: str | bytes, leaves: list[bytes], *, flat: bool) -> list[Any]:
    """The array with None for each element; an inner array may be an element itself."""
    found: list[Any] = []
    for part in map(bytes, _parts(text)):
        if part.startswith(b"[") and not flat:
            found.append(_shape(part, leaves, flat=flat))
        else:
            leaves.append(part)
            found.append(None)
    return found


def _leaves(leaves: Sequence[bytes], element: pa.Field) -> list[str]:
    """Arrays of text take the JSON of other values."""
    if pa.types.is_string(element.type) and kind_of(element) is None:
        leaves = [_as_text(leaf) for leaf in leaves]
    kind = _plain(element)
    cells = [_cell(leaf, kind, number) for number, leaf in enumerate(leaves, 1)]
    found: list[str] = _items(cells, element).to_pylist()
    return found


def _as_text(leaf: bytes) -> bytes:
    """A JSON value as a JSON text, without blanks; texts and null stay."""
    if leaf[:1] == b'"' or leaf == b"null":
        return leaf
    return _as_json(bytes(msgspec.json.format(leaf, indent=-1)).decode())


def _cell(leaf: bytes, kind: Any, number: int) -> Any:
    try:
        return decode_json(leaf, kind)
    except msgspec.MsgspecError as error:
        raise RejectedRecord("sink", f"element {number}: {error}") from None


def _plain(element: pa.Field) -> Any:
    kind = value_type(as_text(element))
    return kind if kind is msgspec.Raw else kind | None


def _fill(shape: Sequence[Any], texts: Any, between: str) -> str:
    parts = (next(texts) if one is None else _fill(one, texts, between) for one in shape)
    return "{" + between.join(parts) + "}"
