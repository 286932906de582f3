"""Making tables and namespaces, and the notes kept on a namespace before there is a table."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg import exceptions as ice
from pyiceberg.table import Table

from dataflow_assets.connectors.iceberg.catalog import BoundedCatalog
from dataflow_assets.connectors.iceberg.columns import parse_field
from dataflow_assets.connectors.iceberg.types import table_schema
from dataflow_assets.errors import PermanentError

if TYPE_CHECKING:
    from dataflow_assets.connectors.iceberg.sink import IcebergSink


def check(table: Table) -> None:
    """Refuses tables that this sink cannot write to yet."""
    name = ".".join(table.name())
    if table.metadata.format_version > 2:
        raise PermanentError(f"table {name} has format version 3: only 1 and 2 can be written")
    if not table.spec().is_unpartitioned():
        raise PermanentError(
            f"table {name} is partitioned, which this sink cannot write yet: "
            "write to an unpartitioned table"
        )


def create(
    catalog: BoundedCatalog, sink: IcebergSink, sample: pa.Schema, properties: dict[str, str]
) -> Table:
    """The table with these properties; somebody else's where one stands by now."""
    if not sink.auto_create_table:
        raise PermanentError(f"table {'.'.join(sink.identifier)} must not be created")
    return catalog.made(sink.identifier, table_schema(_columns(sink, sample)), properties)


def _columns(sink: IcebergSink, sample: pa.Schema) -> list[pa.Field]:
    """The sample's columns, then the manifest's: a manifest's type wins over a sample's."""
    known = sink.raw_columns(sample) if sink.raw_mode else sample
    columns = {field.name: field for field in known}
    columns |= {name: parse_field(name, text) for name, text in sink.columns.items()}
    if not columns:
        raise PermanentError("the sample has no columns: give them in `columns`")
    return list(columns.values())


def ensure_namespace(catalog: BoundedCatalog, sink: IcebergSink) -> None:
    """Makes each missing level of the namespace."""
    levels = sink.identifier[:-1]
    for depth in range(1, len(levels) + 1):
        with suppress(ice.NamespaceAlreadyExistsError):
            catalog.create_namespace(levels[:depth])


def namespace_property(catalog: BoundedCatalog, sink: IcebergSink, key: str) -> str | None:
    """A note on the namespace; None where either is missing."""
    with suppress(ice.NoSuchNamespaceError):
        found: str | None = catalog.load_namespace_properties(sink.identifier[:-1]).get(key)
        return found
    return None


def set_namespace_property(catalog: BoundedCatalog, sink: IcebergSink, key: str, text: str) -> None:
    """Leaves a note on the namespace."""
    try:
        catalog.update_namespace_properties(sink.identifier[:-1], updates={key: text})
    except NotImplementedError as error:
        raise PermanentError(
            "the catalog keeps no namespace properties, so start positions have no place before "
            "there is a table: create it, or give `columns`"
        ) from error


def drop_namespace_property(catalog: BoundedCatalog, sink: IcebergSink, key: str) -> None:
    """Takes the note away; a table's own property wins over one left behind."""
    with suppress(Exception):
        catalog.update_namespace_properties(sink.identifier[:-1], removals={key})
