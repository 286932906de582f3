"""Values of one Avro schema as columns or JSON; what does not fit is found by halving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from dataflow_assets.errors import RejectedRecord
from dataflow_assets.formats.avro_blocks import UNFIT, AvroReader, why
from dataflow_assets.formats.avro_columns import AvroColumns
from dataflow_assets.formats.avro_cursor import Block, Ints, Misfit
from dataflow_assets.formats.avro_events import key_types, row_types
from dataflow_assets.formats.avro_json import whole_texts
from dataflow_assets.formats.avro_resolution import resolution
from dataflow_assets.formats.avro_schema import AvroSchema
from dataflow_assets.formats.avro_vectors import Vectors

Part: TypeAlias = "pa.RecordBatch | pa.Array"


class AvroDecoder:
    """Decodes values of one schema; made once per process."""

    def __init__(
        self, name: str, schema: AvroSchema, reader: AvroSchema | None, as_json: frozenset[str]
    ) -> None:
        """Raises ValueError where no value of the schema is one of the reader's."""
        self.name = name
        self._optional = schema.optional_record()
        schema = self._optional[0] if self._optional else schema
        optional = reader and reader.optional_record()
        self._takes_null = reader is None or optional is not None
        target = optional[0] if optional else reader or schema
        self.row_types = row_types(target)
        """Of change events: what converts the values of rows."""
        self.key_types = key_types(target)
        self._columns = AvroColumns.of(target, as_json)
        self._texts = whole_texts(target)
        self._vectors = None if reader else Vectors.of(schema, as_json)
        self._read = AvroReader(schema, as_columns=self._columns is not None)
        self._change = resolution(schema, target) if reader else None

    def unwrap(self, at: Ints, block: Block, refused: dict[int, str]) -> tuple[Ints, Block, Ints]:
        """Separates records from nulls, where the schema is a record or null.

        So Kafka Connect writes what may be null. `refused` gets the values that are neither.
        """
        none = at[:0]
        if self._optional is None or not len(at):
            return at, block, none
        _, record, null = self._optional
        filled = block.ends > block.starts
        first = np.where(filled, block.data[np.where(filled, block.starts, 0)], 255)
        is_record = first == 2 * record
        is_null = (first == 2 * null) & (block.ends == block.starts + 1)
        for row in np.flatnonzero(~(is_record | (is_null & self._takes_null))):
            refused[int(at[row])] = f"{self.name}: {_no_record(is_null=bool(is_null[row]))}"
        kept = Block(block.data, block.starts[is_record] + 1, block.ends[is_record])
        return at[is_record], kept, at[is_null] if self._takes_null else none

    def at_once(self, block: Block) -> pa.RecordBatch | None:
        """Columns of simple types; None where values must be looked at one by one."""
        if self._vectors is None or self._columns is None:
            return None
        try:
            return self._vectors(block)
        except (Misfit, *UNFIT):
            return None

    def __call__(self, values: Sequence[bytes]) -> Part:
        """Columns, or JSON texts of what are no records. Raises one of UNFIT."""
        cells = self._read(values)
        if self._change is not None:
            cells = [self._change(one) for one in cells]
        return self._texts(cells) if self._columns is None else self._columns.build(cells)

    def explain(self, value: bytes, error: Exception) -> str:
        """Why a value is refused, in words."""
        if not isinstance(error, RejectedRecord):
            error = self._read.own_error(value) or error
        return f"{self.name}: {why(error)}"


def decode_block(
    decoder: AvroDecoder, at: Ints, block: Block, refused: dict[int, str]
) -> Iterator[tuple[int, int, Part]]:
    """Pieces of the values as columns; what does not fit is found by halving."""
    if not len(block):
        return
    if (part := decoder.at_once(block)) is not None:
        yield 0, len(block), part
        return
    values, waiting = block.values(), [(0, len(block))]
    while waiting:
        first, count = waiting.pop()
        try:
            yield first, count, decoder(values[first : first + count])
        except UNFIT as error:
            if count == 1:
                refused[int(at[first])] = decoder.explain(values[first], error)
            else:
                half = count // 2
                waiting += [(first + half, count - half), (first, half)]


def _no_record(*, is_null: bool) -> str:
    if is_null:
        return "null, which the reader's schema does not take"
    return "neither a record nor null, which the schema has"


@lru_cache(maxsize=256)
def make_decoder(
    name: str, text: str, references: tuple[str, ...], reader: str | None, as_json: frozenset[str]
) -> AvroDecoder | str:
    """The decoder, or why there can be none: each message would look for the reason again."""
    try:
        schema = AvroSchema(text, references)
    except (ValueError, RecursionError) as error:
        return f"{name} cannot be used: {error}"
    try:
        return AvroDecoder(name, schema, AvroSchema(reader) if reader else None, as_json)
    except (ValueError, RecursionError) as error:
        return f"{name} cannot be read as avroReaderSchema: {error}"


def usable(result: AvroDecoder | str) -> AvroDecoder:
    """Raises RejectedRecord with the reason where there is none."""
    if isinstance(result, str):
        raise RejectedRecord("decode", result)
    return result
