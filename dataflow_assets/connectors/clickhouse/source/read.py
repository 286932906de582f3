"""One part as Arrow batches: a query of its own, inside a task or for a look.

The answer is read as it comes: memory does not grow with the part.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pyarrow as pa

from dataflow_assets import failpoints
from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.client import Client, connect, quote, stream
from dataflow_assets.connectors.clickhouse.options import ClickhouseSourceOptions
from dataflow_assets.connectors.clickhouse.source.planning import Values, conditions
from dataflow_assets.connectors.clickhouse.source.relation import Relation, describe
from dataflow_assets.contracts import metadata_column
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.polling import Part
from dataflow_assets.sdk.server_failure import translated


def read(
    source: ClickhouseSourceOptions, part: Part, metadata: frozenset[str], most: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The part's rows in its order, at least one batch; `most`: no more rows than that.

    Ends only when all of them came. Raises TransientError where the table is another one by now.
    """
    with (
        translated(f"reading {source.title}"),
        closing(connect(source.dsn(), "dataflow-read")) as client,
    ):
        yield from _rows(client, source, part, metadata, most)


def _rows(
    client: Client,
    source: ClickhouseSourceOptions,
    part: Part,
    metadata: frozenset[str],
    most: int | None,
) -> Iterator[pa.RecordBatch]:
    relation = describe(client, source)
    if relation.identity != part.identity:
        raise source.recreated()
    failpoints.reach("clickhouse.read")
    expressions = [types.selected(column.name, column.type) for column in relation.columns]
    stored = zip(expressions, relation.fields(), strict=True)
    columns = [*stored, *_metadata(relation, metadata)]
    schema, values = pa.schema([field for _, field in columns]), Values()
    query = _query(relation, part, [expression for expression, _ in columns], values)
    query += "" if most is None else f" LIMIT {most}"
    made = False
    settings = types.settings_of(query)
    with stream(client, query, values.found, settings) as batches:
        for batch in batches:
            yield types.text_checked(batch, schema, partial(_refused, source))
            failpoints.reach("clickhouse.read-batch")
            made = True
    if not made:
        yield pa.RecordBatch.from_pylist([], schema=schema)


def _refused(source: ClickhouseSourceOptions, column: str) -> PermanentError:
    return PermanentError(
        f"{source.title}: column {column} holds bytes that are not UTF-8 text; give a `query` that "
        f"selects them as hex({column}) or base64Encode({column})"
    )


def _query(relation: Relation, part: Part, selected: list[str], values: Values) -> str:
    # Names of their own: an alias that is a column's name would stand for it in the conditions.
    aliases = [quote(f"{relation.alias}{n}") for n in range(len(selected))]
    listed = ", ".join(map("{} AS {}".format, selected, aliases))
    query = f"SELECT {listed} FROM {relation.base}"  # noqa: S608 - names are quoted, values bound
    if part.rows is None or relation.order is None:
        return query
    changes = relation.change is not None and not part.rows.load
    ranked = [relation.change, relation.order] if changes else [relation.order]
    order = ", ".join(f"{quote(column.name)} NULLS FIRST" for column in ranked if column)
    return f"{query} WHERE {conditions(relation, values).of(part.rows)} ORDER BY {order}"


def _metadata(relation: Relation, wanted: frozenset[str]) -> list[tuple[str, pa.Field]]:
    order = relation.order
    if "id" not in wanted or order is None:
        return []
    field = types.field("id", order.type)
    marked = metadata_column("id", field.type, field.metadata)
    return [(types.selected(order.name, order.type), marked)]
