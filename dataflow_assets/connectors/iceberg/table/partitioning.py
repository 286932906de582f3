"""The partition spec and the sort order of a table that is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import DoubleType, FloatType, NestedField

from dataflow_assets.connectors.iceberg.layout import IcebergOrder, Term
from dataflow_assets.connectors.iceberg.types import row_schema
from dataflow_assets.errors import PermanentError


def partition_spec(schema: Schema, terms: Iterable[Term]) -> PartitionSpec:
    """Raises PermanentError for a column that is missing or of a type that does not fit."""
    fields = []
    for number, term in enumerate(terms):
        source = _column(schema, term.column, "partitionBy")
        transform = parse_transform(term.iceberg)
        if not transform.can_transform(source.field_type):
            raise PermanentError(
                f"partitionBy: {term.transform} cannot take column {term.column}, which is "
                f"{source.field_type}"
            )
        identity = PARTITION_FIELD_ID_START + number
        fields.append(PartitionField(source.field_id, identity, transform, term.name))
    return PartitionSpec(*fields)


def sort_order(schema: Schema, orders: Iterable[IcebergOrder]) -> SortOrder:
    """Raises PermanentError for a column that is missing or has no order."""
    fields = []
    for order in orders:
        source = _column(schema, order.column, "sortBy")
        if not source.field_type.is_primitive:
            raise PermanentError(f"sortBy: column {order.column} is {source.field_type}: no order")
        direction = SortDirection.DESC if order.descending else SortDirection.ASC
        nulls = NullOrder.NULLS_FIRST if order.nulls_first else NullOrder.NULLS_LAST
        fields.append(SortField(source.field_id, IdentityTransform(), direction, nulls))
    return SortOrder(*fields)


def with_key(schema: Schema, key: Iterable[str]) -> Schema:
    """The schema with these columns as its identifier fields, required as those must be."""
    key_ids = {_key_column(schema, name).field_id for name in key}
    fields = [
        field.model_copy(update={"required": True}) if field.field_id in key_ids else field
        for field in schema.fields
    ]
    return Schema(*fields, identifier_field_ids=sorted(key_ids))


def check_key(schema: Schema, key: Sequence[str]) -> None:
    """Raises PermanentError for a column that rows cannot be matched by.

    And for one of a type that is not written here: upserts write whole rows again.
    """
    for name in key:
        _key_column(schema, name)
    written = set(row_schema(schema).names)
    if key and (others := [field for field in schema.fields if field.name not in written]):
        columns = ", ".join(f"{field.name} ({field.field_type})" for field in others)
        raise PermanentError(f"upsertMode cannot write the columns {columns} again: drop them")


def _key_column(schema: Schema, name: str) -> NestedField:
    column = _column(schema, name, "conflictKey")
    kind = column.field_type
    if not kind.is_primitive or isinstance(kind, (FloatType, DoubleType)):
        raise PermanentError(
            f"conflictKey: rows cannot be matched by column {name}, which is {kind}; take columns "
            "of whole numbers, decimals, text, times, uuid or bytes"
        )
    return column


def _column(schema: Schema, name: str, key: str) -> NestedField:
    fields = {field.name: field for field in schema.fields}
    if name not in fields:
        raise PermanentError(
            f"{key} names column {name}, which the table lacks; it has {', '.join(fields)}. "
            "Give the column in `columns`, or correct the key"
        )
    return fields[name]
