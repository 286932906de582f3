"""What is stored of the tables that files declare, for `dataflow check`.

A module of its own, so that PyIceberg is imported only where a table is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from dataflow_assets.connectors.iceberg.client import connect
from dataflow_assets.connectors.iceberg.connection import CatalogConnection
from dataflow_assets.connectors.iceberg.errors import GONE, translate_errors
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.table.declared import compare


def tables(place: CatalogConnection) -> list[str]:
    """The names of the tables in the namespace; none where there is no such namespace."""
    with translate_errors(place, "list the tables beside"), suppress(*GONE):
        return [name for *_, name in connect(place).list_tables(place.identifier[:-1])]
    return []


def problems(sink: TableSinkOptions) -> Iterator[tuple[str | None, str]]:
    """Yields the id of a field, `partitioning`, or None, and a sentence about it."""
    if sink.declaration is None:
        return
    with translate_errors(sink, "look at"):
        _, found = compare(sink.declaration, connect(sink).table(sink.identifier))
    for one in found:
        yield None if one.field is None else str(one.field), one.sentence
