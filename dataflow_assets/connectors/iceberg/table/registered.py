"""The columns of a table whose schema is a subject of a schema registry.

The table has the fields of all versions of the subject. A field gets the next free id when it first
appears, version after version, and keeps that id in the table: a version that lacks a field makes
it optional, as does one in which it may be null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    DecimalType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestamptzType,
)

from dataflow_assets.connectors.iceberg import avro_types, json_schema_types
from dataflow_assets.connectors.iceberg.options import OWN_IDS, RECORD_TIME, Registered
from dataflow_assets.connectors.iceberg.table.difference import WIDER, Difference, show_type
from dataflow_assets.connectors.iceberg.table.partitioning import with_key
from dataflow_assets.errors import PermanentError
from dataflow_assets.formats.avro_schema import AvroSchema
from dataflow_assets.formats.json_schema_document import document
from dataflow_assets.formats.message_format import StoredSchema
from dataflow_assets.sdk.types.comments import commented_kind

_KINDS = {"AVRO": "Avro", "JSON": "JSON Schema"}


def versions(registered: Registered) -> tuple[int, ...]:
    """The versions that the subject has now. One request.

    Raises:
        PermanentError where there is no such subject, or a person must act; TransientError where
        the registry does not answer.
    """
    return registered.registry.client().versions(registered.subject)


def merge_versions(registered: Registered, table: Table | None) -> tuple[Schema, list[Difference]]:
    """The columns that the table is to have, and the changes that it cannot take.

    Called on the driver, when a table is opened or looked at, and when the subject has got other
    versions.

    Args:
        registered: the subject.
        table: as it is stored; None where there is no table yet.

    Raises:
        As `versions`; PermanentError too where a version is of another kind, or not the schema of a
        record or object.
    """
    merged = [o for o in table.schema().fields if o.field_id < OWN_IDS] if table else None
    ids = count(1 + max(_used_ids(table.metadata), default=0) if table else 1)
    differences: list[Difference] = []
    client = registered.registry.client()
    for number in versions(registered):
        where = f"version {number} of subject {registered.subject}"
        version = client.version(registered.subject, number)
        columns = _columns(version, registered.kind, f"{client}: {where}")
        merge = _SchemaMerge(ids, where)
        merged = merge.fields(merged, columns, "")
        differences += merge.differences
    fields = merged or []
    own = []
    if registered.record_time:
        own = [NestedField(OWN_IDS, registered.record_time, TimestamptzType(), required=False)]
    return with_key(Schema(*fields, *own), registered.key), differences


def _used_ids(metadata: TableMetadata) -> Iterator[int]:
    """The ids of columns there have been: files still have what was stored under a dropped one."""
    every = (one for schema in metadata.schemas for one in schema.field_ids)
    return (one for one in (*every, metadata.last_column_id) if one < OWN_IDS)


def _columns(found: StoredSchema, kind: str, where: str) -> list[NestedField]:
    if found.kind != kind:
        raise PermanentError(f"{where} is of type {found.kind}, and not {_KINDS[kind]}")
    try:
        columns = _of_json(found) if kind == "JSON" else _of_avro(found)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise PermanentError(f"{where} cannot be the columns of a table: {reason}") from None
    if any(one.name == RECORD_TIME for one in columns):
        raise PermanentError(
            f"{where} has the field {RECORD_TIME}, which is the column that holds the time of each "
            "record: rename the field"
        )
    return columns


def _of_avro(found: StoredSchema) -> list[NestedField]:
    return avro_types.columns(AvroSchema(found.text, [text for _, text in found.references]))


def _of_json(found: StoredSchema) -> list[NestedField]:
    return json_schema_types.columns(document(found.text, found.references))


@dataclass
class _SchemaMerge:
    """One version's fields, taken into those that are known."""

    ids: Iterator[int]
    where: str
    differences: list[Difference] = field(default_factory=list)

    def fields(
        self, known: Sequence[NestedField] | None, found: Sequence[NestedField], path: str
    ) -> list[NestedField]:
        """`known`: None where nothing is stored yet, so that fields may be required."""
        if known is None:
            return [self._new(one, required=one.required) for one in found]
        by_name = {one.name: one for one in found}
        names = {one.name for one in known}
        kept = [self._keep(one, by_name.get(one.name), path) for one in known]
        return [*kept, *(self._new(o, required=False) for o in found if o.name not in names)]

    def _new(self, one: NestedField, *, required: bool) -> NestedField:
        identity, kind = next(self.ids), self._number(one.field_type)
        return NestedField(identity, one.name, kind, doc=one.doc, required=required)

    def _number(self, kind: IcebergType) -> IcebergType:
        if isinstance(kind, StructType):
            return StructType(*(self._new(one, required=one.required) for one in kind.fields))
        if isinstance(kind, ListType):
            element = next(self.ids)
            inner = self._number(kind.element_type)
            return ListType(element, inner, element_required=kind.element_required)
        if isinstance(kind, MapType):
            key, value = next(self.ids), next(self.ids)
            inner = self._number(kind.value_type)
            return MapType(key, kind.key_type, value, inner, value_required=kind.value_required)
        return kind

    def _keep(self, one: NestedField, other: NestedField | None, path: str) -> NestedField:
        if other is None:
            return one.model_copy(update={"required": False})
        kind = self._widen(one, other, f"{path}{one.name}")
        required = one.required and other.required
        return NestedField(one.field_id, one.name, kind, doc=one.doc, required=required)

    def _widen(self, one: NestedField, other: NestedField, name: str) -> IcebergType:
        kind, other_kind = one.field_type, other.field_type
        if isinstance(kind, StructType) and isinstance(other_kind, StructType):
            return StructType(*self.fields(kind.fields, other_kind.fields, f"{name}."))
        if isinstance(kind, ListType) and isinstance(other_kind, ListType):
            inner = self._keep(kind.element_field, other_kind.element_field, f"{name}.")
            return ListType(kind.element_id, inner.field_type, element_required=inner.required)
        if isinstance(kind, MapType) and isinstance(other_kind, MapType):
            value = self._keep(kind.value_field, other_kind.value_field, f"{name}.")
            key = (kind.key_id, kind.key_type)
            return MapType(*key, kind.value_id, value.field_type, value_required=value.required)
        if (kind, other_kind) in WIDER:
            return other_kind
        # Of comments only those count that say what a text is: any other one is a person's.
        if commented_kind(one.doc) != commented_kind(other.doc) or not _takes(kind, other_kind):
            self.differences.append(
                Difference(
                    f"{name} is {_name_type(one)} in the table, and {_name_type(other)} in "
                    f"{self.where}: delete that version in the registry, or give the field "
                    "another name"
                )
            )
        return kind


def _takes(known: IcebergType, given: IcebergType) -> bool:
    if isinstance(known, DecimalType) and isinstance(given, DecimalType):
        return known.scale == given.scale and known.precision >= given.precision
    return known == given or (given, known) in WIDER


def _name_type(one: NestedField) -> str:
    return f"{show_type(one.field_type)} ({one.doc})" if one.doc else show_type(one.field_type)
