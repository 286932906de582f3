"""Rows whose keys are all new go straight into the target by COPY, at half the price.

ON CONFLICT looks for each key before it inserts, and what it inserts went through the temporary
table first. Whether keys are new is guessed from a sample; a wrong guess is taken back whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.connectors.postgresql.errors import Failure, Kind

LEAST = 10_000  # rows; with fewer, asking costs more than it can save
SAMPLE = 100
PAUSE = 16  # slices without an attempt after a wrong guess, whose rows wait for a vacuum

# A subquery for each sampled row is always planned as a look into the index, never as a join.
_KNOWN = "SELECT count((SELECT 1 FROM {target} AS t WHERE {same} LIMIT 1)) FROM {staged} AS s"

Load = Callable[[pa.RecordBatch], None]

_pauses: dict[str, int] = {}  # of this process, by the name of the temporary table


class DirectCopy:
    """The attempts of one slice."""

    def __init__(self, link: Link, name: str, words: Mapping[str, str]) -> None:
        self._link = link
        self._name = name
        self._known = _KNOWN.format(**words)
        left = _pauses.pop(name, 0)
        self._open = left == 0
        if left > 1:
            _pauses[name] = left - 1

    def load(self, rows: pa.RecordBatch, stage: Load, copy: Load) -> bool:
        """True when the rows are in the target; else nothing has happened to it."""
        if not self._open or rows.num_rows < LEAST or not self._all_new(rows, stage):
            return False
        self._open = self._attempt(rows, copy)
        if not self._open:
            _pauses[self._name] = PAUSE
        return self._open

    def _all_new(self, rows: pa.RecordBatch, stage: Load) -> bool:
        places = np.linspace(0, rows.num_rows - 1, SAMPLE).astype(np.int64)
        stage(rows.take(pa.array(np.unique(places))))
        ((known,),) = self._link.execute(self._known)
        self._open = known == 0
        return self._open

    def _attempt(self, rows: pa.RecordBatch, copy: Load) -> bool:
        """Whatever the table has against it, the usual way finds out again, and row by row."""
        self._link.execute("SAVEPOINT dataflow_straight")
        try:
            copy(rows)
        except Failure as failure:
            if failure.kind is Kind.TRANSIENT:
                raise
            self._link.execute("ROLLBACK TO SAVEPOINT dataflow_straight")
            return False
        self._link.execute("RELEASE SAVEPOINT dataflow_straight")
        return True
