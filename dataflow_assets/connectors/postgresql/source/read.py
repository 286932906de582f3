"""One part as Arrow batches: a COPY in a session of its own, inside a task or for a look.

A batch is made as soon as enough rows are there: memory does not grow with the part.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa

from dataflow_assets import failpoints
from dataflow_assets.connectors.postgresql.client import TextLink
from dataflow_assets.connectors.postgresql.options import PostgresqlSourceOptions
from dataflow_assets.connectors.postgresql.source.decode_copy import HEADER, TRAILER, Decoder
from dataflow_assets.connectors.postgresql.source.predicates import Conditions, change_of
from dataflow_assets.connectors.postgresql.source.relation import (
    Relation,
    SourceColumn,
    describe,
    quoted,
)
from dataflow_assets.connectors.postgresql.source.types import TypeOf, selected
from dataflow_assets.contracts import metadata_column
from dataflow_assets.sdk.polling import Part
from dataflow_assets.sdk.server_failure import translated

BATCH_ROWS = 50_000
BATCH_BYTES = 8 * 1024 * 1024
_OPERATION = "CASE WHEN {updated} > {created} THEN 'update' ELSE 'insert' END"
_INSERT = "'insert'::text"


def read(
    source: PostgresqlSourceOptions, part: Part, metadata: frozenset[str], most: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The part's rows in its order, at least one batch; `most`: no more rows than that.

    Ends only when all of them came. Raises TransientError where the table is another one by now.
    """
    with (
        translated(f"reading {source.title}"),
        closing(TextLink(source.dsn(), "dataflow-read")) as link,
    ):
        yield from _rows(link, source, part, metadata, most)


def _rows(
    link: TextLink,
    source: PostgresqlSourceOptions,
    part: Part,
    metadata: frozenset[str],
    most: int | None,
) -> Iterator[pa.RecordBatch]:
    relation = describe(link, source)
    if relation.oid != part.identity:
        raise source.recreated()
    link.execute("BEGIN READ ONLY")
    link.execute("SELECT set_config('statement_timeout', '0', true)")
    failpoints.reach("postgresql.read")
    columns = [
        (selected(quoted(one), one.type), one.type.field(one.name), one.type)
        for one in relation.columns
    ]
    columns += _metadata(relation, metadata)
    decoder = Decoder([field for _, field, _ in columns], [kind for *_, kind in columns])
    # Under names of their own: ORDER BY must mean the table's columns.
    listed = ", ".join(f"{each} AS {relation.alias}_{at}" for at, (each, *_) in enumerate(columns))
    query = _query(relation, part, listed)
    limit = "" if most is None else f" LIMIT {most}"
    yield from copied(link, decoder, f"COPY ({query}{limit}) TO STDOUT (FORMAT binary)")


def copied(link: TextLink, decoder: Decoder, query: str) -> Iterator[pa.RecordBatch]:
    """Returns what a binary COPY sends, at least one batch; ends only when the server says so."""
    skipped, made = HEADER, False
    data, sizes = bytearray(), list[int]()
    for message in link.copied(query):
        if len(message) == len(TRAILER) + (0 if made or sizes else skipped):
            break  # alone in its message, where there are no rows behind the header
        data += message
        sizes.append(len(message))
        if len(sizes) >= BATCH_ROWS or len(data) >= BATCH_BYTES:
            yield _decoded(decoder, data, sizes, skipped)
            failpoints.reach("postgresql.read-batch")
            skipped, made, data, sizes = 0, True, bytearray(), []
    if sizes or not made:
        yield _decoded(decoder, data, sizes, skipped)


def _decoded(decoder: Decoder, data: bytearray, sizes: list[int], skipped: int) -> pa.RecordBatch:
    starts = np.zeros(len(sizes), np.int64)
    np.cumsum(sizes[:-1], out=starts[1:])
    if skipped and len(starts):
        starts[0] = skipped
    return decoder.decode(bytes(data), starts)


def _query(relation: Relation, part: Part, selected: str) -> str:
    # S608: names and values are quoted
    if part.rows is None:
        return f"SELECT {selected} FROM {relation.base}"  # noqa: S608
    where = Conditions(relation).of(part.rows)
    order = relation.order
    ranks = [change_of(relation)] if relation.changes and not part.rows.load else []
    ranks += [f"{quoted(order)} NULLS FIRST"] if order else []
    return f"SELECT {selected} FROM {relation.base} WHERE {where} ORDER BY {', '.join(ranks)}"  # noqa: S608


def _metadata(relation: Relation, wanted: frozenset[str]) -> list[tuple[str, pa.Field, TypeOf]]:
    found = []
    if "id" in wanted and relation.order is not None:
        found.append(
            _marked("id", selected(quoted(relation.order), relation.order.type), relation.order)
        )
    if "operation" in wanted:
        text = SourceColumn("operation", TypeOf("text", "text"), required=True)
        operation = _INSERT
        if relation.times is not None:
            created, updated = map(quoted, relation.times)
            operation = _OPERATION.format(created=created, updated=updated)
        found.append(_marked("operation", operation, text))
    return found


def _marked(name: str, expression: str, column: SourceColumn) -> tuple[str, pa.Field, TypeOf]:
    field = column.type.field(name)
    return expression, metadata_column(name, field.type, field.metadata), column.type
