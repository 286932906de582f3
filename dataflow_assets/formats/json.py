"""JSON messages to Arrow columns in a sink's schema: each value stored exactly, or rejected alone.

Every value is decoded by itself into a struct made from the schema (a value may hold raw newlines,
and one bad value must not hurt its neighbours). What does not fit is a `Rejection` that names the
column and the reason. Rules that JSON leaves open are settled here:

- integers stay exact; a fraction, or a number beyond the column's range, is rejected
- `numeric` columns keep the digits as sent; `json` columns keep the text as sent
- an absent key is not null: it sets the row's bit in ABSENT
- a key that stands twice is rejected; inside a `json` column the target decides
- timestamps are RFC 3339; one with a zone is required where the column has a zone
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from operator import attrgetter
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET
from msgspec.structs import astuple

from dataflow_assets.contracts import ABSENT, DELETE, INSERT, KIND, NO_NUL, OFFSET, OP, Rejection
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.json_checks import check_bodies, count_quotes, only_numbers
from dataflow_assets.formats.json_types import is_optional, struct_type

Mask = np.ndarray[Any, np.dtype[np.bool_]]
_NUMBER = r"^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$"
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_REFUSALS = (RejectedRecord, pa.ArrowException, *_DECODE_ERRORS)
_PLAIN = (datetime, date, time, Decimal, bytes)


@dataclass(frozen=True)
class Decoded:
    """Rows in the schema plus system columns, and the records that could not be decoded."""

    rows: pa.RecordBatch
    rejected: list[Rejection]


@dataclass(frozen=True)
class Tombstones:
    """What a null message means: an error, nothing, or the deletion of its key."""

    mode: Literal["reject", "skip", "delete"] = "reject"
    key_columns: tuple[str, ...] = ()


class JsonDecoder:
    """Decodes batches of messages for one schema; made once per task, keeps no state between."""

    def __init__(
        self,
        schema: pa.Schema,
        unknown_fields: Literal["reject", "ignore"] = "reject",
        tombstones: Tombstones = Tombstones(),
    ) -> None:
        self.schema = schema
        self.tombstones = tombstones
        row = struct_type(schema, forbid_unknown=unknown_fields == "reject")
        self._decode = msgspec.json.Decoder(row).decode
        self._cells = [attrgetter(name) for name in row.__struct_fields__]
        keys = [schema.field(name) for name in tombstones.key_columns]
        self._key = msgspec.json.Decoder(struct_type(keys, forbid_unknown=False)).decode
        self._nested = {field.name for field in schema if pa.types.is_nested(field.type)}
        self._no_nul = (schema.metadata or {}).get(NO_NUL) == b"1"

    def decode(self, bodies: pa.Array, offsets: pa.Array, keys: pa.Array | None = None) -> Decoded:
        """`bodies` binary, `offsets` int64, `keys` binary where tombstones delete."""
        if bodies.null_count:
            return self._with_tombstones(bodies, offsets, keys)
        try:
            return Decoded(self._rows(bodies, offsets), [])
        except _REFUSALS:
            return self._without_refused(bodies, offsets)

    def _without_refused(self, bodies: pa.Array, offsets: pa.Array) -> Decoded:
        rejected = list(self._refused(bodies, offsets))
        refused = pa.array([rejection.offset for rejection in rejected], pa.int64())
        good = pc.invert(pc.is_in(offsets, refused))
        return Decoded(self._rows(bodies.filter(good), offsets.filter(good)), rejected)

    def _refused(self, bodies: pa.Array, offsets: pa.Array) -> Iterator[Rejection]:
        """Finds the values that do not fit by halving; the good halves cost one decode each."""
        try:
            self._rows(bodies, offsets)
        except _REFUSALS as error:
            half = len(bodies) // 2
            if half == 0:
                body = bodies[0].as_py()
                yield Rejection(offsets[0].as_py(), "decode", _explain(body, error), body)
                return
            yield from self._refused(bodies[:half], offsets[:half])
            yield from self._refused(bodies[half:], offsets[half:])

    def _rows(self, bodies: pa.Array, offsets: pa.Array) -> pa.RecordBatch:
        """All bodies as one batch; raises when a single one of them does not fit."""
        rows = list(map(self._decode, bodies.to_pylist()))
        arrays: list[pa.Array] = []
        absent: dict[int, Mask] = {}
        quotes = 0
        for index, (field, cell) in enumerate(zip(self.schema, self._cells, strict=True)):
            cells = list(map(cell, rows))
            array, mask = _column(field, cells)
            arrays.append(array)
            if mask is not None:
                absent[index] = mask
            missing = 0 if mask is None else int(np.count_nonzero(mask))
            quotes += count_quotes(field, cells, array, missing)
        check_bodies(bodies, quotes, self._nested, no_nul=self._no_nul)
        return self._assemble(arrays, offsets, absent)

    def _assemble(
        self, arrays: list[pa.Array], offsets: pa.Array, absent: dict[int, Mask]
    ) -> pa.RecordBatch:
        fields = [*self.schema, pa.field(OFFSET, pa.int64())]
        arrays = [*arrays, offsets]
        if absent:
            fields.append(pa.field(ABSENT, pa.binary()))
            arrays.append(_masks(absent, len(self.schema), len(offsets)))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, self.schema.metadata))

    def _with_tombstones(
        self, bodies: pa.Array, offsets: pa.Array, keys: pa.Array | None
    ) -> Decoded:
        null = bodies.is_null()
        kept = pc.invert(null)
        decoded = self.decode(bodies.filter(kept), offsets.filter(kept))
        if self.tombstones.mode == "skip":
            return decoded
        where = offsets.filter(null).to_pylist()
        named = keys.filter(null).to_pylist() if keys is not None else [None] * len(where)
        deletes, rejected = self._deletes(where, named)
        rows = _with_deletes(decoded.rows, deletes) if deletes.num_rows else decoded.rows
        return Decoded(rows, [*decoded.rejected, *rejected])

    def _deletes(
        self, where: list[int], keys: list[bytes | None]
    ) -> tuple[pa.RecordBatch, list[Rejection]]:
        rows: list[dict[str, Any]] = []
        offsets: list[int] = []
        rejected: list[Rejection] = []
        for offset, key in zip(where, keys, strict=True):
            try:
                rows.append(self._deleted(key))
                offsets.append(offset)
            except RejectedRecord as error:
                rejected.append(Rejection(offset, "decode", error.reason, None, key=key))
        return self._delete_batch(rows, offsets), rejected

    def _deleted(self, key: bytes | None) -> dict[str, Any]:
        if self.tombstones.mode == "reject":
            raise RejectedRecord("decode", "null message; set tombstones: delete or skip to allow")
        columns = self.tombstones.key_columns
        if key is None or not columns:
            raise RejectedRecord(
                "decode", "null message without a key: nothing says what to delete"
            )
        try:
            found = dict(zip(columns, astuple(self._key(_key_object(key, columns))), strict=True))
            for name, cell in found.items():
                _key_cell(self.schema.field(name), cell)
        except (RejectedRecord, *_DECODE_ERRORS) as error:
            raise RejectedRecord("decode", f"key of a null message: {_reason(error)}") from None
        return found

    def _delete_batch(self, rows: list[dict[str, Any]], offsets: list[int]) -> pa.RecordBatch:
        keys = self.tombstones.key_columns
        absent = {
            index: np.ones(len(rows), dtype=bool)
            for index, name in enumerate(self.schema.names)
            if name not in keys
        }
        arrays = [_array(field, [row.get(field.name) for row in rows]) for field in self.schema]
        batch = self._assemble(arrays, pa.array(offsets, pa.int64()), absent)
        return batch.append_column(OP, pa.array([DELETE] * len(rows), pa.int8()))


def _column(field: pa.Field, cells: Sequence[Any]) -> tuple[pa.Array, Mask | None]:
    """The column, and where its key was absent (None: nowhere)."""
    if is_optional(field) and UNSET in cells:
        mask = np.fromiter((cell is UNSET for cell in cells), dtype=bool, count=len(cells))
        cells = [None if cell is UNSET else cell for cell in cells]
        return _named_array(field, cells), mask
    return _named_array(field, cells), None


def _named_array(field: pa.Field, cells: Sequence[Any]) -> pa.Array:
    try:
        return _array(field, cells)
    except (RejectedRecord, pa.ArrowException) as error:
        raise RejectedRecord("decode", f"column {field.name}: {_reason(error)}") from None


def _key_cell(field: pa.Field, cell: Any) -> None:
    """Raises RejectedRecord unless the key's column can hold the value."""
    if cell is UNSET:
        raise RejectedRecord("decode", f"column {field.name} is missing")
    _named_array(field, [cell])


