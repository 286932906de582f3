"""JSON messages to Arrow columns in a sink's schema: each value stored exactly, or rejected alone.

Every value is decoded by itself into a struct made from the schema (a value may hold raw newlines,
and one bad value must not hurt its neighbours). What does not fit is a `Rejection` that names the
column and the reason. Rules that JSON leaves open are settled here:

- integers stay exact; a fraction, or a number beyond the column's range, is rejected
- `numeric` columns keep the digits as sent; `json` columns keep the text as sent
- an absent key is not null: it sets the row's bit in ABSENT
- a record with a duplicate key is rejected; inside a `json` column the target decides
- times are RFC 3339 or ISO 8601; one with a zone is required where the column has a zone
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import override

from dataflow_assets.contracts import ABSENT, DELETE, OFFSET, OP, Note, Rejection
from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats import json_times
from dataflow_assets.formats.json_checks import check_bodies, count_quotes
from dataflow_assets.formats.json_columns import Mask, array, column
from dataflow_assets.formats.json_structs import decoder
from dataflow_assets.formats.json_tombstones import (
    DECODE_ERRORS,
    REJECT_NULLS,
    KeyDecoder,
    Tombstones,
    reason,
    with_deletes,
)
from dataflow_assets.formats.message_format import Group, Grouped, MessageFormat, Texts

__all__ = ["Decoded", "JsonDecoder", "Tombstones"]
_NO_TEXT = re.compile(r"Expected `str.* - at `\$\.(.*?)(?:\[[0-9.]*\])*`$")
_REFUSALS = (RejectedRecord, pa.ArrowException, *DECODE_ERRORS)
_BYTES = 5
_MAGIC = b"\0"


@dataclass(frozen=True)
class Decoded:
    """Rows in the schema plus system columns, and the records that could not be decoded."""

    rows: pa.RecordBatch
    rejected: list[Rejection]


class JsonDecoder:
    """Decodes batches of messages for one schema; made once per task, keeps no state between."""

    def __init__(
        self,
        schema: pa.Schema,
        unknown_fields: Literal["reject", "ignore"] = "reject",
        tombstones: Tombstones = REJECT_NULLS,
        *,
        ignore_case: bool = False,
    ) -> None:
        self.schema = schema
        self.tombstones = tombstones
        strict = unknown_fields == "reject"
        columns = map(json_times.as_text, schema)
        self._decode = decoder(columns, forbid_unknown=strict, ignore_case=ignore_case)
        self._cells = [_cells_of(f"c{at}") for at in range(len(schema))]
        self._keys = KeyDecoder(schema, tombstones, ignore_case=ignore_case)
        self._nested = {field.name for field in schema if pa.types.is_nested(field.type)}
        self._no_nul = Note.NO_NUL.marks(schema)

    def decode(self, bodies: pa.Array, offsets: pa.Array, keys: pa.Array | None = None) -> Decoded:
        """`bodies` binary, `offsets` int64, `keys` binary where tombstones delete."""
        if bodies.null_count:
            return self._with_tombstones(bodies, offsets, keys)
        try:
            return Decoded(self._rows(bodies, offsets), [])
        except _REFUSALS:
            rejected = list(self._refusals(bodies, offsets))
            refused = pa.array([rejection.offset for rejection in rejected], pa.int64())
            good = pc.invert(pc.is_in(offsets, refused))
            return Decoded(self._rows(bodies.filter(good), offsets.filter(good)), rejected)

    def _refusals(self, bodies: pa.Array, offsets: pa.Array) -> Iterator[Rejection]:
        """Finds the values that do not fit by halving; the good halves cost one decode each."""
        try:
            self._rows(bodies, offsets)
        except _REFUSALS as error:
            half = len(bodies) // 2
            if half == 0:
                body = bodies[0].as_py()
                why = self._of_times(_explain(body, error))
                yield Rejection(offsets[0].as_py(), "decode", why, body)
                return
            yield from self._refusals(bodies[:half], offsets[:half])
            yield from self._refusals(bodies[half:], offsets[half:])

    def _of_times(self, why: str) -> str:
        """A reason in the words of the column's type: the decoder has read its times as texts."""
        match = _NO_TEXT.search(why)
        if match is None or match[1] not in self.schema.names:
            return why
        word = json_times.word(self.schema.field(match[1]).type)
        return why.replace("`str", f"`{word}", 1) if word else why

    def _rows(self, bodies: pa.Array, offsets: pa.Array) -> pa.RecordBatch:
        """All bodies as one batch; raises when a single one of them does not fit."""
        rows = list(map(self._decode, bodies.to_pylist()))
        arrays: list[pa.Array] = []
        absent: dict[int, Mask] = {}
        quotes = 0
        for index, (field, cells_of) in enumerate(zip(self.schema, self._cells, strict=True)):
            cells = cells_of(rows)
            built, mask = column(field, cells)
            arrays.append(built)
            if mask is not None:
                absent[index] = mask
            missing = 0 if mask is None else int(np.count_nonzero(mask))
            quotes += count_quotes(field, cells, built, missing)
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
        key_texts = keys.filter(null).to_pylist() if keys is not None else [None] * len(where)
        deletes, rejected = self._deletes(where, key_texts)
        rows = with_deletes(decoded.rows, deletes) if deletes.num_rows else decoded.rows
        return Decoded(rows, [*decoded.rejected, *rejected])

    def _deletes(
        self, where: list[int], keys: list[bytes | None]
    ) -> tuple[pa.RecordBatch, list[Rejection]]:
        rows: list[dict[str, Any]] = []
        offsets: list[int] = []
        rejected: list[Rejection] = []
        for offset, key in zip(where, keys, strict=True):
            try:
                rows.append(self._keys.deleted_key(key))
                offsets.append(offset)
            except RejectedRecord as error:
                rejected.append(Rejection(offset, "decode", error.reason, None, key=key))
        return self._delete_batch(rows, offsets), rejected

    def _delete_batch(self, rows: list[dict[str, Any]], offsets: list[int]) -> pa.RecordBatch:
        keys = self.tombstones.key_columns
        absent = {
            index: np.ones(len(rows), dtype=bool)
            for index, name in enumerate(self.schema.names)
            if name not in keys
        }
        arrays = [array(field, [row.get(field.name) for row in rows]) for field in self.schema]
        batch = self._assemble(arrays, pa.array(offsets, pa.int64()), absent)
        return batch.append_column(OP, pa.array([DELETE] * len(rows), pa.int8()))


