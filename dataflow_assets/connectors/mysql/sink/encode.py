"""Rows as the tuples of an INSERT: text that the server reads as it reads any literal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.mysql.client import quote
from dataflow_assets.connectors.mysql.types import insertion
from dataflow_assets.sdk.key_folding import Bools

_NULL = "NULL"
ENOUGH = 4 * 1024 * 1024  # bytes of one statement


@dataclass(frozen=True)
class MysqlAbsent:
    """The values that the server fills in, by row and column, and what is written for them."""

    where: Bools
    words: Sequence[str]


def inserts(
    place: str,
    rows: pa.RecordBatch,
    fields: Sequence[pa.Field],
    absent: MysqlAbsent | None,
    most: int,
) -> Iterator[bytes]:
    """The statements that insert rows.

    Args:
        place: the quoted name of the table.
        rows: have these columns, among others.
        fields: the columns, as the table has them.
        absent: what rows do not carry; None for nothing.
        most: bytes of a statement; that of a single row may have more.
    """
    if not rows.num_rows:
        return
    listed = ", ".join(quote(field.name) for field in fields)
    head = f"INSERT INTO {place} ({listed}) VALUES ".replace("%%", "%").encode()  # noqa: S608 - quoted
    texts = _tuples([_values(rows.column(field.name), field) for field in fields], absent)
    waiting, size = list[bytes](), len(head)
    for text in texts.cast(pa.large_binary()).to_pylist():
        if waiting and size + len(text) + 1 > min(most, ENOUGH):
            yield head + b",".join(waiting)
            waiting, size = [], len(head)
        waiting.append(text)
        size += len(text) + 1
    yield head + b",".join(waiting)


def _tuples(values: Sequence[pa.Array], absent: MysqlAbsent | None) -> pa.Array:
    """`(1,'a',NULL)` for each row."""
    if absent is not None and absent.where.any():
        each = zip(absent.where.T, absent.words, values, strict=True)
        values = [pc.if_else(pa.array(where), word, value) for where, word, value in each]
    joined = pc.binary_join_element_wise(*values, pa.scalar(",", pa.large_string()))
    return _between("(", joined, ")")


def _between(start: str, texts: pa.Array, end: str) -> pa.Array:
    start, end, nothing = (pa.scalar(text, pa.large_string()) for text in (start, end, ""))
    return pc.binary_join_element_wise(start, texts, end, nothing)


def _values(column: pa.Array, field: pa.Field) -> pa.Array:
    start, _, end = insertion(field).partition("{}")
    literals = _literals(column)
    return _between(start, literals, end) if start else literals


def _literals(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        texts = [None if v is None else f"x'{v.hex()}'" for v in column.to_pylist()]
        return pa.array(texts, pa.large_string()).fill_null(_NULL)
    if pa.types.is_boolean(kind):
        return pc.if_else(column, "1", "0").cast(pa.large_string()).fill_null(_NULL)
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp(kind.unit))  # of a point in time what it shows in UTC
    text = column.cast(pa.large_string())
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return text.fill_null(_NULL)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), "'", "''")
    return _between("'", text, "'").fill_null(_NULL)
