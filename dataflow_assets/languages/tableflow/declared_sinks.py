"""Sinks of tables that files declare, with their field ids: in a bucket alone, or in a catalog.

A manifest cannot name them: languages whose files declare tables make them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import ClassVar, Literal

from typing_extensions import override

from dataflow_assets.connectors.iceberg.bucket import BucketConnection
from dataflow_assets.connectors.iceberg.nessie import NessieConnection
from dataflow_assets.connectors.iceberg.options import IcebergDeclared, Registered
from dataflow_assets.connectors.iceberg.rest import RestConnection
from dataflow_assets.connectors.iceberg.sink.sink import NessieSink, TableSink
from dataflow_assets.contracts import Positions, SinkTraits
from dataflow_assets.formats.schema_registry import SchemaRegistry
from dataflow_assets.languages.promises import ChecksStored
from dataflow_assets.sdk.maintenance import Keep, Maintained, Tidied


class DeclaredSink(TableSink, ChecksStored):
    """The common part of a declared table's sink, wherever the table is."""

    type: ClassVar[str] = "iceberg"
    snapshots_stay: ClassVar[timedelta | None] = timedelta(hours=1)
    written_alone: ClassVar[bool] = True
    table_schema: str = ""
    """The columns, in Iceberg's JSON of a schema; empty where a registry has them."""
    schema_registry: SchemaRegistry | None = None
    """Where the columns are, of all versions of `subject`."""
    subject: str = ""
    """The subject of the registry."""
    subject_kind: Literal["AVRO", "JSON"] = "AVRO"
    """The kind of its schemas."""
    time_column: str | None = None
    """The column that takes the time of each record."""
    partitions: tuple[str, ...] = ()
    """How the table is partitioned, in terms of `partitionBy`."""
    retention: timedelta | None = None
    """Rows leave the table when their record is older than this; `time_column` is required."""

    @abstractmethod
    def location(self, identifier: tuple[str, ...]) -> str: ...

    @property
    @override
    def keeps_itself(self) -> bool:
        return True

    @property
    @override
    def declaration(self) -> IcebergDeclared:
        location = self.location(self.identifier)
        if self.schema_registry is None:
            return IcebergDeclared(self.table_schema, location, self.partitions)
        of = (self.schema_registry, self.subject, self.subject_kind)
        columns = Registered(*of, key=self.key, record_time=self.time_column)
        return IcebergDeclared(columns, location, self.partitions)

    @property
    @override
    def row_retention(self) -> tuple[timedelta | None, str]:
        return self.retention, self.time_column or ""

    @property
    @override
    def traits(self) -> SinkTraits:
        return replace(super().traits, record_time=self.time_column, unwraps=False)

    @override
    def stored_problems(self) -> Iterator[tuple[str | None, str]]:
        from dataflow_assets.connectors.iceberg.sink.stored import problems

        return problems(self)

    def stored_tables(self) -> Mapping[str, str]:
        """The folder of each table of the namespace, by its name; also of rejected records.

        Called by `dataflow check`. Raises TransientError, PermanentError.
        """
        from dataflow_assets.connectors.iceberg.sink.stored import tables

        return {name: self.location((*self.identifier[:-1], name)) for name in tables(self)}


class BucketSink(BucketConnection, DeclaredSink, Maintained):
    """Appends rows to a table that is a folder of a bucket, without a catalog."""

    guarantee: ClassVar[str] = (
        "Exactly once: a commit is one metadata file whose name nobody else can take; it adds the "
        "files and moves the checkpoint."
    )

    def maintain(self, keep: Keep, readers: Sequence[Positions]) -> list[Tidied]:
        """Snapshots expire; files that no snapshot lists are deleted."""
        from dataflow_assets.connectors.iceberg.maintenance.maintain import maintain

        return maintain(self, keep, readers)


class _CatalogSink(DeclaredSink):
    """A table of a catalog in a folder that its file names, for readers by path too."""

    read_by_path: ClassVar[bool] = True
    tables_folder: str
    """`s3://bucket/folder`: tables are below it, by name."""

    @override
    def location(self, identifier: tuple[str, ...]) -> str:
        return f"{self.tables_folder}/{identifier[-1]}"

    @override
    def stored_tables(self) -> Mapping[str, str]:
        """Other programs may have tables beside them, whose names have no `+`."""
        stored = super().stored_tables().items()
        return {name: f"{at} and in {self.catalog}" for name, at in stored if "+" in name}

    @property
    @abstractmethod
    def catalog(self) -> str: ...


class RestTableSink(RestConnection, _CatalogSink, Maintained):
    """Appends rows to a declared table of an Iceberg REST catalog."""

    guarantee: ClassVar[str] = (
        "Exactly once: files and checkpoint are one commit that asserts the table's head."
    )

    def maintain(self, keep: Keep, readers: Sequence[Positions]) -> list[Tidied]:
        """Snapshots expire; files that no snapshot lists are deleted."""
        from dataflow_assets.connectors.iceberg.maintenance.maintain import maintain

        return maintain(self, keep, readers)


class NessieTableSink(NessieConnection, _CatalogSink):
    """Appends rows to a declared table on a branch of Nessie."""

    type: ClassVar[str] = "nessie"
    icon: ClassVar[str] = "iceberg"
    snapshots_stay: ClassVar[timedelta | None] = NessieSink.snapshots_stay
    guarantee: ClassVar[str] = (
        "Exactly once: files and checkpoint are one commit that asserts the table's head."
    )