def _cells_of(name: str) -> Callable[[Sequence[Any]], list[Any]]:
    """Reads one member of every row; written-out access takes half of what attrgetter does."""
    cells: Callable[[Sequence[Any]], list[Any]]
    cells = eval(f"lambda rows: [row.{name} for row in rows]")  # noqa: S307 - c0, c1 and so on
    return cells


def _masks(absent: dict[int, Mask], width: int, rows: int) -> pa.Array:
    bits = np.zeros((rows, width), dtype=bool)
    for index, mask in absent.items():
        bits[:, index] = mask
    packed = np.packbits(bits, axis=1, bitorder="little")
    data = pa.py_buffer(packed.tobytes())
    return pa.Array.from_buffers(pa.binary(packed.shape[1]), rows, [None, data]).cast(pa.binary())


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
    if "truncated" in str(error) and _is_json(value):
        return "half of a surrogate pair (\\ud800 to \\udfff alone) is no character"
    return reason(error)


def _is_json(value: bytes) -> bool:
    try:
        json.loads(value)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class HeadedJsonFormat(MessageFormat):
    """JSON as serializers of a schema registry write it; the numbers are not looked up.

    The byte 0 and four bytes with the number of a schema come before the value. No JSON text
    begins with that byte, so a message without such a head is read as it is.
    """

    @override
    def columns(self, bodies: pa.Array, as_json: frozenset[str] = frozenset()) -> Grouped:
        at = np.flatnonzero(bodies.is_valid().to_numpy(zero_copy_only=False))
        return Grouped([Group(at, _values(bodies.drop_null()))] if len(at) else [])

    @override
    def texts(self, bodies: pa.Array) -> Texts:
        return Texts(_values(bodies))


def _values(bodies: pa.Array) -> pa.Array:
    if not pc.any(pc.starts_with(bodies, _MAGIC)).as_py():
        return bodies
    return pa.array([_value(body) for body in bodies.to_pylist()], pa.binary())


def _value(body: bytes | None) -> bytes | None:
    return body[_BYTES:] if body and body.startswith(_MAGIC) else body
