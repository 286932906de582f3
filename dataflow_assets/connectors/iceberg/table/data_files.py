"""Parquet data files: written through PyIceberg's FileIO, described as JSON for the commit."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.sorting import SortOrder
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType, UUIDType

from dataflow_assets.formats.structs import sound
from dataflow_assets.sdk.durable_files import sync_written

_PART, _FOLDER = 128, 512
"""Characters: a key of S3 has 1,024 bytes at most, a name on a disk 255."""
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")
_FILE_PROPERTIES = ("s3.", "gcs.", "adls.", "hdfs.", "hf.", "client.", "py-io-impl")


@dataclass(frozen=True)
class WriteTarget:
    """Place and shape of a table's files: enough to write without the catalog."""

    location: str
    schema: str
    properties: Mapping[str, str]
    io: Mapping[str, str] = field(repr=False)
    spec: str = "{}"
    order: str = '{"order-id":0}'

    @property
    def iceberg_schema(self) -> Schema:
        return _schema(self.schema)

    @property
    def partition_spec(self) -> PartitionSpec:
        """Returns how rows are told apart by files."""
        return _spec(self.spec)

    @property
    def sort_order(self) -> SortOrder:
        return _order(self.order)

    def file_io(self) -> FileIO:
        """The store, kept open for the life of the process."""
        return _file_io(tuple(sorted(self.io.items())), self.location)

    def new_path(self, name: str, partition: Record | None = None) -> str:
        """A path that nobody else will use; below a folder of its partition's where it has one."""
        provider = load_location_provider(self.location, dict(self.properties))
        folder = ""
        if partition:
            values = self.partition_spec.partition_to_path(partition, self.iceberg_schema)
            folder = f"{_folder(values)}/"
        return provider.new_data_location(f"{folder}{name}-{uuid.uuid4()}.parquet")


def _folder(values: str) -> str:
    """`a=1/b=x`, without texts that no path can hold: the manifest alone tells what they are."""
    parts = [
        part if len(part) <= _PART and not part.endswith("=") else _hash(part)
        for part in values.split("/")
    ]
    folder = "/".join(parts)
    return folder if len(folder) <= _FOLDER else _hash(values)


def _hash(text: str) -> str:
    return f"sha256-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def write_target(table: Table) -> WriteTarget:
    """Returns where files of the table are written, and how, as the table is now."""
    options = table.io.properties
    io = {k: v for k, v in options.items() if isinstance(v, str) and k.startswith(_FILE_PROPERTIES)}
    writing = {k: v for k, v in table.properties.items() if k.startswith("write.")}
    spec, order = table.spec().model_dump_json(), table.sort_order().model_dump_json()
    return WriteTarget(table.location(), table.schema().model_dump_json(), writing, io, spec, order)


@lru_cache(maxsize=32)
def _schema(text: str) -> Schema:
    return Schema.model_validate_json(text)


@lru_cache(maxsize=32)
def _spec(text: str) -> PartitionSpec:
    return PartitionSpec.model_validate_json(text)


@lru_cache(maxsize=32)
def _order(text: str) -> SortOrder:
    return SortOrder.model_validate_json(text)


@lru_cache(maxsize=8)
def _file_io(properties: tuple[tuple[str, str], ...], location: str) -> FileIO:
    return load_file_io(dict(properties), location)


class ParquetFile:
    """One file while it is written; `partition` is the record that all of its rows share."""

    def __init__(
        self, target: WriteTarget, schema: pa.Schema, name: str, partition: Record | None = None
    ) -> None:
        self._target, self._partition = target, partition or Record()
        self.path = target.new_path(name, partition)
        self._stream = target.file_io().new_output(self.path).create()
        self._parquet = pq.ParquetWriter(
            self._stream, schema, compression="zstd", store_decimal_as_integer=True
        )

    def write(self, rows: pa.Table) -> None:
        columns = [
            pa.chunked_array(map(sound, column.chunks), column.type)
            if pa.types.is_nested(column.type)
            else column
            for column in rows.columns
        ]
        self._parquet.write_table(pa.Table.from_arrays(columns, schema=rows.schema))

    @property
    def bytes(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        """Ends the file; it survives a loss of power from now on."""
        self._parquet.close()
        self._bytes = self.bytes
        self._stream.close()
        sync_written(self.path, self._target.location)

    def document(self, order_id: int = 0) -> str:
        """Description of the closed file, as JSON. `order_id`: the order that its rows have."""
        footer = self._parquet.writer.metadata
        document = _document(self._target, self.path, self._bytes, footer)
        spec = self._target.partition_spec
        document["spec"], document["order"] = spec.spec_id, order_id
        kinds = _kinds(spec, self._target.iceberg_schema)
        document["partition"] = [
            _as_text(kind, self._partition[index]) for index, kind in enumerate(kinds)
        ]
        return json.dumps(document, separators=(",", ":"))


def _document(target: WriteTarget, path: str, size: int, footer: pq.FileMetaData) -> dict[str, Any]:
    schema = target.iceberg_schema
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(schema, dict(target.properties)),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    ).to_serialized_dict()
    document: dict[str, Any] = {"path": path, "size": size, "rows": statistics["record_count"]}
    document |= {name: statistics[name] for name in _COUNTS}
    for name in _BOUNDS:
        document[name] = {k: base64.b64encode(v).decode() for k, v in statistics[name].items()}
    document["split_offsets"] = statistics["split_offsets"]
    return document


def _kinds(spec: PartitionSpec, schema: Schema) -> list[PrimitiveType]:
    return [field.field_type for field in spec.partition_type(schema).fields]  # type: ignore[misc]


def _as_text(kind: PrimitiveType, value: Any) -> str | None:
    return None if value is None else base64.b64encode(to_bytes(kind, value)).decode()


def _as_value(kind: PrimitiveType, text: str | None) -> Any:
    if text is None:
        return None
    raw = base64.b64decode(text)
    return uuid.UUID(bytes=raw) if isinstance(kind, UUIDType) else from_bytes(kind, raw)


def data_file(text: str, table: Table) -> DataFile:
    """The manifest entry's part that the document describes."""
    document = json.loads(text)
    spec = table.specs()[document["spec"]]
    kinds = _kinds(spec, table.schema())
    partition = list(map(_as_value, kinds, document["partition"]))
    figures: dict[str, Any] = {
        name: {int(k): v for k, v in document[name].items()} for name in _COUNTS
    }
    for name in _BOUNDS:
        figures[name] = {int(k): base64.b64decode(v) for k, v in document[name].items()}
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=document["path"],
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=document["rows"],
        file_size_in_bytes=document["size"],
        sort_order_id=document["order"] or None,
        equality_ids=None,
        key_metadata=None,
        split_offsets=document["split_offsets"],
        **figures,
    )
    file.spec_id = spec.spec_id  # PyIceberg keeps it beside the record
    return file
