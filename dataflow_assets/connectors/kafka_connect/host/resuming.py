"""Behind which records a connector can go on: rules for offsets that do not say so by themselves.

Debezium for PostgreSQL goes on wrongly behind the first of several records that one entry of the
log has made (COPY writes such entries): it takes that entry for done, and the other records are
lost. So the offset before the entry is kept, and the record is dropped when it comes once more.
Inside of a snapshot no connector of Debezium can go on: it begins the snapshot again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_ENTRY, _COUNT = "lsn_proc", "lsn_events_processed"
_COMPLETED = "snapshot_completed"


def resumable(offset: Any) -> bool:
    """Whether a connector that is given this offset goes on behind it, sooner or later."""
    return not isinstance(offset, Mapping) or offset.get(_COMPLETED) is not False


def may_split(offset: Any) -> bool:
    """Whether the entry that this record comes from may have made more records."""
    return isinstance(offset, Mapping) and offset.get(_COUNT) == 1 and _ENTRY in offset


def before_entry(offsets: Sequence[Any], known: Any) -> Any:
    """The offset before the entry that the last record comes from.

    Args:
        offsets: of the records of one source partition, in their order.
        known: the offset before all of them; None where there is none.
    """
    entry = offsets[-1][_ENTRY]
    return next((one for one in reversed(offsets) if _entry(one) not in (entry, None)), known)


def repeated(offset: Any, seen: Any) -> bool:
    """Whether a record is the one at `seen`, which was delivered before a restart."""
    return isinstance(offset, Mapping) and _place(offset) == _place(seen)


def passed(offset: Any, seen: Any) -> bool:
    """Whether the record at `seen` can come no more."""
    if not isinstance(offset, Mapping) or None in _place(offset):
        return False
    return bool(_place(offset) > _place(seen))


def _entry(offset: Any) -> Any:
    return offset.get(_ENTRY) if isinstance(offset, Mapping) else None


def _place(offset: Mapping[str, Any]) -> tuple[Any, Any]:
    return offset.get(_ENTRY), offset.get(_COUNT)
