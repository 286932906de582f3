"""What replaces a row: the key, and the columns that the sink fills beside the records'."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataflow_assets.connectors.clickhouse.client import name_list
from dataflow_assets.connectors.clickhouse.options import DELETED, ClickhouseSinkOptions
from dataflow_assets.connectors.clickhouse.table.create_table import engine
from dataflow_assets.connectors.clickhouse.table.table import ClickhouseTable
from dataflow_assets.contracts import DELETE, OP
from dataflow_assets.errors import PermanentError


@dataclass(frozen=True)
class UpsertRules:
    """How rows replace each other."""

    key: tuple[str, ...] = ()
    version: str | None = None
    """Filled with the chunk's version."""
    deleted: str | None = None
    """Filled with 1 for a deletion, else 0."""

    @property
    def own_columns(self) -> frozenset[str]:
        return frozenset(name for name in (self.version, self.deleted) if name)

    @classmethod
    def of(cls, sink: ClickhouseSinkOptions, table: ClickhouseTable) -> UpsertRules:
        """Read from the table. Raises PermanentError where it cannot replace rows so."""
        if not sink.upsert_mode:
            return cls()
        key = sink.conflict_key or table.sorting_key
        if not table.replaces or set(key) != set(table.sorting_key):
            raise _unfit(
                sink,
                table,
                f"it is of the engine {table.engine}, ORDER BY ({', '.join(table.sorting_key)})",
            )
        version = None if table.version == sink.replacing_version_column else table.version
        if sink.replacing_version_column and version is not None:
            raise _unfit(sink, table, f"its version is {version}")
        _check_type(sink, table, version)
        return cls(key, version, _delete_column(sink, table))

    def columns(self, rows: pa.RecordBatch | pa.Table, version: int) -> dict[str, pa.Array]:
        count = rows.num_rows
        found: dict[str, pa.Array] = {}
        if self.version:
            found[self.version] = pa.array(np.full(count, version, np.uint64))
        if self.deleted:
            found[self.deleted] = pa.array(deletes(rows).astype(np.uint8))
        return found


def deletes(rows: pa.RecordBatch | pa.Table) -> np.ndarray:
    if OP not in rows.schema.names:
        return np.zeros(rows.num_rows, np.bool_)
    return np.asarray(rows.column(OP).fill_null(0).to_numpy() == DELETE)


def _delete_column(sink: ClickhouseSinkOptions, table: ClickhouseTable) -> str | None:
    if sink.delete_mode is None:
        return None
    if sink.delete_mode == "hard":
        if table.deleted is None:
            raise _unfit(sink, table, "it has no column that says what is deleted")
        return table.deleted
    if DELETED not in table.names or table.deleted is not None:
        raise _unfit(sink, table, f"deleteMode soft needs a column {DELETED} UInt8 of its own")
    return DELETED


def _check_type(sink: ClickhouseSinkOptions, table: ClickhouseTable, version: str | None) -> None:
    kind = next((column.type for column in table.columns if column.name == version), "UInt64")
    if kind != "UInt64":
        raise _unfit(
            sink,
            table,
            f"its version {version} is {kind}; only UInt64 can be filled with the order of "
            "reading: name it as replacingVersionColumn where the records carry it",
        )


def _unfit(sink: ClickhouseSinkOptions, table: ClickhouseTable, why: str) -> PermanentError:
    key = name_list(sink.conflict_key or table.sorting_key)
    return PermanentError(
        f"upsertMode: table {table.database}.{table.name} cannot replace rows as the manifest "
        f"says: {why}; it needs ENGINE = {engine(sink)} ORDER BY ({key}): make such a table, "
        "or name a new one and set autoCreateTable: true"
    )
