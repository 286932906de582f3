"""What reading and writing whole tables share: where a table is.

Apart from both, because `read` and `write` do not know each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dataflow_assets.connectors.clickhouse.client import quote
from dataflow_assets.connectors.clickhouse.type_names import ClickhouseType
from dataflow_assets.errors import PermanentError

APPLICATION = "dataflow-frames"
BYTES = "bytes"
"""Comment of a String column whose values are bytes: ClickHouse has one type for both."""


@dataclass(frozen=True)
class ClickhouseFrameTable:
    """One table of one server."""

    connection: str = field(repr=False)
    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def name(self) -> str:
        return quote(self.database, self.table)

    def beside(self, table: str) -> ClickhouseFrameTable:
        return replace(self, table=table)

    def missing(self) -> PermanentError:
        return PermanentError(f"table {self} does not exist")


def is_bytes(kind: str, comment: str) -> bool:
    """Returns whether a frame has the column's values as bytes, and not as text."""
    return comment == BYTES and ClickhouseType.of(kind).bare.name in ("String", "FixedString")
