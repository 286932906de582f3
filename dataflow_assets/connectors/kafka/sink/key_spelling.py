"""How a flow writes the keys of its topic: as this version does, or as an earlier one began it.

A row is found by the bytes of its key. A topic that an earlier version has filled goes on with the
keys that it has, until it is emptied; the head of its branch says which keys these are.
"""

from __future__ import annotations

import pyarrow as pa

CURRENT = "flink"
"""What a head says where keys are this version's; heads of earlier versions say nothing."""
_MARK = b"dataflow.keys"


def mark(schema: pa.Schema, keys: str) -> pa.Schema:
    """A ticket's schema that carries what a head says to the tasks."""
    return schema.with_metadata({**(schema.metadata or {}), _MARK: keys.encode()})


def has_old_keys(schema: pa.Schema) -> bool:
    """Reads the mark of a ticket's schema; one without a mark has this version's keys."""
    return bool((schema.metadata or {}).get(_MARK, CURRENT.encode()) != CURRENT.encode())
