"""Tables whose columns are declared with their field ids: made so, and changed as declared.

Columns are compared by id. A column may be added, become optional, or be widened; files that were
written before stay as they are, and are read by id.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress

from pyiceberg import exceptions as ice
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
)
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from dataflow_assets.connectors.iceberg.layout import parse_term
from dataflow_assets.connectors.iceberg.options import OWN_IDS, IcebergDeclared, Registered
from dataflow_assets.connectors.iceberg.table import registered
from dataflow_assets.connectors.iceberg.table.difference import (
    ALLOWED,
    KEY,
    PARTITIONING,
    WIDER,
    Difference,
    show_type,
)
from dataflow_assets.connectors.iceberg.table.partitioning import partition_spec
from dataflow_assets.connectors.iceberg.table_catalog import TableCatalog
from dataflow_assets.errors import PermanentError, TransientError

TRIES = 10  # of several drivers that change the table at the same time


def compare(declared: IcebergDeclared, table: Table | None) -> tuple[Schema, list[Difference]]:
    """The columns that the table is to have, and what cannot be done to it.

    Called on the driver by whoever opens the table, and by `dataflow check`.

    Args:
        declared: the declaration; a registry is asked for its columns.
        table: as it is stored; None where there is none yet.

    Raises:
        TransientError, PermanentError: of the registry.
    """
    schema, differences = _declared_schema(declared, table)
    return schema, [*differences, *(_differences(table, declared, schema) if table else ())]


def _declared_schema(
    declared: IcebergDeclared, table: Table | None
) -> tuple[Schema, list[Difference]]:
    if isinstance(declared.columns, Registered):
        return registered.merge_versions(declared.columns, table)
    return Schema.model_validate_json(declared.columns), []


def versions(declared: IcebergDeclared | None) -> tuple[int, ...]:
    """Versions of a registry's subject; none where the columns are in the declaration itself."""
    columns = declared.columns if declared is not None else ""
    return registered.versions(columns) if isinstance(columns, Registered) else ()


def open_table(
    catalog: TableCatalog, identifier: tuple[str, ...], declared: IcebergDeclared
) -> Table:
    """The table as it is declared: made where it is missing, changed where that is allowed.

    Raises PermanentError where the declaration asks for more than that.
    """
    for _ in range(TRIES):
        table = catalog.table(identifier)
        schema, differences = compare(declared, table)
        if differences:
            raise PermanentError(_refusal(identifier, differences))
        if table is None:
            with suppress(ice.TableAlreadyExistsError):
                _make(catalog, identifier, declared, schema)
            continue  # somebody else may change it at once
        stored = table.schema()
        ids = {field.field_id for field in schema.fields}
        ours = [f for f in stored.fields if f.field_id >= OWN_IDS and f.field_id not in ids]
        merged = Schema(*schema.fields, *ours, identifier_field_ids=schema.identifier_field_ids)
        if same(table.schema(), merged):
            return table
        with suppress(ice.CommitFailedException):
            _change(catalog, table, merged)
    raise TransientError(f"table {'.'.join(identifier)} is changed by too many at once")


def _make(
    catalog: TableCatalog, identifier: tuple[str, ...], declared: IcebergDeclared, schema: Schema
) -> None:
    spec = _spec(declared, schema)
    metadata = TableMetadataV2.model_validate(
        {
            "location": declared.location,
            "table-uuid": uuid.uuid4(),
            "schemas": [schema],
            "last-column-id": schema.highest_field_id,
            "current-schema-id": schema.schema_id,
            "partition-specs": [spec],
            "default-spec-id": spec.spec_id,
            "last-partition-id": spec.last_assigned_field_id,
            "sort-orders": [UNSORTED_SORT_ORDER],
            "default-sort-order-id": UNSORTED_SORT_ORDER.order_id,
        }
    )
    catalog.first(identifier, metadata)


def _spec(declared: IcebergDeclared, schema: Schema) -> PartitionSpec:
    return partition_spec(schema, map(parse_term, declared.partitions))


def _change(catalog: TableCatalog, table: Table, wanted: Schema) -> None:
    """One commit that adds the schema; raises CommitFailedException where somebody was quicker."""
    number = max(schema.schema_id for schema in table.metadata.schemas) + 1
    ids = wanted.identifier_field_ids
    schema = Schema(*wanted.fields, schema_id=number, identifier_field_ids=ids)
    updates = (
        AddSchemaUpdate.model_validate({"schema": schema}),
        SetCurrentSchemaUpdate.model_validate({"schema-id": number}),
    )
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertCurrentSchemaId.model_validate({"current-schema-id": table.schema().schema_id}),
    )
    catalog.commit_table(table, requirements, updates)