def _array(field: pa.Field, cells: Sequence[Any]) -> pa.Array:
    kind = (field.metadata or {}).get(KIND)
    if kind == b"json":
        return _raw_text(cells)
    if kind == b"numeric":
        return _numbers(cells)
    if pa.types.is_struct(field.type):
        return _struct(field, cells)
    if pa.types.is_nested(field.type):
        return pa.array(msgspec.to_builtins(cells, builtin_types=_PLAIN), field.type)
    return pa.array(cells, field.type)


def _struct(field: pa.Field, cells: Sequence[Any]) -> pa.Array:
    """Column by column, which costs half of what a dictionary for each cell does."""
    null = pa.array([cell is None for cell in cells], pa.bool_()) if None in cells else None
    children = []
    for index, child in enumerate(field.type):
        member = attrgetter(f"c{index}")
        inner = [None if cell is None else member(cell) for cell in cells]
        if UNSET in inner:  # inside an object, absent and null are the same
            inner = [None if value is UNSET else value for value in inner]
        children.append(_array(child, inner))
    return pa.StructArray.from_arrays(children, fields=list(field.type), mask=null)


def _raw_text(cells: Sequence[Any]) -> pa.Array:
    """JSON text as sent; a JSON null is a null. The cast proves that it is valid UTF-8."""
    texts = [None if cell is None else bytes(cell) for cell in cells]
    if b"null" in texts:
        texts = [None if text == b"null" else text for text in texts]
    return pa.array(texts, pa.binary()).cast(pa.string())


