"""Tries rows inside a savepoint and finds the ones that the table refuses, by halving.

Nothing of a failed attempt stays. Past a thousand refusals short runs go row by row: where many are
refused, halving costs more than it saves.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.connectors.postgresql.errors import Failure, Kind
from dataflow_assets.contracts import reserved

HALVED = 1_000  # refusals of a slice up to which every run is halved to its end
SHORT = 128  # rows
ATTEMPTS = 6  # of a statement that lost to a deadlock, before the whole slice is tried again

ORDER = reserved("order")  # optional column: which row came after which

Refused = list[tuple[pa.RecordBatch, Failure]]


@dataclass
class Trial:
    """Runs a load; `refused` counts over the whole slice."""

    link: Link
    refused: int = field(default=0)

    def run(self, rows: pa.RecordBatch, load: Callable[[pa.RecordBatch], None]) -> Refused:
        """Loads what can be loaded; returns single rows with the reason of their refusal."""
        failure = self._attempt(rows, load)
        if failure is None:
            return []
        if rows.num_rows <= 1:
            self.refused += 1
            return [(rows, failure)]
        found: Refused = []
        for part in self._parts(rows, failure):
            found += self.run(part, load)
        return found

    def _parts(self, rows: pa.RecordBatch, failure: Failure) -> list[pa.RecordBatch]:
        many = self.refused >= HALVED and rows.num_rows <= SHORT
        if many and failure.kind is Kind.REFUSED:
            return [rows.slice(index, 1) for index in range(rows.num_rows)]
        if failure.kind is Kind.SPLIT and ORDER in rows.schema.names:
            rows = rows.take(pc.sort_indices(rows.column(ORDER)))  # the last one shall win
        half = rows.num_rows // 2
        return [rows.slice(0, half), rows.slice(half)]

    def _attempt(
        self, rows: pa.RecordBatch, load: Callable[[pa.RecordBatch], None]
    ) -> Failure | None:
        for attempt in range(ATTEMPTS):
            failure = self._once(rows, load)
            if failure is None or failure.kind in {Kind.REFUSED, Kind.SPLIT}:
                return failure
            if failure.kind is not Kind.AGAIN or attempt == ATTEMPTS - 1:
                raise failure
            time.sleep(random.uniform(0.5, 1.0) * 0.02 * 2**attempt)  # noqa: S311 - jitter
        return None

    def _once(self, rows: pa.RecordBatch, load: Callable[[pa.RecordBatch], None]) -> Failure | None:
        self.link.execute("SAVEPOINT dataflow")
        try:
            load(rows)
        except Failure as failure:
            if failure.kind in {Kind.TRANSIENT, Kind.PERMANENT}:
                raise
            self.link.execute("ROLLBACK TO SAVEPOINT dataflow")
            return failure
        self.link.execute("RELEASE SAVEPOINT dataflow")
        return None