def same(one: Schema, other: Schema) -> bool:
    """Returns whether both have the same columns; their numbers may differ."""
    keys = set(one.identifier_field_ids) == set(other.identifier_field_ids)
    return keys and one.as_struct() == other.as_struct()


def _refusal(identifier: Sequence[str], found: Sequence[Difference]) -> str:
    reasons = "; ".join(one.message for one in found)
    return (
        f"table {'.'.join(identifier)} cannot be changed to what is declared: {reasons} "
        f"({ALLOWED}); dataflow check names the lines"
    )


def _differences(table: Table, declared: IcebergDeclared, wanted: Schema) -> Iterator[Difference]:
    """Everything that the declaration asks for and that cannot be done to the table."""
    if _terms(table.spec()) != _terms(_spec(declared, wanted)):
        scheme = _scheme(table.spec(), table.schema())
        message = f"partitioning_scheme is {scheme} in the table, and cannot be changed"
        yield Difference(message, PARTITIONING)
    if set(table.schema().identifier_field_ids) != set(wanted.identifier_field_ids):
        key = ", ".join(sorted(table.schema().identifier_field_names())) or "none"
        yield Difference(f"the key is {key} in the table, and cannot be changed", KEY)
    yield from _of_fields(_declarable(table.schema()), _declarable(wanted), "")


def _terms(spec: PartitionSpec) -> list[tuple[int, str]]:
    return [(field.source_id, str(field.transform)) for field in spec.fields]


def _scheme(spec: PartitionSpec, schema: Schema) -> str:
    if not spec.fields:
        return "unpartitioned"
    if _terms(spec) == [(OWN_IDS, "hour")]:
        return "hour"
    return ", ".join(
        f"{one.transform} of {schema.find_column_name(one.source_id)}" for one in spec.fields
    )


def _declarable(schema: Schema) -> list[NestedField]:
    return [field for field in schema.fields if field.field_id < OWN_IDS]


def _of_fields(
    stored: Sequence[NestedField],
    declared: Sequence[NestedField],
    path: str,
    around: int | None = None,
) -> Iterator[Difference]:
    """`around`: the id of the field that they are inside of."""
    declared_fields = {field.field_id: field for field in declared}
    stored_ids = {field.field_id for field in stored}
    for field in stored:
        if field.field_id not in declared_fields:
            label = f"field {path}{field.name} (id {field.field_id})"
            yield Difference(f"{label} is in the table and cannot be dropped", around)
        else:
            yield from _of_field(field, declared_fields[field.field_id], path)
    for field in declared:
        if field.field_id not in stored_ids and field.required:
            message = (
                f"{path}{field.name} is new and must be optional: rows that are stored lack it"
            )
            yield Difference(message, field.field_id)
    order = [field.field_id for field in stored if field.field_id in declared_fields]
    for field, identity in zip(
        (f for f in declared if f.field_id in stored_ids), order, strict=True
    ):
        if field.field_id != identity:
            message = f"{path}{field.name} is in another place than in the table"
            yield Difference(f"{message}: fields cannot be reordered", field.field_id)
            return


def _of_field(stored: NestedField, declared: NestedField, path: str) -> Iterator[Difference]:
    name, identity = f"{path}{declared.name}", declared.field_id
    if stored.name != declared.name:
        message = f"id {identity} is {path}{stored.name} in the table, and {name} here"
        yield Difference(message, identity)
    if stored.optional and declared.required:
        yield Difference(f"{name} is optional in the table and cannot become required", identity)
    yield from _of_types(stored.field_type, declared.field_type, name, identity)


def _of_types(
    stored: IcebergType, declared: IcebergType, name: str, identity: int
) -> Iterator[Difference]:
    if isinstance(stored, StructType) and isinstance(declared, StructType):
        yield from _of_fields(stored.fields, declared.fields, f"{name}.", identity)
    elif isinstance(stored, ListType) and isinstance(declared, ListType):
        yield from _of_fields(
            [stored.element_field], [declared.element_field], f"{name}.", identity
        )
    elif isinstance(stored, MapType) and isinstance(declared, MapType):
        inside = [stored.key_field, stored.value_field]
        key_and_value = [declared.key_field, declared.value_field]
        yield from _of_fields(inside, key_and_value, f"{name}.", identity)
    elif stored != declared and (stored, declared) not in WIDER:
        message = (
            f"{name} is {show_type(stored)} in the table and cannot become {show_type(declared)}"
        )
        yield Difference(message, identity)
