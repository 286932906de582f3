"""All that a manifest may say about an Iceberg source or sink: fields and their validators.

How the catalog is reached, which both share, is in `connection`. Loading a manifest needs these
modules and no PyIceberg.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator
from typing_extensions import override

from dataflow_assets.connectors.iceberg.column_types import parse_field
from dataflow_assets.connectors.iceberg.connection import CatalogConnection
from dataflow_assets.connectors.iceberg.layout import parse_order, parse_term
from dataflow_assets.contracts import SinkTraits, Source, SourceTraits
from dataflow_assets.formats.schema_registry import SchemaRegistry
from dataflow_assets.sdk.upsert_options import AT_ONCE, SoftDeleteOptions
from dataflow_assets.spec import Addition, Hint, Needs, OneOrMany, Refused, Requires

Texts = Annotated[tuple[str, ...], OneOrMany]
"""One text or a list of them."""
_LARGEST_ID = (1 << 63) - 1
_NO_QUERY = (
    "the DataFlow Operator accepts a query and reads the whole table all the same; use the steps "
    "filter and select"
)


class TableSourceOptions(CatalogConnection, Source):
    """Options of a source that reads a table."""

    poll_interval: int = Field(10, ge=1)
    """The shortest time between two looks at the catalog, in seconds."""
    query: Annotated[str | None, Refused(_NO_QUERY, allowed=(None, ""))] = None
    """A query instead of the table."""
    incremental_by_snapshot: bool = False
    """True: rows carry the metadata `snapshot_id` and `snapshot_sequence`, and `startSnapshotID`
    may say where to begin."""
    start_snapshot_id: str | None = Field(None, alias="startSnapshotID")
    """A flow without a checkpoint begins after this snapshot; by default it begins with the current
    one."""
    snapshot_checkpoints: Annotated[
        bool, Hint("the position is always stored with the rows, in the same commit")
    ] = True
    """Whether progress is kept."""
    max_rows_per_poll: int = Field(0, ge=0)
    """The most rows of one micro-batch; 0: as many as the flow's limits allow."""
    max_bytes_per_poll: int = Field(0, ge=0)
    """The most bytes of one micro-batch, as they are stored in the data files; at least one row is
    read. 0: as many as the flow's limits allow."""
    on_source_rewrite: Annotated[Literal["fail", "rescan", "ignore"], Addition()] = "fail"
    """What happens when a snapshot deletes or replaces rows. `fail`: the flow stops and names the
    snapshot. `rescan`: the flow reads the current snapshot in full again; the sinks must upsert,
    and keep rows that were deleted. `ignore`: the flow skips the snapshot, also the rows that it
    adds, and logs that."""
    parallel_reads: Annotated[int, Addition()] = Field(4, ge=1, le=64)
    """How many parts of a large snapshot are read at the same time."""

    @field_validator("start_snapshot_id", mode="before")
    @classmethod
    def _digits(cls, value: Any) -> Any:
        if value is None:
            return value
        text = str(value)
        if isinstance(value, bool) or not (text.isdecimal() and int(text) <= _LARGEST_ID):
            raise ValueError('must be the digits of a snapshot id, like "1234567890123456789"')
        return text

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if self.start_snapshot_id and not self.incremental_by_snapshot:
            yield "startSnapshotID is used only with incrementalBySnapshot: true"

    @property
    @override
    def traits(self) -> SourceTraits:
        rereads = "onSourceRewrite: rescan" if self.on_source_rewrite == "rescan" else ""
        return SourceTraits(rereads=rereads, poll_seconds=float(self.poll_interval))


OWN_IDS = 2_000_000_000
"""The first of the field ids that no file may declare: of columns of our own."""
RECORD_TIME = "_record_timestamp"
"""The column of our own that takes the time of each record."""


@dataclass(frozen=True)
class Registered:
    """Columns that are the fields of all versions of a subject of a schema registry.

    `kind`: of its schemas, as the registry names it. `key`: the columns that rows are matched by.
    `record_time`: the column of the records' own time.
    """

    registry: SchemaRegistry
    subject: str
    kind: Literal["AVRO", "JSON"] = "AVRO"
    key: tuple[str, ...] = ()
    record_time: str | None = None


