"""Records after which a connector can resume: rules for offsets that do not say so by themselves.

Debezium for PostgreSQL counts the records of one entry of the log (COPY writes entries of many
rows). Inside of an entry it cannot go on: behind its first record it takes the entry for done, and
the other records are lost; behind a later one it counts from 1 again, and goes on wrongly the next
time. And several records may have one offset, such as a deletion and its tombstone, or the deletion
and the insert of another primary key. So it is given the offset before the entry, and the records
that come once more are dropped.
Inside of a snapshot no connector of Debezium can go on: it begins the snapshot again. Some say
whether the snapshot is complete; others have a mark in the offset for as long as it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from dataflow_assets.connectors.kafka_connect.spool import ConnectOffset, Offsets, canonical

_ENTRY, _COUNT = "lsn_proc", "lsn_events_processed"
_COMPLETED = "snapshot_completed"
_MARKS = ("snapshot", "initsync")  # of MySQL and MariaDB, of MongoDB
_RUNS = frozenset({"true", "initial", "blocking"})


def resumable(offset: Any) -> bool:
    """Returns whether a connector that is given this offset goes on, and does not begin again."""
    if not isinstance(offset, dict):
        return True
    if _COMPLETED in offset:
        return offset[_COMPLETED] is not False
    return all(str(offset.get(mark)).lower() not in _RUNS for mark in _MARKS)


def after(texts: Sequence[str], task: int, known: ConnectOffset | None) -> ConnectOffset:
    """The offset that stands for records of one source partition.

    Args:
        texts: their offsets as JSON, in their order.
        task: who has delivered them.
        known: the offset before all of them.
    """
    last = msgspec.json.decode(texts[-1])
    if None in (place := _place(last)):
        return ConnectOffset(task, last)
    times = 0
    for text in reversed(texts):
        earlier = msgspec.json.decode(text)
        if _place(earlier) == place:
            times += 1
        elif not resumable(earlier):
            return ConnectOffset(task, last)
        elif _place(earlier)[0] != place[0]:
            return ConnectOffset(task, earlier, last, times)
    return _continue(known, task, last, times)


def _continue(known: ConnectOffset | None, task: int, last: Any, times: int) -> ConnectOffset:
    """All records are of one entry, and so may be the last ones before them."""
    if known is None or not resumable(known.value):
        return ConnectOffset(task, last)  # `may_be_cut` has seen to it
    here, there = _place(last), _place(known.last)
    if here[0] != there[0]:
        return ConnectOffset(task, known.last, last, times)
    before = known.times if known.seen is not None and here == there else 0
    return ConnectOffset(task, known.value, last, times + before)


def may_be_cut(first: Any, last: Any, known: ConnectOffset | None) -> bool:
    """True where later records may belong to the same entry, and would be lost.

    Where no offset before the entry is known, to go on behind, they are stored only together with
    what follows, or once nothing follows.

    Args:
        first: offset of the first of these records.
        last: offset of the last of them.
        known: the offset before all of them.
    """
    entry = _place(last)[0]
    return known is None and entry is not None and _place(first)[0] == entry


class Repeats:
    """Drops the records that a connector delivers once more; of one task.

    `known`: what the connector was given to go on behind.
    """

    def __init__(self, known: Offsets) -> None:
        self._seen = {
            key: (one.seen, one.times) for key, one in known.items() if one.seen is not None
        }

    def drop(self, batch: pa.RecordBatch) -> pa.RecordBatch:
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
        return here != there and not _is_before(here, there)


def _is_before(here: tuple[Any, Any], there: tuple[Any, Any]) -> bool:
    return None not in here and here[0] == there[0] and here[1] < there[1]


def _place(offset: Any) -> tuple[Any, Any]:
    """Entry of the log and number in it; None where an offset has neither."""
    return (offset.get(_ENTRY), offset.get(_COUNT)) if isinstance(offset, dict) else (None, None)