def _numbers(cells: Sequence[Any]) -> pa.Array:
    """Digits as sent, from a number or from a string that holds one."""
    texts = _raw_text(cells)
    if only_numbers(texts):
        return texts
    texts = pc.utf8_trim(texts, '"')
    if not pc.all(pc.match_substring_regex(texts, _NUMBER), min_count=0).as_py():
        raise RejectedRecord("decode", "expected a number")
    return texts


def _masks(absent: dict[int, Mask], width: int, rows: int) -> pa.Array:
    bits = np.zeros((rows, width), dtype=bool)
    for index, mask in absent.items():
        bits[:, index] = mask
    packed = np.packbits(bits, axis=1, bitorder="little")
    data = pa.py_buffer(packed.tobytes())
    return pa.Array.from_buffers(pa.binary(packed.shape[1]), rows, [None, data]).cast(pa.binary())


def _with_deletes(rows: pa.RecordBatch, deletes: pa.RecordBatch) -> pa.RecordBatch:
    """Both, in the order of their offsets."""
    inserts = rows.append_column(OP, pa.array([INSERT] * rows.num_rows, pa.int8()))
    both = pa.concat_tables(
        [pa.Table.from_batches([inserts]), pa.Table.from_batches([deletes])],
        promote_options="default",
    )
    return both.sort_by(OFFSET).combine_chunks().to_batches()[0]


def _key_object(key: bytes, columns: tuple[str, ...]) -> bytes:
    """A message key as a JSON object: an object as it is; a lone value becomes the one column."""
    stripped = key.strip()
    if stripped.startswith(b"{"):
        return stripped
    name = json.dumps(columns[0]).encode()
    try:
        msgspec.json.decode(stripped)
    except _DECODE_ERRORS:
        stripped = json.dumps(key.decode("utf-8", "strict")).encode()
    return b"{" + name + b":" + stripped + b"}"


def _explain(value: bytes, error: Exception) -> str:
    """The reason in words; where the decoder is terse, what is really wrong with the bytes."""
    if not value.strip():
        return "empty value: expected a JSON object"
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as bad:
        return f"invalid UTF-8 at byte {bad.start}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return _reason(error)


def _reason(error: Exception) -> str:
    return error.reason if isinstance(error, RejectedRecord) else _first_line(error)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:500]
