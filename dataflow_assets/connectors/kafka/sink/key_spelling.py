"""How a flow writes the keys of its topic: as Flink does, or as it began with an earlier version.

A row is found by the bytes of its key. A topic that an earlier version has filled goes on with the
keys that it has, until it is emptied; the head of its branch says which keys these are.
"""

from __future__ import annotations

import pyarrow as pa

FLINK = "flink"
"""What a head says where keys are Flink's; heads of earlier versions say nothing."""
_MARK = b"dataflow.keys"


def marked(schema: pa.Schema, keys: str) -> pa.Schema:
    """A ticket's schema that carries what a head says to the tasks."""
    return schema.with_metadata({**(schema.metadata or {}), _MARK: keys.encode()})


def keys_of(schema: pa.Schema) -> str:
    """Reads the mark of a ticket's schema: FLINK where it carries none."""
    carried: bytes = (schema.metadata or {}).get(_MARK, FLINK.encode())
    return carried.decode()
