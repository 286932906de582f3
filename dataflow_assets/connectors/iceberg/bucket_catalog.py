"""Tables without a catalog: of each, the newest numbered metadata file in its folder is the truth.

A commit puts the file of the next number, which must not exist yet: of two drivers one does,
wherever they run, and the other one finds the number taken. A driver that was away for long cannot
commit where others have been, since no number is ever free again.
"""

from __future__ import annotations

import time
from typing import Any

from pyarrow import fs
from pyiceberg import exceptions as ice
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from typing_extensions import override

from dataflow_assets.connectors.iceberg.bucket import S3, BucketConnection
from dataflow_assets.connectors.iceberg.metadata_files import MetadataFiles, in_folder
from dataflow_assets.connectors.iceberg.table_catalog import TableCatalog
from dataflow_assets.errors import PermanentError
from dataflow_assets.failpoints import reach
from dataflow_assets.sdk.conditional_put import put_new


class BucketCatalog(TableCatalog, NoopCatalog):
    """The tables below one bucket and prefix. Threads may share it."""

    def __init__(self, name: str, bucket: BucketConnection, **properties: str) -> None:
        super().__init__(name, **properties)
        self.connected_at = time.monotonic()
        self._bucket = bucket
        self.metadata_files = MetadataFiles(bucket, self.properties)

    @override
    def load_table(self, identifier: str | Identifier) -> Table:
        name = self.identifier_to_tuple(identifier)
        number, metadata = self._newest(name)
        return self._table(name, number, metadata)

    @override
    def table_exists(self, identifier: str | Identifier) -> bool:
        return self.table(self.identifier_to_tuple(identifier)) is not None

    @override
    def create_table(
        self,
        identifier: str | Identifier,
        schema: Any,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """A table with field ids of PyIceberg's; raises TableAlreadyExistsError."""
        name = self.identifier_to_tuple(identifier)
        if not isinstance(schema, Schema):
            raise TypeError("the schema must be one of Iceberg")
        place = location or self._bucket.location(name)
        metadata = new_table_metadata(schema, partition_spec, sort_order, place, properties)
        return self.first(name, metadata)

    @override
    def first(self, identifier: Identifier, metadata: TableMetadata) -> Table:
        files = self.metadata_files
        if files.newest(identifier) or not files.put(identifier, 1, metadata):
            raise ice.TableAlreadyExistsError(f"{'.'.join(identifier)} exists")
        files.announce(identifier, 1)
        return self._table(identifier, 1, metadata)

    @override
    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Puts the next number. Raises CommitFailedException where the table has moved."""
        name, files = table.name(), self.metadata_files
        number, base = self._newest(name)
        for requirement in requirements:
            requirement.validate(base)
        before = files.path(name, number)
        metadata = update_table_metadata(base, updates, metadata_location=before)
        if not files.put(name, number + 1, metadata):
            raise ice.CommitFailedException(f"{before} is not the newest any more")
        reach("iceberg.bucket-committed")
        files.announce(name, number + 1)
        return CommitTableResponse.model_validate(
            {"metadata": metadata, "metadata-location": files.path(name, number + 1)}
        )

    @override
    def begin(self, table: Table) -> Table:
        """Raises PermanentError for a store in which two drivers could take the same number."""
        number, metadata = self._newest(table.name())
        text = self.metadata_files.read(table.name(), number)
        path = self.metadata_files.path(table.name(), number)
        if self._bucket.on_s3 and text and put_new(self._bucket.store, path[len(S3) :], text):
            raise PermanentError(
                f"the store of {self._bucket.bucket} ignores `If-None-Match`, by which of two "
                "drivers one commits: use a store that honours it, as AWS does"
            )
        return self._table(table.name(), number, metadata)

    @override
    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """The folders that have a folder `metadata`."""
        levels = self.identifier_to_tuple(namespace)
        place = self._bucket.location(levels)
        io = self.metadata_files.io(place)
        folders = [one for one in in_folder(io, place) if one.type == fs.FileType.Directory]
        names = sorted(one.base_name for one in folders)
        return [(*levels, name) for name in names if in_folder(io, f"{place}/{name}/metadata")]

    @override
    def create_namespace(
        self, namespace: str | Identifier, properties: Properties = EMPTY_DICT
    ) -> None:
        """Nothing: a namespace is a part of a path."""

    @override
    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        return {}

    def _table(self, name: Identifier, number: int, metadata: TableMetadata) -> Table:
        path = self.metadata_files.path(name, number)
        return Table(name, metadata, path, self.metadata_files.io(metadata.location), self)

    def _newest(self, name: Identifier) -> tuple[int, TableMetadata]:
        newest = self.metadata_files.newest(name)
        if newest is None:
            raise ice.NoSuchTableError(f"{self._bucket.location(name)} holds no table")
        return newest
