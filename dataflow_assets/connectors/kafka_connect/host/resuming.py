"""Behind which records a connector can go on: rules for offsets that do not say so by themselves.

Debezium for PostgreSQL goes on wrongly behind the first of several records that one entry of the
log has made (COPY writes such entries): it takes that entry for done, and the other records are
lost. So it is given the offset before the entry, and the records that come once more are dropped:
several ones where a change makes more than one record of the same offset, such as a deletion and
its tombstone, or the deletion and the insert of another primary key.
Inside of a snapshot no connector of Debezium can go on: it begins the snapshot again. Some say
whether the snapshot is complete; others have a mark in the offset for as long as it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from dataflow_assets.connectors.kafka_connect.spool import Offset, Offsets, canonical

_ENTRY, _COUNT = "lsn_proc", "lsn_events_processed"
_COMPLETED = "snapshot_completed"
_MARKS = ("snapshot", "initsync")  # of MySQL and MariaDB, of MongoDB
_RUNS = frozenset({"true", "initial", "blocking"})


def resumable(offset: Any) -> bool:
    """Whether a connector that is given this offset goes on, and does not begin again."""
    if not isinstance(offset, dict):
        return True
    if _COMPLETED in offset:
        return offset[_COMPLETED] is not False
    return all(str(offset.get(mark)).lower() not in _RUNS for mark in _MARKS)


def behind(texts: Sequence[str], task: int, known: Offset | None) -> Offset:
    """The offset that stands for records of one source partition.

    Args:
        texts: their offsets as JSON, in their order.
        task: who has delivered them.
        known: the offset before all of them.
    """
    last = msgspec.json.decode(texts[-1])
    if not _may_be_split(last):
        return Offset(task, last)
    for times, text in enumerate(reversed(texts)):
        earlier = msgspec.json.decode(text)
        if earlier.get(_ENTRY) != last[_ENTRY]:
            return Offset(task, earlier, last, times)
    # The first record of all begins its entry: there is no offset before it to go on behind.
    return Offset(task, last) if known is None else _continued(known, task, last, len(texts))


def _continued(known: Offset, task: int, last: Any, times: int) -> Offset:
    """All records are of one entry; so are the last ones before, where a part has divided it."""
    if known.last.get(_ENTRY) != last[_ENTRY]:
        return Offset(task, known.last, last, times)
    before = 0 if known.seen is None else known.times
    return Offset(task, known.value, last, times + before)


def _may_be_split(offset: Any) -> bool:
    """Whether the entry that this record begins may have made more records."""
    return isinstance(offset, dict) and offset.get(_COUNT) == 1 and _ENTRY in offset


class Repeats:
    """Drops the records that a connector delivers once more; of one task.

    `known`: what the connector was given to go on behind.
    """

    def __init__(self, known: Offsets) -> None:
        self._seen = {
            key: (one.seen, one.times) for key, one in known.items() if one.seen is not None
        }

    def dropped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records of a batch that are new."""
        if not self._seen:
            return batch
        columns = (batch.column(name).to_pylist() for name in ("partition", "offset"))
        return batch.filter(pa.array([self._is_new(*row) for row in zip(*columns, strict=True)]))

    def _is_new(self, partition: str | None, offset: str | None) -> bool:
        if partition is None or offset is None:
            return True
        key = canonical(msgspec.json.decode(partition))
        if key not in self._seen:
            return True
        seen, left = self._seen[key]
        here, there = _place(msgspec.json.decode(offset)), _place(seen)
        if here == there and left > 1:
            self._seen[key] = seen, left - 1
        elif None not in here and here >= there:
            del self._seen[key]
        return here != there


def _place(offset: Any) -> tuple[Any, Any]:
    return offset.get(_ENTRY), offset.get(_COUNT)