@dataclass(frozen=True)
class IcebergDeclared:
    """A table whose columns are declared with their field ids.

    `columns`: Iceberg's JSON of a schema, or where a registry has them. `partitions`: terms like
    `hour(created_at)`.
    """

    columns: str | Registered
    location: str
    partitions: tuple[str, ...] = ()


class TableSinkOptions(SoftDeleteOptions, CatalogConnection):
    """Options of a sink that writes a table."""

    batch_size: Annotated[int, Hint("a commit takes a whole micro-batch")] = Field(100, ge=0)
    """Rows per flush."""
    batch_flush_interval_seconds: int = Field(10, ge=0)
    """The shortest time between two commits while few records arrive, in seconds."""
    target_file_size_bytes: Annotated[int, Addition()] = Field(128 * 1024 * 1024, ge=1024)
    """A data file is closed when it has this many bytes."""
    partition_by: Annotated[Texts, Addition(), Needs("auto_create_table")] = ()
    """Partitions of a table that the flow creates: `created_at`, `year(..)`, `month(..)`,
    `day(..)`, `hour(..)`, `bucket(16, id)`, `truncate(10, name)`."""
    sort_by: Annotated[Texts, Addition(), Needs("auto_create_table")] = ()
    """Sort order of a table that the flow creates: `id`, `created_at desc nulls last`."""
    upsert_mode: Annotated[bool, Addition(), Requires("conflict_key")] = False
    """`true`: a row replaces the row with the same `conflictKey`, and a delete deletes that row."""
    conflict_key: Annotated[Texts, Addition(), Requires("upsert_mode")] = ()
    """One column or a list of them that rows are matched by; required with `upsertMode`. With
    `rawMode` these are metadata of the records, such as `key`, each in a column of its own."""
    soft_delete_column: Annotated[str | None, Addition(), Requires("upsert_mode")] = None
    """A timestamp column: a delete sets it to the current time, an upsert of the key to null."""
    maintenance: Annotated[Literal["auto", "off"], Addition()] = "off"
    """`auto`: between its commits the flow itself merges small files; in a REST catalog it also
    removes snapshots that were replaced more than five days ago, and files that no snapshot has
    listed for three days. A table with a sort order, or with delete files of other programs, is not
    merged. `off`: the flow does nothing of this; a job may."""
    snapshots_stay: ClassVar[timedelta | None] = timedelta(days=5)
    """For how long the flow itself keeps snapshots that were replaced; None: for ever."""
    written_alone: ClassVar[bool] = False
    """Whether nobody but the flow may write the table, so that another writer is warned of."""
    read_by_path: ClassVar[bool] = False
    """Whether the flow leaves the newest metadata in the table's folder, for readers by path, which
    the catalog does not do."""

    @field_validator("columns")
    @classmethod
    def _types(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name, text in value.items():
            parse_field(name, text)
        return value

    @field_validator("partition_by")
    @classmethod
    def _terms(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = [parse_term(text).name for text in value]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{', '.join(twice)} is a duplicate")
        return value

    @field_validator("sort_by")
    @classmethod
    def _orders(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            parse_order(text)
        return value

    @property
    @override
    def traits(self) -> SinkTraits:
        return replace(
            super().traits,
            takes_deletes=self.upsert_mode or self.raw_mode,
            flush_seconds=float(self.batch_flush_interval_seconds),
        )

    @override
    def remarks(self) -> Iterator[tuple[str, str]]:
        yield from super().remarks()
        if self.batch_flush_interval_seconds == 0:
            yield "batch_flush_interval_seconds", AT_ONCE

    @property
    def keeps_itself(self) -> bool:
        """True where the flow merges small files, expires snapshots and deletes leftovers."""
        return self.maintenance == "auto"

    @property
    def row_retention(self) -> tuple[timedelta | None, str]:
        """For how long rows stay, and the column with their times; None: for ever."""
        return None, ""

    @property
    def declaration(self) -> IcebergDeclared | None:
        """The declaration of the table; None where its columns come from the records."""
        return None

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that rows are matched by; empty where rows are appended."""
        return self.conflict_key if self.upsert_mode else ()
