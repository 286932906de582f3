"""What the server puts where a record has no key, in columns for which a null cannot ask it.

Of numbers, plain texts and points in time, a null in an INSERT stands for the column's default. Of
what the server makes of text (a UUID, say), of arrays, maps and tuples, and of what may be NULL
itself, it does not. Such a column is left out of an INSERT whose rows all lack it. Where only some
of them do, these are inserted into a table of the same columns in memory, and read from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.client import (
    Client,
    insert,
    known_settings,
    quote,
    stream,
)
from dataflow_assets.connectors.clickhouse.errors import ClickhouseFailure, failing
from dataflow_assets.connectors.clickhouse.sink.upsert_rules import deletes
from dataflow_assets.connectors.clickhouse.type_names import ClickhouseType
from dataflow_assets.connectors.clickhouse.types import CLICKHOUSE_TYPE, SINK_TEXT
from dataflow_assets.contracts import ABSENT, UNKNOWN, Note, kind_of
from dataflow_assets.sdk.key_folding import Bools, Ints, matrix

_BESIDE_NULLABLE = frozenset({"Dynamic", "Variant"})
"""Types whose NULL does not arrive where nulls stand for defaults."""


class Defaults:
    """Of one table."""

    def __init__(self, client: Client, place: tuple[str, str], schema: pa.Schema) -> None:
        self._client = client
        self._database, self._name = place
        self._schema = schema
        self._null_is_default = not any(map(_is_beside_nullable, schema))
        self._asked = np.array([self._asks(field) for field in schema], np.bool_)

    @property
    def settings(self) -> Mapping[str, object]:
        return {"input_format_null_as_default": int(self._null_is_default)}

    def fill(self, rows: pa.Table) -> pa.Table:
        """The columns that an INSERT of some rows gives. Raises Failure.

        Args:
            rows: the sink's columns, and others; ABSENT as `absent_masks` has it.
        """
        (batch,) = rows.select([ABSENT]).combine_chunks().to_batches()
        numbers, masks = matrix(batch, len(self._schema))
        left: Bools = np.asarray(masks.all(axis=0))
        if left.sum() == rows.num_columns - 1:
            left[np.argmin(self._asked)] = False  # rows need a column
        rows = rows.drop_columns([ABSENT, *self._names(left)])
        return self._evaluate(rows, numbers, masks & self._asked & ~left)

    def _evaluate(self, rows: pa.Table, numbers: Ints, masks: Bools) -> pa.Table:
        """With what is lacking. `masks`: by its number which columns a row lacks."""
        lacking, places = np.unique(masks, axis=0, return_inverse=True)
        for place, mask in enumerate(lacking):
            if names := self._names(mask):
                at = np.flatnonzero(places.reshape(-1)[numbers] == place)
                values = self._values(rows.take(pa.array(at)), names)
                rows = _replace_rows(rows, at, values)
        return rows

    def _values(self, rows: pa.Table, names: list[str]) -> pa.Table:
        schema = pa.schema([rows.schema.field(name).remove_metadata() for name in names])
        selected = (_select(self._schema.field(name)) for name in names)
        columns = ", ".join(
            f"{value} AS {quote(name)}" for value, name in zip(selected, names, strict=True)
        )
        with self._memory() as place, failing():
            self._insert(place, rows, names)
            query = f"SELECT {columns} FROM {place}"  # noqa: S608 - names are quoted
            in_order = {"max_threads": 1, **types.settings_of(query)}
            with stream(self._client, query, settings=in_order) as batches:
                found = [
                    pa.RecordBatch.from_arrays(each.columns, schema=schema) for each in batches
                ]
        if sum(each.num_rows for each in found) != rows.num_rows:
            raise ClickhouseFailure(
                f"{place} has not the rows that were inserted; is it another server's?"
            )
        return pa.Table.from_batches(found, schema)

    def _insert(self, place: str, rows: pa.Table, lacking: list[str]) -> None:
        given = rows.drop_columns(lacking)
        if given.num_columns == 0:
            values = ", ".join(["(DEFAULT)"] * rows.num_rows)
            # S608: names are quoted
            self._client.command(f"INSERT INTO {place} ({quote(lacking[0])}) VALUES {values}")  # noqa: S608
            return
        settings = {"async_insert": 0, "wait_end_of_query": 1, **self.settings}
        insert(self._client, place, given, known_settings(self._client, settings))

    @contextmanager
    def _memory(self) -> Iterator[str]:
        """A table that has the target's columns and forgets its rows."""
        place = quote(self._database, f"dataflow_defaults_{uuid.uuid4().hex[:12]}")
        target = quote(self._database, self._name)
        with failing():
            self._client.command(f"CREATE TABLE {place} AS {target} ENGINE = Memory")
        try:
            yield place
        finally:
            with failing():
                self._client.command(f"DROP TABLE IF EXISTS {place}")

    def _asks(self, field: pa.Field) -> bool:
        if field.nullable:
            return Note.HAS_DEFAULT.marks(field)
        plain = kind_of(field) is None and not pa.types.is_nested(field.type)
        return not (plain and self._null_is_default)

    def _names(self, mask: Bools) -> list[str]:
        return [self._schema.names[index] for index in np.flatnonzero(mask)]


def absent_masks(rows: pa.Table) -> pa.ChunkedArray:
    """ABSENT, where what a change has left alone is there after all."""
    kept = rows.column(UNKNOWN).is_valid().to_numpy() & ~deletes(rows)
    none = pa.scalar(None, pa.binary())
    return pc.if_else(pa.chunked_array([pa.array(kept)]), none, rows.column(ABSENT))


def _is_beside_nullable(field: pa.Field) -> bool:
    return any(each.name in _BESIDE_NULLABLE for each in ClickhouseType.of(_type(field)).inside())


def _select(field: pa.Field) -> str:
    return types.select_expression(field.name, _type(field), SINK_TEXT)


def _type(field: pa.Field) -> str:
    found: bytes = field.metadata[CLICKHOUSE_TYPE]
    return found.decode()


def _replace_rows(rows: pa.Table, at: Ints, values: pa.Table) -> pa.Table:
    """The rows with other values at these indexes."""
    places = np.arange(rows.num_rows)
    places[at] = rows.num_rows + np.arange(len(at))
    for field in values.schema:
        index = rows.schema.get_field_index(field.name)
        both = [rows.column(index).combine_chunks(), values.column(field.name).combine_chunks()]
        column = pa.concat_arrays(both).take(pa.array(places))
        rows = rows.set_column(index, rows.schema.field(index), column)
    return rows
