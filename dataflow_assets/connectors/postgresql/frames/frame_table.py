"""What reading and writing whole tables share: where a table is, and errors in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from dataflow_assets.connectors.postgresql.client import qualified_name
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure
from dataflow_assets.sdk.table_frames import several_of_one_key

APPLICATION = "dataflow frames"


@dataclass(frozen=True)
class PostgresqlFrameTable:
    """One table of one database."""

    connection: str = field(repr=False)
    schema: str
    table: str

    @property
    def name(self) -> str:
        return qualified_name(self.schema, self.table)


@contextmanager
def translated_frames(place: PostgresqlFrameTable, doing: str) -> Iterator[None]:
    """Failures of the drivers as our errors, named after the table."""
    try:
        yield
    except PostgresqlFailure as failure:
        if failure.sqlstate == "21000":
            raise several_of_one_key(place.name) from None
        raise failure.error(f"{doing} {place.name}") from None


def is_bytes(kind: pa.DataType) -> bool:
    """bytea, in either of Arrow's two sizes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
