"""What a task must know of the target and of the micro-batch; travels in the ticket's schema."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pyarrow as pa

_METADATA = b"dataflow.clickhouse"


class Facts(msgspec.Struct, frozen=True):
    """Told by the session that holds the epoch."""

    uuid: str
    """Of the table: another one of its name is not written to."""
    at: datetime
    """What the steps take for now."""
    partitioned: bool
    """One INSERT may become several blocks: they are atomic each, not together."""
    replicated: bool
    version: str | None
    """The column that is filled with the chunk's version."""
    deleted: str | None
    """The column that says whether the row is a deletion."""

    def into(self, schema: pa.Schema) -> pa.Schema:
        """The schema with these facts."""
        told = {_METADATA: msgspec.json.encode(self)}
        return schema.with_metadata({**(schema.metadata or {}), **told})

    @classmethod
    def of(cls, schema: pa.Schema) -> Facts:
        """Read back."""
        return msgspec.json.decode(schema.metadata[_METADATA], type=cls)
