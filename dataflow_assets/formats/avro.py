"""Avro messages to columns or JSON: by one schema, or by the registry's schema that each names.

A message of a registry begins with the byte 0 and the number of its schema in four bytes; the rest
is the value. Messages of one schema are decoded together (`avro_blocks`), straight to columns
(`avro_columns`). What a schema or a message has wrong costs the messages concerned, each with the
reason; what the registry has wrong is an error of the micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.avro_cursor import Block, Ints
from dataflow_assets.formats.avro_decoder import (
    AvroDecoder,
    Part,
    decode_block,
    make_decoder,
    usable,
)
from dataflow_assets.formats.avro_events import event_with_types, with_types
from dataflow_assets.formats.message_format import Group, Grouped, MessageFormat, Schemas, Texts
from dataflow_assets.formats.rows import cells
from dataflow_assets.records.connect_times import Convert
from dataflow_assets.records.record import exact_json

HEAD_BYTES = 5
MAGIC = b"\0"
_AVRO = "AVRO"


@dataclass(frozen=True)
class AvroFormat(MessageFormat):
    """Decodes the Avro messages of one topic.

    `schema`: of messages without a number of their own, as JSON text. `schemas`: those that a
    message names by its number. `reader`: the schema that the result is to have, whatever schema a
    message was written with. `head_ignored`: magic byte and number of each message are removed and
    the rest is decoded by `schema`; where it does not fit, the message is decoded as a whole.
    """

    schema: str | None = None
    schemas: Schemas | None = None
    reader: str | None = None
    head_ignored: bool = False
    keys_named: bool = False
    """Keys are values of the registry's schemas, too."""
    keys_as_json: bool = False
    """A key that is a lone text has its quotation marks; else it stands for itself."""
    but: frozenset[str] | None = None
    """Where steps read change events: the fields of rows that are left as they are in texts."""
    of_keys: bool = False
    """The messages are keys."""

    @override
    def columns(self, bodies: pa.Array, as_json: frozenset[str] = frozenset()) -> Grouped:
        refused: dict[int, str] = {}
        groups = [group for _, group in self._with_numbers(bodies, as_json, refused)]
        return Grouped(groups, refused)

    @override
    def of_events(self, but: frozenset[str]) -> AvroFormat:
        return replace(self, but=but)

    def _with_numbers(
        self, bodies: pa.Array, as_json: frozenset[str], refused: dict[int, str]
    ) -> Iterator[tuple[int | None, Group]]:
        """The values of each schema, with the number of the schema."""
        for number, rows, values in self._by_schema(bodies, refused):
            for group in self._groups(number, rows, values, as_json, refused):
                yield number, group
        if self.head_ignored and refused:
            for group in self._whole(bodies, as_json, refused):
                yield None, group

    def _groups(
        self,
        number: int | None,
        rows: Ints,
        values: Block,
        as_json: frozenset[str],
        refused: dict[int, str],
    ) -> Iterator[Group]:
        """The values of one schema; `refused` gets those that do not fit it."""
        try:
            decoder = self._decoder(number, as_json)
        except RejectedRecord as error:
            refused |= dict.fromkeys(rows.tolist(), error.reason)
            return
        at, block, null = decoder.unwrap(rows, values, refused)
        if len(null):
            yield Group(null, pa.array([b"null"] * len(null), pa.binary()))
        kept, parts = [], []
        for first, count, part in decode_block(decoder, at, block, refused):
            kept.append(at[first : first + count])
            parts.append(part)
        if parts:
            yield Group(np.concatenate(kept), _join(parts))

    def _whole(
        self, bodies: pa.Array, as_json: frozenset[str], refused: dict[int, str]
    ) -> Iterator[Group]:
        """Decodes as a whole what begins with 0 and does not fit after five bytes.

        Leaves in `refused` what does not fit as a whole either, with the reason of the first try.
        """
        block = Block.of(bodies)
        rows = np.array(sorted(refused), np.int64)
        rows = rows[_have_head(block, np.isin(np.arange(len(block)), rows))[rows]]
        if not len(rows):
            return
        again: dict[int, str] = {}
        whole = Block(block.data, block.starts[rows], block.ends[rows])
        yield from self._groups(None, rows, whole, as_json, again)
        for row in set(rows.tolist()) - set(again):
            del refused[row]

    @override
    def texts(self, bodies: pa.Array) -> Texts:
        refused: dict[int, str] = {}
        texts: list[bytes | None] = [None] * len(bodies)
        for number, group in self._with_numbers(bodies, frozenset(), refused):
            at = group.at.tolist()
            types = self._types(number)
            if types and isinstance(group.rows, pa.RecordBatch):
                events = self._events(at, group.rows, types, refused)
            else:
                events = zip(at, as_texts(group.rows), strict=True)
            for row, text in events:
                texts[row] = text
        return Texts(pa.array(texts, pa.binary()), refused)

    def _types(self, number: int | None) -> Mapping[str, Convert]:
        if self.but is None:
            return {}
        decoder = self._decoder(number, frozenset())
        return decoder.key_types if self.of_keys else decoder.row_types

    def _events(
        self,
        at: Sequence[int],
        rows: pa.RecordBatch,
        types: Mapping[str, Convert],
        refused: dict[int, str],
    ) -> Iterator[tuple[int, bytes]]:
        """Change events with the values of their rows; `refused` gets those that have none."""
        change = with_types if self.of_keys else event_with_types
        for row, event in zip(at, _objects(rows), strict=True):
            try:
                yield row, exact_json(change(event, types, self.but or ()))
            except RejectedRecord as error:
                refused[row] = error.reason

    @override
    def keys(self, keys: pa.Array) -> Texts:
        if not self.keys_named:
            return Texts(keys)
        texts = AvroFormat(schemas=self.schemas, but=self.but, of_keys=True).texts(keys)
        read = texts.texts.to_pylist()
        return Texts(
            pa.array(read if self.keys_as_json else map(_unquote, read), pa.binary()),
            {row: f"key: {reason}" for row, reason in texts.refused.items()},
        )

    def _by_schema(
        self, bodies: pa.Array, refused: dict[int, str]
    ) -> Iterator[tuple[int | None, Ints, Block]]:
        """The values of each schema, by the number that names it; None for the static schema."""
        block = Block.of(bodies)
        valid = bodies.is_valid().to_numpy(zero_copy_only=False)
        headed = np.zeros(len(block), np.bool_)
        if self.schemas is not None or self.head_ignored:
            headed = _have_head(block, valid)
        if self.head_ignored:
            at = np.flatnonzero(valid)
            if len(at):
                yield None, at, _after_head(block, at, headed[at])
            return
        at = np.flatnonzero(headed)
        numbers = _numbers(block, at)
        for number in np.unique(numbers).tolist():
            rows = at[numbers == number]
            yield number, rows, _after_head(block, rows, np.ones(len(rows), np.bool_))
        at = np.flatnonzero(valid & ~headed)
        if self.schema is None:
            refused |= {int(row): _no_head(bodies[int(row)].as_py()) for row in at}
        elif len(at):
            yield None, at, Block(block.data, block.starts[at], block.ends[at])

    def _decoder(self, number: int | None, as_json: frozenset[str]) -> AvroDecoder:
        """Raises RejectedRecord where the schema cannot be used."""
        if number is None:
            return usable(
                make_decoder("the Avro schema", self.schema or "", (), self.reader, as_json)
            )
        assert self.schemas is not None  # noqa: S101 - or no message would have a head
        schema = self.schemas.by_id(number)
        name = f"schema {number} of the registry"
        if schema.kind != _AVRO:
            raise RejectedRecord("decode", f"{name} is of type {schema.kind}, and not Avro")
        references = tuple(text for _, text in schema.references)
        return usable(make_decoder(name, schema.text, references, self.reader, as_json))


