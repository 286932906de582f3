"""The changes of one table as they come in, and as records once there are enough of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataflow_assets.connectors.postgresql.cdc.deferred_keys import states
from dataflow_assets.connectors.postgresql.cdc.envelope import UNLOGGED, CdcTransaction, Records
from dataflow_assets.connectors.postgresql.cdc.errors import not_logged
from dataflow_assets.connectors.postgresql.cdc.layout import CdcLayout
from dataflow_assets.connectors.postgresql.cdc.tuples import Bools, CdcChanges, CdcColumn, Ints
from dataflow_assets.connectors.postgresql.source.fitted import Fitted, batch_of
from dataflow_assets.contracts import ABSENT, OP
from dataflow_assets.formats.rows import objects
from dataflow_assets.sdk.key_folding import distinct

OLD_KEY = " (old key)"


class CdcChanged:
    """Collects the messages of one table, of one layout."""

    def __init__(self, layout: CdcLayout, before: CdcChanged | None, *, with_old: bool) -> None:
        """Collects nothing yet.

        Args:
            layout: of the table.
            before: what has collected for the earlier layout: numbers of changes go on.
            with_old: old rows of updates are wanted.
        """
        self.layout = layout
        self._with_old = with_old
        self._data, self._sizes = bytearray(), list[int]()
        self._runs: list[tuple[int, CdcTransaction, int]] = []
        self._counted, self._last = before.state if before else (0, None)
        # Events are no states: each of them is delivered.
        self._as_states = bool(layout.deferred) and not with_old

    @property
    def state(self) -> tuple[int, CdcTransaction | None]:
        """Returns how many changes of which transaction were counted last."""
        return self._counted, self._last

    def add(self, message: bytes | memoryview, transaction: CdcTransaction) -> None:
        if transaction is not self._last:
            self._counted, self._last = 0, transaction
        if not self._runs or self._runs[-1][1] is not transaction:
            self._runs.append((len(self._sizes), transaction, self._counted))
        self._data += message
        self._sizes.append(len(message))
        self._counted += 1

    def count(self, transaction: CdcTransaction) -> int:
        """The number of a change that is no row's."""
        number = self._counted if transaction is self._last else 0
        self._counted, self._last = number + 1, transaction
        return number

    def take(self, unfinished: CdcTransaction | None = None) -> Records | None:
        """Returns what was collected; None where that is nothing.

        `unfinished`: whose changes go on; those of a table whose keys are exchanged stay together.
        """
        if self._as_states and len(self._runs) == 1 and self._runs[0][1] is unfinished:
            return None  # all of it stays; a copy for each batch costs quadratic time
        data, sizes, runs = bytes(self._data), self._sizes, self._runs
        self._data, self._sizes, self._runs = bytearray(), [], []
        if self._as_states and runs and runs[-1][1] is unfinished:
            start, _, number = runs.pop()
            kept = sum(sizes[start:])
            self._data, self._sizes = bytearray(data[len(data) - kept :]), sizes[start:]
            self._runs = [(0, unfinished, number)]
            data, sizes = data[: len(data) - kept], sizes[:start]
        if not sizes:
            return None
        layout = self.layout
        changes = CdcChanges(data, sizes, len(layout.columns), layout.key_indexes)
        starts = [start for start, *_ in runs]
        lengths = np.diff([*starts, len(sizes)])
        transactions = [transaction for _, transaction, _ in runs]
        each = np.repeat(np.arange(len(runs)), lengths)
        if self._as_states:
            changes.keep(states(layout, changes, each[changes.message]))
        rows = _rows(layout, changes)
        of = each[changes.message]
        first = np.array([number - start for start, _, number in runs])
        numbers = _numbers(changes.message + first[of], changes.of_old_key)
        before = _before(layout, changes) if self._with_old else {}
        return Records(layout, rows, transactions, of, numbers, before)


def _rows(layout: CdcLayout, found: CdcChanges) -> pa.RecordBatch:
    """The wanted columns, OP, and ABSENT where values are not in the log."""
    columns: list[Fitted] = []
    unknown: list[Bools] = []
    for index in layout.wanted:
        column = layout.columns[index]
        image = found.image(index)
        absent = found.absent_rows(image, is_key=column.identifies)
        found.check_known(absent, layout.sql, column.name)
        columns.append(column.fit(found.texts(image)))
        unknown.append(absent)
    columns.append(Fitted(pa.field(OP, pa.int8()), pa.array(found.operations)))
    if any(one.any() for one in unknown):
        bits = np.stack(unknown, axis=1)
        columns.append(Fitted(pa.field(ABSENT, pa.binary()), _masks(bits)))
        unlogged = bits & ~found.is_deleted[:, None]  # of a deleted row the key is enough
        if unlogged.any():
            columns.append(Fitted(UNLOGGED, _reasons(layout, unlogged)))
    return batch_of(columns)


def _masks(bits: Bools) -> pa.Array:
    packed = np.packbits(bits, axis=1, bitorder="little")
    data = pa.py_buffer(packed.tobytes())
    fixed = pa.Array.from_buffers(pa.binary(packed.shape[1]), len(bits), [None, data])
    return fixed.cast(pa.binary())


def _reasons(layout: CdcLayout, bits: Bools) -> pa.Array:
    masks, which = distinct(bits)
    names = np.array([column.name for column in layout.read], object)
    texts = [not_logged(layout.sql, names[mask]) if mask.any() else None for mask in masks]
    return pa.array(texts, pa.string()).take(pa.array(which))


def _before(layout: CdcLayout, found: CdcChanges) -> dict[int, bytes]:
    """Old rows as JSON, by the row that replaces them."""
    rows = np.flatnonzero(found.has_old)
    if not len(rows):
        return {}

    def values(index: int) -> Fitted:
        image: CdcColumn = found.old_image(index)
        return layout.columns[index].fit(found.texts(image))

    images = batch_of([values(index) for index in layout.wanted])
    return dict(zip(rows.tolist(), objects(images), strict=True))


def _numbers(numbers: Ints, of_old_key: Bools) -> pa.Array:
    """Which change each row is; the two rows of a change of the key are told apart."""
    if not of_old_key.any():
        return pa.array(numbers)
    pairs = zip(numbers.tolist(), of_old_key.tolist(), strict=True)
    return pa.array([f"{number}{OLD_KEY if old else ''}" for number, old in pairs])
