"""Making tables and namespaces, and the notes kept on a namespace before there is a table."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

import pyarrow as pa
from pyiceberg import exceptions as ice
from pyiceberg.partitioning import PartitionField
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField
from pyiceberg.transforms import UnknownTransform, VoidTransform

from dataflow_assets.connectors.iceberg.column_types import parse_field
from dataflow_assets.connectors.iceberg.layout import parse_order, parse_term
from dataflow_assets.connectors.iceberg.options import TableSinkOptions
from dataflow_assets.connectors.iceberg.table.partitioning import (
    check_key,
    partition_spec,
    sort_order,
    with_key,
)
from dataflow_assets.connectors.iceberg.table_catalog import TableCatalog
from dataflow_assets.connectors.iceberg.types import table_schema
from dataflow_assets.errors import PermanentError


def check(table: Table, key: Sequence[str] = ()) -> None:
    """Refuses tables that cannot be written to, or whose rows cannot be matched by the key."""
    name = ".".join(table.name())
    if table.metadata.format_version > 2:
        raise PermanentError(f"table {name} has format version 3: only 1 and 2 can be written")
    ids = {column.field_id for column in table.schema().fields}
    laid_out: list[PartitionField | SortField] = [*table.spec().fields, *table.sort_order().fields]
    for field in laid_out:
        if not _computable(field, ids):
            raise PermanentError(
                f"table {name} is partitioned or sorted by {field}, which cannot be computed "
                "here: write to a table laid out by top-level columns, by the transforms "
                "identity, year, month, day, hour, bucket and truncate"
            )
    check_key(table.schema(), key)


def _computable(field: PartitionField | SortField, known: set[int]) -> bool:
    """True where the values of its column give the field's; a dropped one is null for all."""
    if isinstance(field.transform, VoidTransform):
        return True
    return field.source_id in known and not isinstance(field.transform, UnknownTransform)


def create(
    catalog: TableCatalog, sink: TableSinkOptions, sample: pa.Schema, properties: dict[str, str]
) -> Table:
    """The table with these properties; somebody else's where one stands by now."""
    if not sink.auto_create_table:
        raise PermanentError(f"table {'.'.join(sink.identifier)} must not be created")
    schema = with_key(table_schema(_columns(sink, sample)), sink.key)
    spec = partition_spec(schema, map(parse_term, sink.partition_by))
    order = sort_order(schema, map(parse_order, sink.sort_by))
    return catalog.make(sink.identifier, schema, properties, spec, order)


def add_columns(table: Table, sink: TableSinkOptions, columns: pa.Schema) -> None:
    """Adds columns, of the manifest's types where it names some; those that are there stay."""
    declared = {name: parse_field(name, text) for name, text in sink.columns.items()}
    added = table_schema(declared.get(column.name, column) for column in columns)
    with table.update_schema() as update:
        for column in added.fields:
            if column.name not in table.schema().column_names:
                update.add_column((column.name,), column.field_type, column.doc)


def _columns(sink: TableSinkOptions, sample: pa.Schema) -> list[pa.Field]:
    """The sample's columns, then the manifest's: a manifest's type wins over a sample's."""
    fields = sink.raw_columns(sample) if sink.raw_mode else sample
    columns = {field.name: field for field in fields}
    columns |= {name: parse_field(name, text) for name, text in sink.columns.items()}
    if not columns:
        raise PermanentError("the sample has no columns: give them in `columns`")
    return list(columns.values())


def ensure_namespace(catalog: TableCatalog, sink: TableSinkOptions) -> None:
    levels = sink.identifier[:-1]
    for depth in range(1, len(levels) + 1):
        with suppress(ice.NamespaceAlreadyExistsError):
            catalog.create_namespace(levels[:depth])


def namespace_property(catalog: TableCatalog, sink: TableSinkOptions, key: str) -> str | None:
    """A note on the namespace; None where either is missing."""
    with suppress(ice.NoSuchNamespaceError):
        text: str | None = catalog.load_namespace_properties(sink.identifier[:-1]).get(key)
        return text
    return None


def set_namespace_property(
    catalog: TableCatalog, sink: TableSinkOptions, key: str, text: str
) -> None:
    try:
        with _notes(sink.identifier[:-1]):
            catalog.change_namespace(sink.identifier[:-1], updates={key: text})
    except NotImplementedError as error:
        raise PermanentError(
            "the catalog keeps no namespace properties, so start positions have no place before "
            "there is a table: create it, or give `columns`"
        ) from error


def drop_namespace_property(catalog: TableCatalog, sink: TableSinkOptions, key: str) -> None:
    """Takes the note away; a table's own property wins over one left behind."""
    with suppress(Exception), _notes(sink.identifier[:-1]):
        catalog.change_namespace(sink.identifier[:-1], removals={key})


@lru_cache(maxsize=1_000)
def _notes(namespace: tuple[str, ...]) -> threading.Lock:  # noqa: ARG001
    """Held while a note changes: catalogs read all notes and write all, and one would be lost.

    The flows of a lane, which begin at the same time, are threads of one process.
    """
    return threading.Lock()
