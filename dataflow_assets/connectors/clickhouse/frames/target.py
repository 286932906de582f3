"""The table that a frame is written to: found, made where it is missing, and checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dataflow_assets.connectors.clickhouse import types
from dataflow_assets.connectors.clickhouse.client import Client, literal, name_list, quote
from dataflow_assets.connectors.clickhouse.errors import failing
from dataflow_assets.connectors.clickhouse.frames.frame_table import BYTES, ClickhouseFrameTable
from dataflow_assets.connectors.clickhouse.frames.partition_key import PartitionKey
from dataflow_assets.connectors.clickhouse.table.table import ClickhouseTable, find
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.table_frames import Mode, refuse_unknown_columns
from dataflow_assets.sdk.table_partitions import Partitions


@dataclass(frozen=True)
class ClickhouseTarget:
    """What is written, and how. Methods raise Failure or PermanentError."""

    client: Client
    place: ClickhouseFrameTable
    columns: pa.Schema
    mode: Mode
    key: tuple[str, ...]
    partitions: Partitions | None = None

    def table(self) -> ClickhouseTable:
        """The table, made where it is missing."""
        table = self._find()
        if table is None:
            self._make()
            table = self._find()
        if table is None:
            raise self.place.missing()
        refuse_unknown_columns(self.place, self.columns.names, [c.name for c in table.columns])
        if self.mode == "upsert":
            self._check_upsert(table)
        if self.partitions is not None:
            self._check_partitions(table, self.partitions)
        return table

    def _find(self) -> ClickhouseTable | None:
        return find(self.client, self.place.database, self.place.table)

    def _make(self) -> None:
        """Makes a table of the frame's columns; what orders or partitions it cannot be null."""
        laid_out = (*self.key, *(self.partitions.columns if self.partitions else ()))
        columns = [f.with_nullable(f.nullable and f.name not in laid_out) for f in self.columns]
        engine = "ReplacingMergeTree" if self.mode == "upsert" else "MergeTree"
        if self.partitions is not None:
            kinds = {each.name: types.declaration(each) for each in columns}
            engine += (
                f" PARTITION BY {PartitionKey(self.client, kinds).expression(self.partitions)}"
            )
        create(self.client, self.place, columns, engine, self.key)

    def _check_partitions(self, table: ClickhouseTable, partitions: Partitions) -> None:
        if not table.engine.endswith("MergeTree"):
            raise PermanentError(
                f"{self.place} is of the engine {table.engine}, whose partitions cannot be "
                "replaced: make a table of the MergeTree family"
            )
        kinds = {column.name: column.type for column in table.columns}
        partitions.check(self.place, kinds)
        key = PartitionKey(self.client, kinds)
        key.check(self.place, partitions, table.partition_key)

    def _check_upsert(self, table: ClickhouseTable) -> None:
        if not table.replaces or set(table.sorting_key) != set(self.key):
            raise PermanentError(
                f"{self.place}: mode upsert needs a ReplacingMergeTree ORDER BY "
                f"({', '.join(self.key)}); it is {table.engine} ORDER BY "
                f"({', '.join(table.sorting_key)})"
            )
        if table.version and table.version not in self.columns.names:
            raise PermanentError(
                f"{self.place} finds the newest row of a key by {table.version}, which the frame "
                "lacks: add that column, or the stored rows would win"
            )


def create(
    client: Client,
    place: ClickhouseFrameTable,
    columns: Iterable[pa.Field],
    engine: str,
    key: Sequence[str],
) -> None:
    """Makes a table, unless another run has made it. Raises Failure."""
    declared = ", ".join(_declaration(each) for each in columns)
    order = f"({name_list(key)})" if len(key) > 1 else name_list(key) or "tuple()"
    ddl = f"CREATE TABLE IF NOT EXISTS {place.name} ({declared}) ENGINE = {engine} ORDER BY {order}"
    with failing():
        client.command(ddl)


def _declaration(column: pa.Field) -> str:
    comment = f" COMMENT {literal(BYTES)}" if pa.types.is_binary(column.type) else ""
    return f"{quote(column.name)} {types.declaration(column)}{comment}"
