"""How a flow writes the keys of its topic: as Flink does, or as it began with an earlier version.

A row is found by the bytes of its key. A topic that an earlier version has filled goes on with the
keys that it has, until it is emptied; the head of its branch says which keys these are.
"""

from __future__ import annotations

import pyarrow as pa

from dataflow_assets.sql.bytes.layout import Spelling

FLINK = "flink"
"""What a head says where keys are Flink's; heads of earlier versions say nothing."""
_MARK = b"dataflow.keys"


def marked(schema: pa.Schema, keys: str) -> pa.Schema:
    """A ticket's schema that carries what a head says to the tasks."""
    return schema.with_metadata({**(schema.metadata or {}), _MARK: keys.encode()})


def spelling_of(schema: pa.Schema) -> Spelling:
    """What a ticket's schema carries."""
    found = (schema.metadata or {}).get(_MARK, FLINK.encode())
    return "Flink's" if found == FLINK.encode() else "before"
