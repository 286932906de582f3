"""One part as Arrow batches: a query of its own, inside a task or for a look.

The answer is read page by page: memory does not grow with the part.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from dataflow_assets import failpoints
from dataflow_assets.connectors.trino import types
from dataflow_assets.connectors.trino.client import Client, quote
from dataflow_assets.connectors.trino.decode import batches
from dataflow_assets.connectors.trino.options import TrinoSourceOptions
from dataflow_assets.connectors.trino.source.relation import Relation, describe
from dataflow_assets.connectors.trino.table.table import Column
from dataflow_assets.contracts import metadata_column
from dataflow_assets.sdk.polling import Part
from dataflow_assets.sdk.server_failure import translated


def read(
    source: TrinoSourceOptions, part: Part, metadata: frozenset[str], most: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The part's rows in its order, at least one batch; `most`: no more rows than that.

    Ends only when all of them came. Raises TransientError where the table is another one by now.
    """
    with (
        translated(f"reading {source.title}"),
        closing(Client(source, "dataflow-read")) as client,
    ):
        yield from _rows(client, source, part, metadata, most)


def _rows(
    client: Client,
    source: TrinoSourceOptions,
    part: Part,
    metadata: frozenset[str],
    most: int | None,
) -> Iterator[pa.RecordBatch]:
    relation = describe(client, source)
    if relation.identity != part.identity:
        raise source.recreated()
    failpoints.reach("trino.read")
    columns = [(each, types.field(each.name, each.type)) for each in relation.columns]
    columns += _metadata(relation, metadata)
    selected = [types.selected(quote(each.name), each.type) for each, _ in columns]
    query = _query(relation, part, selected) + ("" if most is None else f" LIMIT {most}")
    made = False
    for batch in batches(client.pages(query), columns):
        yield batch
        failpoints.reach("trino.read-batch")
        made = True
    if not made:
        yield pa.RecordBatch.from_pylist([], schema=pa.schema([field for _, field in columns]))


def _query(relation: Relation, part: Part, selected: list[str]) -> str:
    # Names of their own: an alias that is a column's name would stand for it in the order.
    aliases = [quote(f"{relation.alias}{n}") for n in range(len(selected))]
    listed = ", ".join(map("{} AS {}".format, selected, aliases))
    query = f"SELECT {listed} FROM {relation.base}"  # noqa: S608 - names are quoted
    if part.rows is None or relation.order is None:
        return query
    changes = relation.change is not None and not part.rows.load
    ranked = [relation.change, relation.order] if changes else [relation.order]
    order = ", ".join(f"{column.rank} NULLS FIRST" for column in ranked if column)
    return f"{query} WHERE {relation.conditions.of(part.rows)} ORDER BY {order}"


def _metadata(relation: Relation, wanted: frozenset[str]) -> list[tuple[Column, pa.Field]]:
    order = relation.order
    if "id" not in wanted or order is None:
        return []
    field = types.field("id", order.column.type)
    marked = metadata_column("id", field.type, field.metadata)
    return [(order.column, marked)]
