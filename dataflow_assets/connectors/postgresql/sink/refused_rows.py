"""Tries rows inside a savepoint, so that nothing of a failed attempt stays."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pyarrow as pa

from dataflow_assets.connectors.postgresql.client import Link
from dataflow_assets.connectors.postgresql.errors import PostgresqlFailure, PostgresqlKind
from dataflow_assets.sdk.refused_rows import SuspectRows, attempt_rows
from dataflow_assets.sdk.server_failure import Fault, ServerFailure

ATTEMPTS = 6  # of a statement that lost to a deadlock, before the whole slice is tried again

Refused = list[tuple[pa.RecordBatch, ServerFailure]]
Load = Callable[[pa.RecordBatch], None]


class PostgresqlTrial:
    """Runs the loads of one slice."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.suspects = SuspectRows()

    def run(self, rows: pa.RecordBatch, load: Load, *, in_order: bool = False) -> Refused:
        """Loads what can be loaded; returns single rows with the reason of their refusal.

        Two spellings of one key that meet in one statement come apart as the rows are halved.
        """
        attempt = _PostgresqlAttempt(self._link, load)
        passes = attempt.passes if in_order else None
        found = self.suspects.search(rows, attempt, in_order=in_order, passes=passes)
        return [(one.row, one.failure) for one in found]


class _PostgresqlAttempt:
    """One load of rows, all or none of them."""

    def __init__(self, link: Link, load: Load) -> None:
        self._link, self._load = link, load
        self._loads_nothing = False

    def __call__(self, rows: pa.RecordBatch) -> ServerFailure | None:
        for attempt in range(ATTEMPTS):
            failure = self._once(rows)
            if failure is None or failure.fault is not Fault.OUTSIDE:
                if failure is not None and failure.fault is Fault.OPEN:
                    self._check_target(rows, failure)
                return failure
            if (
                not isinstance(failure, PostgresqlFailure)
                or failure.kind is not PostgresqlKind.AGAIN
            ):
                raise failure
            if attempt == ATTEMPTS - 1:
                raise failure
            time.sleep(random.uniform(0.5, 1.0) * 0.02 * 2**attempt)  # noqa: S311 - jitter
        return None

    def passes(self, rows: pa.RecordBatch) -> bool:
        """Returns whether they would be loaded; nothing of it stays."""
        self._link.execute("SAVEPOINT dataflow_sample")
        failure = self(rows)
        self._link.execute("ROLLBACK TO SAVEPOINT dataflow_sample")
        self._link.execute("RELEASE SAVEPOINT dataflow_sample")
        return failure is None

    def _check_target(self, rows: pa.RecordBatch, failure: ServerFailure) -> None:
        """Raises the failure where the same statement fails without any row."""
        if not self._loads_nothing:
            if self._once(rows.slice(0, 0)) is not None:
                raise failure
            self._loads_nothing = True

    def _once(self, rows: pa.RecordBatch) -> ServerFailure | None:
        self._link.execute("SAVEPOINT dataflow")
        try:
            failure: ServerFailure | None = attempt_rows(lambda: self._load(rows))
        except PostgresqlFailure as refused:
            if refused.kind is PostgresqlKind.TRANSIENT:
                raise
            failure = refused
        end = "RELEASE" if failure is None else "ROLLBACK TO"
        self._link.execute(f"{end} SAVEPOINT dataflow")
        return failure
