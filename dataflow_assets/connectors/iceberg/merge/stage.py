"""Rows that wait to be merged: files that no snapshot lists, and what the driver asks of them.

They lie among the table's data files under names that the orphan sweep knows; the driver deletes
them once they are merged.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    LessThanOrEqual,
    Reference,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, PrimitiveType, UUIDType

from dataflow_assets.connectors.iceberg.table.data_files import ParquetFile, WriteTarget
from dataflow_assets.connectors.iceberg.table.encode import encode
from dataflow_assets.connectors.iceberg.table.file_writer import ROW_GROUP_BYTES
from dataflow_assets.connectors.iceberg.types import file_schema
from dataflow_assets.contracts import ABSENT, OP, Rejection, system_name
from dataflow_assets.sdk.key_folding import deletes

AT = system_name("at")  # the order of the rows
NAMED = 200  # distinct values of a column up to which files are looked for by value
_SYSTEM = (pa.field(AT, pa.int64()), pa.field(OP, pa.int8()), pa.field(ABSENT, pa.binary()))


class IcebergStage:
    """Stages the rows of one slice, inside a task."""

    def __init__(
        self, target: WriteTarget, name: str, names: list[str], key: Sequence[str]
    ) -> None:
        self._target, self._name, self._key = target, f"{name}-merge", key
        columns = file_schema(target.iceberg_schema, names)
        whole = [f.with_nullable(f.nullable and f.name not in key) for f in columns]
        self._upserts = pa.schema([*whole, *_SYSTEM])
        self._deletes = pa.schema(
            [*[f.with_nullable(f.name not in key) for f in columns], *_SYSTEM]
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = self._rows = 0
        self._done: list[str] = []
        self._paths: list[str] = []

    def write(self, rows: pa.RecordBatch) -> list[Rejection]:
        """Takes rows with their system columns; returns those that do not fit."""
        order = pa.array(np.arange(self._rows, self._rows + rows.num_rows))
        self._rows += rows.num_rows
        rows = rows.append_column(AT, order)
        deleted = pa.array(deletes(rows))
        refused: list[Rejection] = []
        for part, schema in (
            (rows.filter(pc.invert(deleted)), self._upserts),
            (rows.filter(deleted), self._deletes),
        ):
            if part.num_rows:
                batch, bad = encode(part, schema)
                self._waiting.append(batch)
                self._waiting_bytes += batch.nbytes
                if self._waiting_bytes >= ROW_GROUP_BYTES:
                    self._flush()
                refused += bad
        return refused

    def _flush(self) -> None:
        if not sum(batch.num_rows for batch in self._waiting):
            return
        rows = pa.Table.from_batches([b.cast(self._deletes) for b in self._waiting], self._deletes)
        self._waiting, self._waiting_bytes = [], 0
        file = ParquetFile(self._target, self._deletes, self._name)
        self._paths.append(file.path)
        file.write(rows)
        file.close()
        entry: dict[str, Any] = {"path": file.path, "rows": rows.num_rows, "bytes": rows.nbytes}
        entry["schema"] = self._target.iceberg_schema.schema_id
        entry["keys"] = {name: _values(rows.column(name), name, self._target) for name in self._key}
        self._done.append(json.dumps(entry))

    def close(self) -> tuple[str, ...]:
        self._flush()
        return tuple(self._done)

    def abort(self) -> None:
        """Drops the files: nobody else has been told of them."""
        for path in self._paths:
            with suppress(OSError):
                self._target.file_io().delete(path)
        self._paths, self._done, self._waiting = [], [], []


def _values(column: pa.ChunkedArray, name: str, target: WriteTarget) -> dict[str, Any]:
    """The least and the greatest value, and all of them where they are few."""
    kind = target.iceberg_schema.find_type(name)
    distinct = pc.unique(column)
    some = distinct.to_pylist() if len(distinct) <= NAMED else []
    fixed = pa.types.is_fixed_size_binary(distinct.type)
    order = pc.sort_indices(distinct.cast(pa.binary()) if fixed else distinct)
    ends = [distinct[int(order[0])].as_py(), distinct[int(order[-1])].as_py()]
    return {"ends": [_text(kind, v) for v in ends], "some": [_text(kind, v) for v in some]}


def _text(kind: object, value: Any) -> str:
    assert isinstance(kind, PrimitiveType)  # noqa: S101 - a key's column is
    return base64.b64encode(to_bytes(kind, value)).decode()


@dataclass(frozen=True)
class IcebergStaged:
    """The staged files of a span, in order."""

    documents: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, texts: Sequence[str]) -> IcebergStaged:
        return cls(tuple(json.loads(text) for text in texts))

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(str(document["path"]) for document in self.documents)

    @property
    def rows(self) -> int:
        return sum(int(document["rows"]) for document in self.documents)

    def fits(self, schema: Schema) -> bool:
        """True where the rows were staged for these columns."""
        return all(document["schema"] == schema.schema_id for document in self.documents)

    @property
    def bytes(self) -> int:
        return sum(int(document["bytes"]) for document in self.documents)

    def filter(self, schema: Schema, key: Sequence[str]) -> BooleanExpression:
        """A condition that all stored rows of these keys fulfil; it selects files."""
        expression: BooleanExpression = AlwaysTrue()
        for name in key:
            for one in self._of(name, schema):
                expression = And(expression, one)
        return expression

    def _of(self, name: str, schema: Schema) -> Iterator[BooleanExpression]:
        kind = schema.find_type(name)
        assert isinstance(kind, PrimitiveType)  # noqa: S101 - a key's column is
        parts = [document["keys"][name] for document in self.documents]
        if isinstance(kind, (BooleanType, UUIDType)):  # PyIceberg does not compare these
            return
        column = Reference(name)
        values = {value for part in parts for value in part["some"]}
        if len(values) <= NAMED and all(part["some"] for part in parts):
            yield In(term=column, values={literal(_value(kind, text)) for text in values})
            return
        ends = [_value(kind, text) for part in parts for text in part["ends"]]
        yield GreaterThanOrEqual(term=column, value=literal(min(ends)))
        yield LessThanOrEqual(term=column, value=literal(max(ends)))

    def drop(self, io: FileIO) -> None:
        """Deletes the files; one left behind costs space only."""
        for path in self.paths:
            with suppress(OSError):
                io.delete(path)


def _value(kind: PrimitiveType, text: str) -> Any:
    return from_bytes(kind, base64.b64decode(text))