def _have_head(block: Block, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which of these rows can have a head."""
    have = rows & (block.ends - block.starts > HEAD_BYTES)
    have[have] = block.data[block.starts[have]] == 0
    return have


def _after_head(block: Block, rows: Ints, headed: npt.NDArray[np.bool_]) -> Block:
    """The values of these rows, behind the heads of those that have one."""
    starts = block.starts[rows] + HEAD_BYTES * headed
    return Block(block.data, starts, block.ends[rows])


def _numbers(block: Block, rows: Ints) -> Ints:
    """The numbers of the schemas that these messages name."""
    numbers = np.zeros(len(rows), np.int64)
    for at in range(1, HEAD_BYTES):
        numbers = numbers << 8 | block.data[block.starts[rows] + at]
    return numbers


def _unquote(text: bytes | None) -> bytes | None:
    """A key that is a lone text stands for itself."""
    return msgspec.json.decode(text, type=str).encode() if text and text[:1] == b'"' else text


def as_texts(rows: Part) -> list[bytes]:
    """Each row as a JSON object, keys in the order of the schema."""
    if isinstance(rows, pa.Array):
        return rows.to_pylist()  # type: ignore[no-any-return]
    if not rows.num_columns:
        return [b"{}"] * rows.num_rows
    return list(map(exact_json, _objects(rows)))


def _objects(rows: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    names = rows.schema.names
    columns = [cells(rows.column(i), rows.schema.field(i)) for i in range(rows.num_columns)]
    return (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def _join(parts: Sequence[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts) if isinstance(parts[0], pa.Array) else pa.concat_batches(parts)


def _no_head(body: bytes) -> str:
    if body[:1] == MAGIC:
        return f"only {len(body)} bytes: no number of a schema and value behind the byte 0"
    first = f"the byte {body[0]}" if body else "nothing"
    return (
        f"begins with {first} and not with the byte 0 and the number of a schema, and there is no "
        "avroSchema for messages without a number"
    )
