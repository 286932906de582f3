"""Rows of new keys go straight into the target by COPY, at half the price.

ON CONFLICT looks for each key before it inserts, and what it inserts went through the temporary
table first. Which keys are stored the source may know; whether all others are new is guessed from a
sample. Where the table refuses anything, all of it is taken back and merged by one statement, which
PostgreSQL checks as a whole: an updated row may refer to a new one, or take its unique value over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure, PostgresqlKind
from dataflow_assets.connectors.postgresql.sink.upsert_rules import STORED

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

    def load(self, rows: pa.RecordBatch, stage: Load, merge: Load, copy: Load) -> bool:
        """True when the rows are in the target; else nothing has happened to it.

        `merge`: what rows of stored keys take; they go first, and may give unique values away.
        """
        stored = rows.column(STORED)
        new = rows.filter(pc.invert(stored))
        if not self._open or new.num_rows < LEAST or not self._all_new(new, stage):
            return False
        self._open = self._attempt(rows.filter(stored), merge, new, copy)
        if not self._open:
            _pauses[self._name] = PAUSE
        return self._open

    def _all_new(self, rows: pa.RecordBatch, stage: Load) -> bool:
        places = np.linspace(0, rows.num_rows - 1, SAMPLE).astype(np.int64)
        stage(rows.take(pa.array(np.unique(places))))
        ((known,),) = self._link.execute(self._known)
        self._open = known == 0
        return self._open

    def _attempt(
        self, stored: pa.RecordBatch, merge: Load, new: pa.RecordBatch, copy: Load
    ) -> bool:
        """Whatever the table has against it, the usual way finds out again, and row by row."""
        self._link.execute("SAVEPOINT dataflow_straight")
        try:
            if stored.num_rows:
                merge(stored)
            copy(new)
        except PostgresqlFailure as failure:
            if failure.kind is PostgresqlKind.TRANSIENT:
                raise
            self._link.execute("ROLLBACK TO SAVEPOINT dataflow_straight")
            return False
        self._link.execute("RELEASE SAVEPOINT dataflow_straight")
        return True
