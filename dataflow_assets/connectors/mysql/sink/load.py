"""Rows on their way into the table, in the transaction of their slice: appended, or by a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow_assets.connectors.mysql.client import MysqlClient
from dataflow_assets.connectors.mysql.errors import DUPLICATE, MysqlFailure
from dataflow_assets.connectors.mysql.options import MysqlSinkOptions
from dataflow_assets.connectors.mysql.sink.encode import MysqlAbsent, inserts
from dataflow_assets.connectors.mysql.sink.fold import distinct_keys, fold
from dataflow_assets.connectors.mysql.sink.stage import MysqlStage
from dataflow_assets.connectors.mysql.table.table import key_of, words_for_absent
from dataflow_assets.connectors.mysql.types import find_altered
from dataflow_assets.contracts import (
    ABSENT,
    OFFSET,
    OP,
    N,
    Rejection,
    Sent,
    Slice,
)
from dataflow_assets.sdk.key_folding import deletes, matrix
from dataflow_assets.sdk.refused_rows import SuspectRows, attempt_rows
from dataflow_assets.sdk.server_failure import Fault, ServerFailure

FOLDED_BYTES = 64 * 1024 * 1024  # of rows that are folded at once: what an upsert keeps in memory
_APPENDED = "a delete needs upsertMode: true with softDeleteColumn or deleteMode: hard"
_NO_DELETES = "a delete needs softDeleteColumn, or deleteMode: hard"
_KINDS = {N: pa.int32(), OP: pa.int8(), ABSENT: pa.binary()}


class MysqlLoader:
    """Loads the rows of one slice. Methods raise Failure for what is no matter of rows."""

    def __init__(
        self, link: MysqlClient, sink: MysqlSinkOptions, place: str, schema: pa.Schema
    ) -> None:
        self._link, self._sink, self._place, self._schema = link, sink, place, schema
        self._key = key_of(schema)
        self._suspects = SuspectRows()
        self._sent = dict[int, Sent]()
        self._rows: list[pa.RecordBatch] = []
        self.refused: list[Rejection] = []
        self._stage = MysqlStage(link, place, schema) if self._key else None

    def add(self, rows: pa.RecordBatch, sent: Mapping[int, Sent]) -> None:
        """Takes rows; those of a key wait for others of it."""
        self._sent.update(sent)
        self._rows.append(self._usable(rows))
        if not self._key or sum(batch.nbytes for batch in self._rows) >= FOLDED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Loads what waits; `refused` has what the table does not take."""
        rows = [batch for batch in self._rows if batch.num_rows]
        if rows:
            whole = pa.concat_batches(_alike(rows))
            found = self._suspects.search(
                whole,
                self._attempt,
                in_order=bool(self._key),
                passes=self._passes if self._key else None,
            )
            for one in found:
                rejection = self._reject(one.row, one.failure.reason, one.failure.error_type)
                self._suspects.doubt(rejection, one.failure)
        self._rows, self._sent = [], {}

    def check(self, source: str, piece: Slice) -> None:
        """Raises NoneStored where the table, and no row, is at fault for what was refused."""
        self._suspects.check(source, piece)

    def _attempt(self, rows: pa.RecordBatch) -> ServerFailure | None:
        failure = self._once(rows)
        if isinstance(failure, MysqlFailure) and failure.code == DUPLICATE and self._key:
            return self._once(rows)  # another session may have inserted the key meanwhile
        return failure

    def _once(self, rows: pa.RecordBatch) -> ServerFailure | None:
        self._link.run("SAVEPOINT dataflow")
        try:
            failure: ServerFailure | None = attempt_rows(lambda: self._load(rows))
        except MysqlFailure as refused:
            if refused.fault is Fault.OUTSIDE:
                raise
            failure = refused
        if failure is not None:
            self._link.run("ROLLBACK TO SAVEPOINT dataflow")
        return failure

    def _passes(self, rows: pa.RecordBatch) -> bool:
        self._link.run("SAVEPOINT dataflow_sample")
        failure = self._attempt(rows)
        self._link.run("ROLLBACK TO SAVEPOINT dataflow_sample")
        return failure is None

    def _load(self, rows: pa.RecordBatch) -> None:
        if self._stage is not None:
            steps = list(fold(rows, self._schema, self._key, self._sink))
            if len(steps) > 1 and self._stage.has_spellings:
                self._stage.fill(distinct_keys(rows, self._key))
            for step in steps:
                self._stage.apply(step)
            return
        codes, absent = matrix(rows, len(self._schema))
        filled = MysqlAbsent(absent[codes], words_for_absent(self._schema))
        fields, most = list(self._schema), self._link.longest_statement
        for statement in inserts(self._place, rows, fields, filled, most):
            self._link.load(statement)

    def _usable(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Without rows that have no key, and deletes that mean nothing here."""
        for name in self._key:
            codes, absent = matrix(rows, len(self._schema))
            missing = absent[:, self._schema.names.index(name)][codes]
            wrong = pc.or_(rows.column(name).is_null(), pa.array(missing))
            rows = self._reject_where(rows, wrong, f"key column {name} is null or absent")
        for field in self._schema:
            if rows.num_rows and (found := find_altered(field, rows.column(field.name))):
                rows = self._reject_where(rows, *found)
        if self._key and self._sink.traits.takes_deletes:
            return rows
        reason = _NO_DELETES if self._key else _APPENDED
        return self._reject_where(rows, pa.array(deletes(rows)), reason)

    def _reject_where(self, rows: pa.RecordBatch, wrong: pa.Array, reason: str) -> pa.RecordBatch:
        if not pc.any(wrong).as_py():
            return rows
        for index in np.flatnonzero(wrong.to_numpy(zero_copy_only=False)).tolist():
            self._reject(rows.slice(index, 1), reason)
        return rows.filter(pc.invert(wrong))

    def _reject(self, row: pa.RecordBatch, reason: str, error_type: str = "") -> Rejection:
        offset = row.column(OFFSET)[0].as_py()
        n = row.column(N)[0].as_py() if N in row.schema.names else 0
        found = Rejection(offset, "sink", reason, None, n or 0, error_type=error_type)
        self.refused.append(found.of(self._sent.get(offset, Sent(None))))
        return self.refused[-1]


def _alike(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The batches with the same system columns: one may have deletes and another none."""
    wanted = [name for name in _KINDS if any(name in batch.schema.names for batch in batches)]
    names = [n for n in batches[0].schema.names if n not in _KINDS] + wanted
    return [_with(batch, wanted).select(names) for batch in batches]


def _with(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    for name in names:
        if name not in batch.schema.names:
            batch = batch.append_column(name, pa.nulls(batch.num_rows, _KINDS[name]))
    return batch
