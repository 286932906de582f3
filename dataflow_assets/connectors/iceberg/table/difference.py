"""Differences between a declaration and its table, and which changes a table can take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pyiceberg import types as ice
from pyiceberg.types import IcebergType

ALLOWED = "allowed: add an optional field, make a field optional, int to long, float to double"
PARTITIONING: Final = "partitioning"
KEY: Final = "key"
WIDER = {
    (ice.IntegerType(), ice.LongType()),
    (ice.FloatType(), ice.DoubleType()),
}
"""Types, and those that a column of them can become."""


@dataclass(frozen=True)
class Difference:
    """A difference between declaration and table that cannot be removed.

    `field`: the id of the declared field that it is about; None for the columns as a whole.
    """

    message: str
    field: int | Literal["partitioning", "key"] | None = None

    @property
    def sentence(self) -> str:
        own = self.field in (PARTITIONING, KEY)
        return self.message if own else f"{self.message}; {ALLOWED}"


def show_type(kind: IcebergType) -> str:
    """A type as files name it, without what is inside."""
    nested = {ice.StructType: "struct", ice.ListType: "list", ice.MapType: "map"}
    return nested.get(type(kind), str(kind))
