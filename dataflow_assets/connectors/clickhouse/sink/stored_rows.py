"""Values of rows that are in the table, found by the keys of rows that will replace them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.client import Client, literal, quote, stream
from dataflow_assets.connectors.clickhouse.type_names import ClickhouseType
from dataflow_assets.connectors.clickhouse.types import CLICKHOUSE_TYPE, SINK_TEXT
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.free_names import free_stem
from dataflow_assets.sdk.key_folding import Ints

_PARAMETER_BYTES = 60_000  # of the keys of one statement: a server takes 128 KiB of each parameter


@dataclass(frozen=True)
class StoredRows:
    """The rows of one table as queries with FINAL see them."""

    client: Client
    place: tuple[str, str]
    schema: pa.Schema
    """The sink's, whose columns know the types of the table."""
    replicated: bool

    def values(self, keys: pa.Table, columns: Sequence[str]) -> tuple[pa.Table, Ints]:
        """Of the rows of these keys.

        Args:
            keys: key columns, in the sink's types; a key may be there more than once.
            columns: names of the columns whose values are wanted.

        Returns:
            The rows that there are, and of each key the index of its row; -1 where there is none.

        Raises:
            Failure: the server does not answer as it should.
            PermanentError: a value is no text.
        """
        texts = [_hexadecimal(column) for column in keys.columns]
        found = [
            self._some(keys.schema.names, first, [each[first:end] for each in texts], columns)
            for first, end in _stretches([sum(map(len, each)) for each in zip(*texts, strict=True)])
        ]
        rows = pa.concat_tables(found)
        places = np.full(keys.num_rows, -1, np.int64)
        places[rows.column(self._row).to_numpy()] = np.arange(rows.num_rows)
        return rows.select(list(columns)), places

    def _some(
        self, keys: Sequence[str], first: int, texts: list[list[str]], columns: Sequence[str]
    ) -> pa.Table:
        settings: dict[str, object] = {"select_sequential_consistency": int(self.replicated)}
        query = self._query(keys, first, columns)
        settings |= types.settings_of(query)
        given = {f"key_{n}": ",".join(each) for n, each in enumerate(texts)}
        schema = pa.schema(
            [pa.field(self._row, pa.int64()), *(self._field(one) for one in columns)]
        )
        with stream(self.client, query, given, settings) as batches:
            checked = [types.text_checked(one, schema, self._refusal) for one in batches]
            return pa.Table.from_batches(checked, schema)

    def _query(self, keys: Sequence[str], first: int, columns: Sequence[str]) -> str:
        """Keys have names of their own: no name stands for another column."""
        asked = self._key_rows(keys, first)
        listed = ", ".join(quote(name) for name in dict.fromkeys([*keys, *columns]))
        values = ", ".join(
            f"{types.select_expression(name, self._type(name), SINK_TEXT)} "
            f"AS {self._alias(f' value {n}')}"
            for n, name in enumerate(columns)
        )
        same = " AND ".join(
            f"CAST(t.{quote(name)}, {literal(_key_type(self._type(name)))}) = a.{self._alias(n)}"
            for n, name in enumerate(keys)
        )
        wanted = ", ".join(self._alias(n) for n in range(len(keys)))
        # S608: names are quoted, keys travel as parameters
        rows = (
            f"SELECT {listed} FROM {quote(*self.place)} FINAL WHERE "  # noqa: S608
            f"({', '.join(map(quote, keys))}) IN (SELECT {wanted} FROM ({asked}))"
        )
        row = f"a.{self._alias('row')}"
        return f"SELECT {row}, {values} FROM ({rows}) AS t JOIN ({asked}) AS a ON {same}"  # noqa: S608

    def _key_rows(self, keys: Sequence[str], first: int) -> str:
        """The keys as rows; their texts travel as hexadecimal digits, which need no escapes."""
        lists = [
            f"CAST(arrayMap(x -> unhex(x), splitByChar(',', {{key_{n}:String}})), "
            f"{literal(f'Array({_key_type(self._type(name))})')})"
            for n, name in enumerate(keys)
        ]
        zipped = ", ".join(["arrayEnumerate(splitByChar(',', {key_0:String}))", *lists])
        columns = ", ".join(f"r.{n + 2} AS {self._alias(n)}" for n in range(len(keys)))
        return (
            f"SELECT toInt64(r.1) + {first - 1} AS {self._alias('row')}, {columns} FROM "  # noqa: S608
            f"(SELECT arrayJoin(arrayZip({zipped})) AS r)"
        )

    @cached_property
    def _stem(self) -> str:
        return free_stem(self.schema.names, "#")

    @property
    def _row(self) -> str:
        return f"{self._stem}row"

    def _alias(self, end: object) -> str:
        return quote(f"{self._stem}{end}")

    def _field(self, name: str) -> pa.Field:
        return self.schema.field(name).with_nullable(True)

    def _type(self, name: str) -> str:
        found: bytes = self.schema.field(name).metadata[CLICKHOUSE_TYPE]
        return found.decode()

    def _refusal(self, column: str) -> PermanentError:
        return PermanentError(
            f"{'.'.join(self.place)}: column {column} holds bytes that are not UTF-8 text, in a "
            "row whose change has left it as it was: the flow did not store these bytes, and "
            "cannot store them again; load the tables into a new target"
        )


def _key_type(text: str) -> str:
    """The type that keys are compared in: points in time as in Arrow, in UTC."""
    bare = ClickhouseType.of(text).bare
    digits = types.digits(text)
    if digits is None or bare.name in types.DAYS:
        return bare.spelling
    return f"DateTime64({9 if digits > 6 else 6}, 'UTC')"


def _hexadecimal(column: pa.ChunkedArray) -> list[str]:
    """The values' texts as ClickHouse reads them, as digits."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp(column.type.unit))  # no zone behind it
    return [text.encode().hex() for text in column.cast(pa.string()).to_pylist()]


def _stretches(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Consecutive keys, at least one, whose texts fit into one statement."""
    first = taken = 0
    for row, size in enumerate(sizes):
        if row > first and taken + size + row - first > _PARAMETER_BYTES:
            yield first, row
            first, taken = row, 0
        taken += size
    yield first, len(sizes)
