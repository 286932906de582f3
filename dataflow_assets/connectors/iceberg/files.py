"""Parquet data files: written through PyIceberg's FileIO, described as JSON for the commit."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Record

from dataflow_assets.connectors.iceberg.types import file_schema

ROW_GROUP_BYTES = 32 * 1024 * 1024  # of Arrow data; what a writer holds in memory
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")
_FILE_PROPERTIES = ("s3.", "gcs.", "adls.", "hdfs.", "hf.", "client.", "py-io-impl")


@dataclass(frozen=True)
class Place:
    """Where a table's files go and what they look like: enough to write without the catalog."""

    location: str
    schema: str
    properties: Mapping[str, str]
    io: Mapping[str, str] = field(repr=False)

    @property
    def iceberg_schema(self) -> Schema:
        """The table's schema."""
        return _schema(self.schema)

    def file_io(self) -> FileIO:
        """The store, kept open for the life of the process."""
        return _file_io(tuple(sorted(self.io.items())), self.location)

    def new_path(self, name: str) -> str:
        """A path that nobody else will use."""
        provider = load_location_provider(self.location, dict(self.properties))
        return provider.new_data_location(f"{name}-{uuid.uuid4()}.parquet")


def place(table: Table) -> Place:
    """The place of a table as it stands."""
    options = table.io.properties
    io = {k: v for k, v in options.items() if isinstance(v, str) and k.startswith(_FILE_PROPERTIES)}
    writing = {k: v for k, v in table.properties.items() if k.startswith("write.")}
    return Place(table.location(), table.schema().model_dump_json(), writing, io)


@lru_cache(maxsize=32)
def _schema(text: str) -> Schema:
    return Schema.model_validate_json(text)


@lru_cache(maxsize=8)
def _file_io(properties: tuple[tuple[str, str], ...], location: str) -> FileIO:
    return load_file_io(dict(properties), location)


class FileWriter:
    """Writes rows of one slice to files of about `target_bytes`; opens none without rows."""

    def __init__(self, place: Place, name: str, names: list[str], target_bytes: int) -> None:
        self._place = place
        self._name = name
        self._target_bytes = target_bytes
        self.schema = file_schema(place.iceberg_schema, names)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._path = ""
        self._stream: Any = None
        self._parquet: pq.ParquetWriter | None = None
        self._done: list[str] = []
        self._paths: list[str] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Takes rows in the file's schema; buffers them to row groups of a good size."""
        if rows.num_rows == 0:
            return
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()
            if self._stream.tell() >= self._target_bytes:
                self._finish()

    def close(self) -> tuple[str, ...]:
        """Ends the last file; the files as JSON documents."""
        self._flush()
        self._finish()
        return tuple(self._done)

    def abort(self) -> None:
        """Drops every file: nobody else has been told of them."""
        with suppress(OSError, pa.ArrowException):
            self._finish()
        for path in self._paths:
            with suppress(OSError):
                self._place.file_io().delete(path)
        self._paths, self._done, self._waiting = [], [], []

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._parquet is None:
            self._open()
        assert self._parquet is not None  # noqa: S101 - _open has set it
        self._parquet.write_table(pa.Table.from_batches(self._waiting, self.schema))
        self._waiting, self._waiting_bytes = [], 0

    def _open(self) -> None:
        self._path = self._place.new_path(self._name)
        self._paths.append(self._path)
        self._stream = self._place.file_io().new_output(self._path).create()
        self._parquet = pq.ParquetWriter(
            self._stream, self.schema, compression="zstd", store_decimal_as_integer=True
        )

    def _finish(self) -> None:
        if self._parquet is None:
            return
        parquet, self._parquet = self._parquet, None
        parquet.close()
        size = self._stream.tell()
        self._stream.close()
        self._done.append(_document(self._place, self._path, size, parquet.writer.metadata))


def _document(place: Place, path: str, size: int, footer: pq.FileMetaData) -> str:
    schema = place.iceberg_schema
    found = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(schema, dict(place.properties)),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    ).to_serialized_dict()
    document: dict[str, Any] = {"path": path, "size": size, "rows": found["record_count"]}
    document |= {name: found[name] for name in _COUNTS}
    for name in _BOUNDS:
        document[name] = {k: base64.b64encode(v).decode() for k, v in found[name].items()}
    document["split_offsets"] = found["split_offsets"]
    return json.dumps(document, separators=(",", ":"))


def data_file(text: str, spec_id: int) -> DataFile:
    """The manifest entry's part that the document describes."""
    document = json.loads(text)
    figures: dict[str, Any] = {
        name: {int(k): v for k, v in document[name].items()} for name in _COUNTS
    }
    for name in _BOUNDS:
        figures[name] = {int(k): base64.b64decode(v) for k, v in document[name].items()}
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=document["path"],
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=document["rows"],
        file_size_in_bytes=document["size"],
        sort_order_id=None,
        spec_id=spec_id,
        equality_ids=None,
        key_metadata=None,
        split_offsets=document["split_offsets"],
        **figures,
    )
