"""What a sink's manifest says about its upserts, and what one statement of them takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from dataflow_assets.connectors.postgresql.table.table import key_of

if TYPE_CHECKING:
    from dataflow_assets.connectors.postgresql.sink.sink import PostgresqlSink

GROUP = "_dataflow_group"  # column: the number of the row's key
POSITION = "_dataflow_position"  # column: the number of a key's spelling
DELETED = "_dataflow_deleted"  # optional column: whether the row's key is to be marked as deleted


@dataclass(frozen=True)
class Rules:
    """What the manifest says about keys, versions and deletes."""

    schema: pa.Schema
    key: tuple[str, ...]
    version: str | None = None
    soft: str | None = None
    hard: bool = False

    @classmethod
    def of(cls, sink: PostgresqlSink, schema: pa.Schema) -> Rules:
        """The rules of a sink."""
        version = sink.upsert_version_column if sink.upsert_strategy == "ifNewer" else None
        return cls(schema, key_of(schema), version, sink.soft, sink.delete_mode == "hard")

    @property
    def deletes(self) -> bool:
        """True where deletes mean something."""
        return self.hard or self.soft is not None


@dataclass(frozen=True)
class Step:
    """Rows for one statement: distinct keys, in key order, all carrying the same columns."""

    verb: Literal["upsert", "mark", "delete"]
    columns: tuple[str, ...]
    rows: pa.RecordBatch
