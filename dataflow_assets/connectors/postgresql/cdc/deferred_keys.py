"""A key that two rows may have for a moment: that of a constraint which is DEFERRABLE.

`UPDATE t SET id = id + 1` moves a row to a key that the next one has not left yet. The log has the
changes one by one: a deletion of the key that comes behind would take the row that has just come.
Such tables log whole rows, so it is known which of the two rows has left.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dataflow_assets.connectors.postgresql.cdc.layout import CdcLayout
from dataflow_assets.connectors.postgresql.cdc.tuples import Bools, CdcChanges, Ints


@dataclass(frozen=True)
class _DeferredArrival:
    """A row that has come to a key in this transaction, or was changed under it."""

    row: int
    """A digest of all its values."""
    changes: list[int]
    """Which changes it has come with, and was changed by under this key."""


@dataclass
class _DeferredKey:
    """The state of a key in this transaction."""

    arrivals: list[_DeferredArrival] = field(default_factory=list)
    """Of rows that are there, in the order of the changes."""
    is_owed: bool = False
    """A row that had the key before has left it, or was changed, and no deletion says so."""


def states(layout: CdcLayout, found: CdcChanges, of: Ints) -> Bools:
    """Which changes to deliver, so that a target has the rows of each transaction's end.

    A deletion of a key is left out where another row has that key by now. A row that has come to a
    key and gone is left out with both changes: another row may have had the key all along.

    Called by `Changed` for a table with such a key, with whole transactions.

    Args:
        layout: of the table.
        found: changes, in their order.
        of: of each of them the number of its transaction.
    """
    old, rows, keys = _digests(layout, found)
    kept = np.ones(len(found), np.bool_)
    deleted, last, deferred = found.is_deleted.tolist(), -1, dict[int, _DeferredKey]()
    for at, number in enumerate(of.tolist()):
        if number != last:
            last, deferred = number, {}
        if (digest := keys[at]) is None:
            continue
        key = deferred.setdefault(digest, _DeferredKey())
        if deleted[at]:
            _leave(key, rows[at], at, kept)
        else:
            _arrive(key, old[at], rows[at], at)
    return kept


def _arrive(key: _DeferredKey, old: int | None, row: int, at: int) -> None:
    """A row that is changed under its key comes to it again; one of before is in the target."""
    before = None if old is None else _take(key, old)
    key.is_owed = key.is_owed or (old is not None and before is None)
    key.arrivals.append(_DeferredArrival(row, [*(before.changes if before else ()), at]))


def _leave(key: _DeferredKey, row: int, at: int, kept: Bools) -> None:
    gone = _take(key, row)
    if gone is None:
        key.is_owed = True
    else:
        kept[gone.changes] = False
    kept[at] = key.is_owed and not key.arrivals
    key.is_owed = key.is_owed and not kept[at]


def _take(key: _DeferredKey, row: int) -> _DeferredArrival | None:
    """Takes the row out of those that have come; None: it was there before the transaction."""
    for at, one in enumerate(key.arrivals):
        if one.row == row:
            return key.arrivals.pop(at)
    return None


def _digests(
    layout: CdcLayout, found: CdcChanges
) -> tuple[list[int | None], list[int], list[int | None]]:
    indexes = range(len(layout.columns))
    values = [found.texts(found.image(index)).to_pylist() for index in indexes]
    olds = [found.texts(found.old_image(index)).to_pylist() for index in indexes]
    before = iter([hash(row) for row in zip(*olds, strict=True)])
    old = [next(before) if has else None for has in found.has_old.tolist()]
    rows = [hash(row) for row in zip(*values, strict=True)]
    keys = zip(*(values[index] for index in layout.deferred), strict=True)
    return old, rows, [None if None in key else hash(key) for key in keys]
